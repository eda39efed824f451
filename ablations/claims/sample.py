"""What a claim's test is made of: the values of its sides, the noise of runs and that of examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from ablations.core.estimates import NO_EXAMPLES, Estimate, blocked, linear, residual, summed
from ablations.core.examples import example_variance, run_variance
from ablations.core.moderation import Variance, moderated, own_variance
from ablations.measurements.example_scores import Scores
from ablations.measurements.variances import Samples, pooled


@dataclass(frozen=True)
class Sample:
    """The sides of a claim as numbers.

    Attributes:
        keys: The cell of each side.
        values: One value for each run of each side.
        groups: The values of every cell of the variance groups: group -> cell -> values.
        known: The variance of one run of each cell, where ``groups`` do not give it.
        scores: The scores of each side by example; empty if examples are not counted.
        blocked: Whether the sides come from the same trunks or models, seed by seed: their first values belong
            together, and so on.
        crossed: Whether they are fine-tunings.
        planned: Whether the values represent runs to come, so that only the noise of estimates means something.
        slopes: The derivative of each side's number by its mean: 1, or that of a transformation.
    """

    keys: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    groups: Mapping[int, Samples] = field(default_factory=dict)
    known: Mapping[str, Variance] | None = None
    scores: tuple[Scores, ...] = ()
    slopes: tuple[float, ...] = ()
    planned: bool = False
    blocked: bool = False
    crossed: bool = False

    @property
    def n(self) -> int:
        """The number of runs of the side that has fewest."""
        return min(map(len, self.values), default=0)

    @cached_property
    def variances(self) -> Mapping[str, Variance]:
        """The variance of one run of each cell; cells without any noise in their group have none."""
        return pooled(self.groups) if self.known is None else self.known

    @cached_property
    def prior(self) -> Variance | None:
        """The common variance of the cells' group, with its degrees of freedom; None of several groups, or of none."""
        if self.known is not None or self.blocked or len(self.groups) != 1:
            return None
        (group,) = map(moderated, self.groups.values())
        return None if group.common is None else Variance(group.common, group.prior_df)

    @property
    def has_noise(self) -> bool:
        """Whether every side has a variance."""
        if self.blocked and self.known is None:
            return self.within is not None
        return all(key in self.variances for key in self.keys)

    @property
    def within(self) -> Variance | None:
        """Of sides whose values belong together: the variance of a run within its trunk, model or seed."""
        return residual(list(dict(zip(self.keys, self.values, strict=True)).values())) if self.blocked else None

    def linear(self, weights: Sequence[float]) -> Estimate:
        """The sum of weight times mean over sides, with both parts of its noise."""
        terms = list(zip(self.keys, weights, strict=True))
        samples = dict(zip(self.keys, self.values, strict=True))
        if self.blocked:
            return replace(blocked(terms, samples, self.known, *self._table(weights)), crossed=self.crossed)
        found = linear(terms, samples, self.variances, *self._examples(weights))
        return replace(found, prior=self.prior, crossed=self.crossed)

    def _counted(self, weights: Sequence[float]) -> list[tuple[Scores, float]]:
        """The scores of the cells that take part in a sum, with their weights; empty if examples are not counted."""
        if not self.scores:
            return []
        slopes, of = self.slopes or (1.0,) * len(weights), dict(zip(self.keys, self.scores, strict=True))
        counted = summed((key, w * k) for key, w, k in zip(self.keys, weights, slopes, strict=True))
        return [(of[key], weight) for key, weight in counted.items()]

    def _examples(self, weights: Sequence[float]) -> tuple[Variance, float]:
        """The part of examples, and that of the rest, of a sum over cells whose runs are separate draws."""
        if not (counted := self._counted(weights)):
            return NO_EXAMPLES, 0.0
        differences = np.sum([weight * scores.by_example for scores, weight in counted], axis=0)
        runs = math.fsum(weight**2 * scores.runs for scores, weight in counted)
        first = self.scores[0]
        return example_variance(differences, first.documents, first.weights, runs), runs

    def _table(self, weights: Sequence[float]) -> tuple[Variance, float]:
        """The same of the table of sums by block and example."""
        if not (counted := self._counted(weights)):
            return NO_EXAMPLES, 0.0
        table, first = np.sum([weight * scores.by_run for scores, weight in counted], axis=0), self.scores[0]
        rest = run_variance(table, first.documents, first.weights)
        return example_variance(table.mean(axis=0), first.documents, first.weights, rest), rest

    def logs(self) -> Self:
        """The logarithms of all values, which turn quotients into differences."""
        if self.planned:
            return self
        groups = {
            group: {cell: tuple(map(math.log, values)) for cell, values in cells.items() if min(values) > 0}
            for group, cells in self.groups.items()
        }
        values = tuple(tuple(map(math.log, side)) for side in self.values)
        slopes = tuple(len(side) / math.fsum(side) for side in self.values)
        return replace(self, values=values, groups=groups, slopes=slopes)

    def spreads(self) -> Self:
        """The distances from each side's median; their variances are not pooled, because the claim is about them."""
        if self.planned:
            return self
        far = tuple(tuple(abs(value - float(np.median(side))) for value in side) for side in self.values)
        if self.blocked:
            return replace(self, values=far, scores=())
        known = {key: own_variance(side) for key, side in zip(self.keys, far, strict=True) if len(side) > 1}
        return replace(self, values=far, known=known, scores=())
