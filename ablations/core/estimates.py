"""Estimates of what a claim compares: weighted sums of the means of cells, with the noise of seeds and of examples.

Runs need no seeds in common: in measured grids, those of one seed are no more alike than others, so pairing them would
only cost degrees of freedom. Where replication is in blocks (arms that continue from one trunk, fine-tunings of one
pretraining), the sums within each block are the sample (`blocked`). All runs answer the same held-out examples. What
they add to the spread of each other is counted once, and the noise of runs is never less than that (`linear`).
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import chdtri, stdtr, stdtrit

from ablations.core.moderation import CONFIDENCE, Variance, own_variance
from ablations.core.power import detectable
from ablations.core.statistics import LEVEL, POWER, Interval

Cell = TypeVar("Cell", bound=Hashable)

LESS = 0.75  # see `satterthwaite`

NO_EXAMPLES = Variance(0.0, math.inf)


@dataclass(frozen=True)
class Estimate:
    """A value with its uncertainty, in the unit of the metric.

    Attributes:
        value: The estimate.
        seeds: The variance of the value over new runs. None if no cell has a second seed to show it.
        examples: The variance of the value over new held-out examples; 0 if they are not counted.
        n: The seeds of the cell that has fewest.
        crossed: Whether it is of fine-tunings, whose seeds are few and examples many (`cautious`).
        prior: The common variance that those of its cells were moderated towards, with the degrees of freedom that it
            counts; None where they were not, or were in several groups.
    """

    value: float
    seeds: Variance | None
    examples: Variance
    n: int
    crossed: bool = False
    prior: Variance | None = None

    @property
    def variance(self) -> float | None:
        """Of the value, over new runs and new examples."""
        return None if self.seeds is None else self.seeds.value + self.examples.value

    @property
    def error(self) -> float | None:
        """The standard error of the value; None where either is not known, as of a score that is no number."""
        variance = math.nan if self.variance is None else self.variance
        return None if math.isnan(self.value + variance) else math.sqrt(variance)

    @property
    def df(self) -> float | None:
        """The degrees of freedom of both parts together (Welch and Satterthwaite)."""
        if self.seeds is None:
            return None
        return cautious(self.seeds, self.examples) if self.crossed else satterthwaite((self.seeds, self.examples))

    def interval(self, level: float = LEVEL) -> Interval:
        """The t interval; without a variance it has no ends."""
        if self.error is None or self.df is None:
            return Interval(self.value, None, None, self.n, level)
        half = -float(stdtrit(self.df, (1 - level) / 2)) * self.error
        return Interval(self.value, self.value - half, self.value + half, self.n, level)

    def tail(self, bound: float = 0.0, *, below: bool = False) -> float | None:
        """One-sided p against "the true value is at most ``bound``" (at least, where ``below``).

        Without any noise the value is known exactly. It is 0 on the required side of the bound, else 1 (1/2 on the
        bound, so that two tails make 1).
        """
        if self.error is None or self.df is None:
            return None
        gap = bound - self.value if below else self.value - bound
        if self.error == 0:
            return 0.5 if gap == 0 else float(gap < 0)
        return float(stdtr(self.df, -gap / self.error))

    @property
    def p(self) -> float | None:
        """Two-sided p against "the true value is 0"; None without a variance."""
        above, below = self.tail(), self.tail(below=True)
        return None if above is None or below is None else min(1.0, 2 * min(above, below))

    def detectable(self, level: float = LEVEL, power: float = POWER) -> float | None:
        """The smallest true value that such an estimate distinguishes from 0 with the given power."""
        return None if self.error is None or self.df is None else detectable(self.error, self.df, level, power)


def linear(
    terms: Iterable[tuple[Cell, float]],
    samples: Mapping[Cell, Sequence[float]],
    variances: Mapping[Cell, Variance],
    examples: Variance = NO_EXAMPLES,
    rest: float = 0.0,
) -> Estimate:
    """The sum of weight times mean over cells.

    The scores by run and example are a table with crossed random effects: its variance has a part of runs, one of
    examples, and a rest that differs with both, none below 0 (Searle, Casella and McCulloch 1992, Variance Components,
    section 4.4). The rest is counted with the runs: their spread shows both, and is never less than the rest alone.

    A cell that is on several sides has its weights added first. Sums are exact, so the estimate does not depend on the
    order of the terms or on how they are bracketed. A cell whose weights cancel takes no part.

    Args:
        terms: Cells with their weights.
        samples: The values of each cell; every cell that takes part has at least one.
        variances: Of one value of each cell, such as the moderated ones of its group; if a cell that takes part has
            none, the estimate has no interval.
        examples: The variance of the value over new held-out examples, without the rest.
        rest: The variance of the value that the rest makes by itself.

    Raises:
        ValueError: If a cell that takes part has no value.

    >>> from ablations.core.moderation import moderated
    >>> samples = {"a": [3.0, 3.2], "b": [2.0, 2.4, 2.2]}
    >>> estimate = linear([("a", 1.0), ("b", -1.0)], samples, moderated(samples).variances)
    >>> round(estimate.value, 3), round(estimate.error, 3), estimate.df, estimate.n
    (0.9, 0.244, 3.0, 2)
    """
    weights = summed(terms)
    empty = [cell for cell in weights if not samples.get(cell)]
    if empty:
        raise ValueError(f"no value of {', '.join(map(str, empty))}. An estimate needs one of each cell.")
    count = {cell: len(samples[cell]) for cell in weights}
    value = math.fsum(weight * value / count[cell] for cell, weight in weights.items() for value in samples[cell])
    n = min(count.values(), default=0)
    if not all(cell in variances for cell in weights):
        return Estimate(value, None, examples, n)
    parts = [
        Variance(weight**2 * variances[cell].value / count[cell], variances[cell].df, variances[cell].most)
        for cell, weight in weights.items()
    ]
    most = max((part.most for part in parts), default=math.inf)
    spread = max(math.fsum(part.value for part in parts), rest)
    return Estimate(value, Variance(spread, min(satterthwaite(parts), most), most), examples, n)


def blocked(
    terms: Iterable[tuple[Cell, float]],
    samples: Mapping[Cell, Sequence[float]],
    known: Mapping[Cell, Variance] | None = None,
    examples: Variance = NO_EXAMPLES,
    rest: float = 0.0,
) -> Estimate:
    """The mean over blocks of the sum of weight times value over cells, such as arms that continue from one trunk.

    What a block gives to all of its cells alike drops out of weights that add up to 0. The sums are a sample of blocks,
    and the test is Student's, with one degree of freedom less than blocks: exact for normal noise, however the noise of
    cells differs. Residuals of cells and blocks together, pooled or moderated, have more degrees of freedom and err
    where one cell is noisier than others (`benchmarks/simulation` measures both).

    Args:
        terms: Cells with their weights, as for `linear`.
        samples: The values of each cell, one for each block, in one order.
        known: The variance of one run of each cell within its block, in place of the spread of the sums.
        examples, rest: As for `linear`, of the table of sums by block and example.

    Raises:
        ValueError: If the cells that take part have different numbers of values, or none.

    >>> samples = {"a": [3.0, 5.3, 4.1], "b": [2.0, 4.1, 3.3]}  # blocks differ by 2, differences by 0.2
    >>> estimate = blocked([("a", 1.0), ("b", -1.0)], samples)
    >>> round(estimate.value, 3), round(estimate.error, 3), estimate.df, estimate.n
    (1.0, 0.115, 2, 3)
    """
    weights = summed(terms)
    if not weights:
        return linear((), samples, {}, examples)
    counts = {len(samples.get(cell, ())) for cell in weights}
    if len(counts) > 1:
        numbers = ", ".join(map(str, sorted(counts)))
        raise ValueError(f"cells have {numbers} blocks. Sums need the same ones of each cell.")
    sums = [math.fsum(w * samples[cell][block] for cell, w in weights.items()) for block in range(max(counts))]
    if known is not None:
        parts = [Variance(weight**2 * known[cell].value, known[cell].df) for cell, weight in weights.items()]
        spread = Variance(math.fsum(part.value for part in parts), min(part.df for part in parts))
    else:
        spread = own_variance(sums) if len(sums) > 1 else Variance(0.0, 0.0)
    noise = {_SUM: spread} if spread.value or (rest and len(sums) > 1) else {}
    return linear([(_SUM, 1.0)], {_SUM: sums}, noise, examples, rest)


_SUM = "sum"


def cautious(seeds: Variance, examples: Variance) -> float:
    """The degrees of freedom of few seeds and many examples: Satterthwaite's, the seeds at their upper limit.

    A few seeds often show less than their part, and then Satterthwaite's formula also claims the many degrees of
    freedom of the examples: with three seeds, families of 14 err in a third of grids instead of 5 %. So the share of
    the seeds is taken as if their variance were at its one-sided 90 % limit. At most 5 % err then, and from eight seeds
    on it costs little (`benchmarks/simulation`).
    """
    if not math.isfinite(seeds.df):
        return satterthwaite((seeds, examples))
    most = seeds.value * seeds.df / float(chdtri(seeds.df, CONFIDENCE))
    total = most + examples.value
    if total == 0:
        return seeds.df
    return 1 / ((most / total) ** 2 / seeds.df + (examples.value / total) ** 2 / examples.df)


def residual(samples: Sequence[Sequence[float]]) -> Variance | None:
    """The variance of a run within its block, pooled over cells: what is left without the means of cells and blocks.

    Args:
        samples: The values of each cell, one for each block, in one order; of a single cell, its own variance.

    Returns:
        None for fewer than two blocks, and without any noise.
    """
    values = np.asarray(samples, dtype=float)
    cells, blocks = values.shape
    if blocks < 2:
        return None
    if cells < 2:
        own = own_variance(values[0].tolist())
        return own if own.value else None
    left = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    df = (cells - 1) * (blocks - 1)
    variance = float((left**2).sum()) / df
    return Variance(variance, float(df)) if variance else None


def summed(terms: Iterable[tuple[Cell, float]]) -> dict[Cell, float]:
    """The weight of each cell, those that cancel left out.

    >>> summed([("a", 1.0), ("b", -1.0), ("b", 1.0), ("c", -1.0)])
    {'a': 1.0, 'c': -1.0}
    """
    weights: dict[Cell, list[float]] = {}
    for cell, weight in terms:
        weights.setdefault(cell, []).append(weight)
    return {cell: total for cell, parts in weights.items() if (total := math.fsum(parts))}


def satterthwaite(parts: Sequence[Variance]) -> float:
    """The degrees of freedom of a sum of variances (Satterthwaite, Biometrics Bulletin 2, 1946, 110-114), less 3/4.

    With four seeds and variances that differ by a factor of nine, two looks with Welch's test err 12 % too often; with
    three quarters of a degree less, 4 %. The sum never has fewer degrees of freedom than its least known part, so a
    single part keeps its own.
    """
    parts = [part for part in parts if part.value] or list(parts)
    least, total = min((part.df for part in parts), default=math.inf), math.fsum(part.value for part in parts)
    if total == 0:
        return least
    known = math.fsum((part.value / total) ** 2 / part.df for part in parts)
    return max(least, 1 / known - LESS) if known else math.inf
