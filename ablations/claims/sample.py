"""What a claim's test is made of: the values of its sides, the noise of runs and that of examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from ablations.core.estimates import NO_EXAMPLES, Estimate, blocked, linear, residual, summed
from ablations.core.examples import example_variance
from ablations.core.moderation import Variance, own_variance
from ablations.measurements.example_scores import Scores
from ablations.measurements.variances import Samples, pooled

NO_NOISE = Variance(0.0, math.inf)


@dataclass(frozen=True)
class Sample:
    """The sides of a claim as numbers.

    Attributes:
        keys: The cell of each side.
        values: One value for each run of each side.
        groups: The values of every cell of the variance groups: group -> cell -> values.
        known: The variance of one run of each cell, where ``groups`` do not give it.
        scores: The scores of each side by example; empty if examples are not counted.
        blocked: Whether the sides continue from the same trunks or read the same models: their first values belong
            together, and so on.
        planned: Whether the values stand for runs to come, so that only the noise of estimates means something.
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

    @property
    def n(self) -> int:
        """The number of runs of the side that has fewest."""
        return min(map(len, self.values), default=0)

    @cached_property
    def variances(self) -> Mapping[str, Variance]:
        """The variance of one run of each cell; cells without any noise in their group have none."""
        return pooled(self.groups) if self.known is None else self.known

    @property
    def has_noise(self) -> bool:
        """Whether every side has a variance."""
        if self.blocked and self.known is None:
            return self.within is not None
        return all(key in self.variances for key in self.keys)

    @property
    def within(self) -> Variance | None:
        """Of sides that continue from the same trunks or read the same models: the variance of a run within its own."""
        distinct = dict(zip(self.keys, self.values, strict=True))
        return residual(list(distinct.values())) if self.blocked else None

    def linear(self, weights: Sequence[float]) -> Estimate:
        """The sum of weight times mean over sides, with both parts of its noise."""
        terms = list(zip(self.keys, weights, strict=True))
        samples = dict(zip(self.keys, self.values, strict=True))
        if self.blocked:
            return blocked(terms, samples, self.known, self._examples(weights))
        return linear(terms, samples, self.variances, self._examples(weights))

    def _examples(self, weights: Sequence[float]) -> Variance:
        if not self.scores:
            return NO_EXAMPLES
        slopes, of = self.slopes or (1.0,) * len(weights), dict(zip(self.keys, self.scores, strict=True))
        counted = summed((key, w * k) for key, w, k in zip(self.keys, weights, slopes, strict=True))
        if not counted:
            return NO_EXAMPLES
        differences = np.sum([weight * of[key].by_example for key, weight in counted.items()], axis=0)
        runs = math.fsum(weight**2 * of[key].runs for key, weight in counted.items())
        first = self.scores[0]
        return example_variance(differences, first.documents, first.weights, runs)

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
