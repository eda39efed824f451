"""The relations that a claim may state between its sides, and their tests: one class per relation.

Each relation turns its sides into estimates, positive as claimed: weighted sums of the means of cells, whose noise is
that of runs, pooled over cells or within blocks and pairs, and that of the held-out examples. An outcome needs
one-sided tests at half of the rest of the level. They hold exactly when the interval lies on the required side of the
bound. So verdicts, p values and intervals always agree, whatever the correction for many claims.

===========  ==================================================  =============================================
relation     the claim                                           the estimate
===========  ==================================================  =============================================
>            a is better than b; by little, much, or at most x   a - b
~            a equals b within a margin                          a - b
ratio        a is at least x times as good as b                  log(a / b), against log x
ordering     a is better than b, b than c, and on                each step: a - b, b - c, ...
trend        the sides get better from the last to the first     slope over their places, in units a step
interaction  a beats b by more than c beats d                    (a - b) - (c - d)
spread       a depends less on the seed than b                   mean distance from the median, b - a
===========  ==================================================  =============================================
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, WITHIN, Direction, Size
from ablations.claims.sample import Sample
from ablations.core.estimates import Estimate
from ablations.core.power import equality_power
from ablations.core.statistics import POWER, Interval
from ablations.schema.claim import Claim

T = TypeVar("T")
Values = Sequence[Sequence[float]]  # of each side, one for each run


@dataclass(frozen=True)
class Bound:
    """A one-sided test: the true value lies beyond a bound, above it or ``below`` it."""

    value: float
    below: bool = False

    def holds(self, interval: Interval) -> bool:
        """Whether the whole interval lies on the required side."""
        if interval.low is None or interval.high is None:
            return False
        return interval.high < self.value if self.below else interval.low > self.value


@dataclass(frozen=True)
class Way:
    """One way to an outcome: all its tests must hold."""

    outcome: str
    bounds: tuple[Bound, ...]


def _inside(margin: float) -> tuple[Bound, ...]:
    return Bound(-margin), Bound(margin, below=True)


ABOVE, BELOW = Bound(0.0), Bound(0.0, below=True)


class Better:
    """a is better than b; the base class of all relations.

    Attributes:
        sides: Smallest and largest number of sides.
        fewest: Smallest number of runs of a side for a decision.
        counts_silent: Whether fine-tunings that answer every example alike count: not in a mean.
    """

    sides: tuple[int, int] = (2, 2)
    fewest: int = 2
    counts_silent: bool = False

    def compared(self, count: int) -> list[tuple[int, int]]:
        """Pairs of sides that are compared directly, whose floors matter."""
        return [(0, 1)]

    def problem(self, values: Values) -> str:
        """Why these values cannot be compared in this way; empty if they can."""
        return ""

    def weights(self, claim: Claim) -> list[tuple[float, ...]]:
        """The weights of the sides in each estimate."""
        return [_signed(claim, (1.0,) if claim.against else (1.0, -1.0))]

    def estimates(self, claim: Claim, sample: Sample) -> tuple[Estimate, ...]:
        """The estimates; the test uses the first, or all of them."""
        return tuple(map(sample.linear, self.weights(claim)))

    def tested(self, estimates: Sequence[T]) -> Sequence[T]:
        """Of the estimates, or of what belongs to each, those that are tested; others can only veto."""
        return estimates[:1]

    def ways(self, claim: Claim, margin: float | None, estimates: Sequence[Estimate]) -> list[Way]:
        """The ways to an outcome, in the interval's unit."""
        if claim.size == "" or margin is None:
            return [Way(AS_CLAIMED, (ABOVE,)), Way(AGAINST, (BELOW,))]
        much, little = Bound(margin), Bound(margin, below=True)
        if claim.size == "at_most":
            return [Way(AS_CLAIMED, (little,)), Way(AGAINST, (much,))]
        if claim.size == "inside":
            return [Way(AS_CLAIMED, (ABOVE, little)), Way(AGAINST, (BELOW,)), Way(AGAINST, (much,))]
        return [Way(AS_CLAIMED, (much,)), Way(AGAINST, (BELOW,)), Way(AGAINST, _inside(margin))]

    def p(self, estimates: Sequence[Estimate], ways: Sequence[Way]) -> float:
        """The smallest rest of the level at which some outcome holds; 1 if none can."""
        return min([1.0, *(2 * max(self._tail(estimates[0], bound) for bound in way.bounds) for way in ways)])

    def _tail(self, estimate: Estimate, bound: Bound) -> float:
        tail = estimate.tail(bound.value, below=bound.below)
        return 1.0 if tail is None else tail

    def interval(self, estimates: Sequence[Estimate], level: float) -> Interval:
        """The interval that decides."""
        return estimates[0].interval(level)

    def decide(self, claim: Claim, interval: Interval, ways: Sequence[Way], margin: float | None) -> str:
        """The outcome for an interval."""
        held = (way.outcome for way in ways if all(bound.holds(interval) for bound in way.bounds))
        is_within = self.size(claim, interval, margin) is Size.INSIDE and self.direction(interval) is Direction.OPEN
        return next(held, WITHIN if is_within else OPEN)

    def direction(self, interval: Interval) -> Direction:
        """Whether the interval excludes 0, and on which side."""
        if ABOVE.holds(interval):
            return Direction.POSITIVE
        return Direction.NEGATIVE if BELOW.holds(interval) else Direction.OPEN

    def size(self, claim: Claim, interval: Interval, margin: float | None) -> Size:
        """Where the interval lies against the margin; `Size.NONE` without one."""
        if margin is None or interval.low is None:
            return Size.NONE
        if all(bound.holds(interval) for bound in _inside(margin)):
            return Size.INSIDE
        is_beyond = Bound(margin).holds(interval) or Bound(-margin, below=True).holds(interval)
        return Size.BEYOND if is_beyond else Size.ASTRIDE

    def detectable(self, claim: Claim, estimates: Sequence[Estimate], level: float) -> float | None:
        """The smallest true effect that has 80 % power, in the interval's unit; None without noise."""
        return _detectable(estimates[0], level, POWER)

    def equality(self, claim: Claim, estimates: Sequence[Estimate], level: float, margin: float | None) -> float | None:
        """The chance to show a difference inside the margin if there is none; None without a margin."""
        error, df = estimates[0].error, estimates[0].df
        return None if margin is None or error is None or df is None else equality_power(margin, error, df, level)


class Equal(Better):
    """a equals b within a margin: two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15,
    1987, 657-680), each at half the usual alpha, which gives the same interval as everywhere.
    """

    def ways(self, claim: Claim, margin: float | None, estimates: Sequence[Estimate]) -> list[Way]:
        bound = margin or 0.0
        beyond = Bound(bound), Bound(-bound, below=True)
        return [Way(AS_CLAIMED, _inside(bound)), *(Way(AGAINST, (one,)) for one in beyond)]


class Ratio(Better):
    """a is at least x times as good as b: a / b where higher is better, b / a where lower is.

    The test uses logarithms, which turn the quotient into a difference; value and interval are those of the quotient of
    geometric means, and the claimed ratio x takes the place of a margin. Published ratios are mostly of plain means.
    """

    def problem(self, values: Values) -> str:
        low = min((value for side in values for value in side), default=1.0)
        return "" if low > 0 else f"a ratio needs values above 0, not {low:g}"

    def estimates(self, claim: Claim, sample: Sample) -> tuple[Estimate, ...]:
        return super().estimates(claim, sample.logs())

    def ways(self, claim: Claim, margin: float | None, estimates: Sequence[Estimate]) -> list[Way]:
        x = claim.ratio or 1.0
        return [Way(AS_CLAIMED, (Bound(x),)), Way(AGAINST, (Bound(x, below=True),))]

    def _tail(self, estimate: Estimate, bound: Bound) -> float:
        return super()._tail(estimate, Bound(math.log(bound.value), bound.below))

    def interval(self, estimates: Sequence[Estimate], level: float) -> Interval:
        logs = estimates[0].interval(level)
        mean, low, high = (None if x is None else math.exp(x) for x in (logs.mean, logs.low, logs.high))
        return Interval(mean, low, high, logs.n, level)

    def direction(self, interval: Interval) -> Direction:
        if Bound(1.0).holds(interval):
            return Direction.POSITIVE
        return Direction.NEGATIVE if Bound(1.0, below=True).holds(interval) else Direction.OPEN

    def size(self, claim: Claim, interval: Interval, margin: float | None) -> Size:
        if interval.low is None:
            return Size.NONE
        beyond, inside = (way.bounds[0].holds(interval) for way in self.ways(claim, margin, ()))
        return Size.BEYOND if beyond else Size.INSIDE if inside else Size.ASTRIDE

    def detectable(self, claim: Claim, estimates: Sequence[Estimate], level: float) -> float | None:
        """The smallest true ratio above x that has 80 % power."""
        log = super().detectable(claim, estimates, level)
        return None if log is None else (claim.ratio or 1.0) * math.exp(log)


class Ordering(Better):
    """Each side is better than the next.

    An ordering is a conjunction, so every step must be shown: the intersection-union test (Berger, Technometrics 24,
    1982, 295-300) tests each step at the full level and needs no correction within the claim. The claim is contradicted
    if any step goes the other way, each at its share of the level (Bonferroni). Both together give an interval for the
    smallest step: its lower end is the lowest lower end of the steps, its upper end the lowest upper end at the shared
    level.
    """

    sides = (3, 26)

    def compared(self, count: int) -> list[tuple[int, int]]:
        return list(pairwise(range(count)))

    def weights(self, claim: Claim) -> list[tuple[float, ...]]:
        count = len(claim.sides)
        return [_signed(claim, tuple(float(n == m) - float(n == m + 1) for n in range(count)))
                for m in range(count - 1)]  # fmt: skip

    def tested(self, estimates: Sequence[T]) -> Sequence[T]:
        return estimates

    def p(self, estimates: Sequence[Estimate], ways: Sequence[Way]) -> float:
        shown = max(2 * self._tail(step, ABOVE) for step in estimates)
        refuted = len(estimates) * min(2 * self._tail(step, BELOW) for step in estimates)
        return min(1.0, shown, refuted)

    def interval(self, estimates: Sequence[Estimate], level: float) -> Interval:
        shared = 1 - (1 - level) / len(estimates)
        wide = [step.interval(level) for step in estimates]
        means = [interval.mean for interval in wide if interval.mean is not None]
        lows = [interval.low for interval in wide if interval.low is not None]
        highs = [high for step in estimates if (high := step.interval(shared).high) is not None]
        n = min(interval.n for interval in wide)
        return Interval(min(means, default=None), min(lows, default=None), min(highs, default=None), n, level)

    def detectable(self, claim: Claim, estimates: Sequence[Estimate], level: float) -> float | None:
        """The step size that has at least 80 % power to show all steps, if all have this size."""
        power = 1 - (1 - POWER) / len(estimates)
        sizes = [_detectable(step, level, power) for step in estimates]
        return max((size for size in sizes if size is not None), default=None)


class Trend(Ordering):
    """The sides get better from the last to the first: the slope of their means over their places.

    Places count 1, 2, 3, whatever the values of the axis are: list sides with equal steps, such as doublings. By slope
    alone a curve with a peak would be a trend; so "as claimed" also needs every step's mean to go the claimed way. An
    ordering is stronger: it needs every step to be shown.
    """

    def weights(self, claim: Claim) -> list[tuple[float, ...]]:
        count = len(claim.sides)
        places = np.arange(count)[::-1] - (count - 1) / 2
        slope = _signed(claim, tuple((places / (places**2).sum()).tolist()))
        return [slope, *super().weights(claim)]

    def ways(self, claim: Claim, margin: float | None, estimates: Sequence[Estimate]) -> list[Way]:
        goes_back = any(step.value < 0 for step in estimates[1:])
        return [way for way in super().ways(claim, None, estimates) if not (goes_back and way.outcome == AS_CLAIMED)]

    def wrong(self, estimates: Sequence[Estimate]) -> list[int]:
        """The steps whose means go the other way; step 1 is from the second side to the first."""
        return [n for n, step in enumerate(estimates[1:], start=1) if step.value < 0]

    tested = Better.tested
    p = Better.p
    interval = Better.interval
    detectable = Better.detectable


class Interaction(Better):
    """a beats b by more than c beats d: a difference of differences, whichever way it is bracketed.

    It shows that the two differences differ. Opposite signs are a stronger statement and need two claims of their own.
    """

    sides = (4, 4)

    def compared(self, count: int) -> list[tuple[int, int]]:
        return [(0, 1), (2, 3)]

    def weights(self, claim: Claim) -> list[tuple[float, ...]]:
        return [_signed(claim, (1.0, -1.0, -1.0, 1.0))]


class Spread(Better):
    """a depends less on the seed than b: mean distances from the side's median.

    The test of Brown and Forsythe (Journal of the American Statistical Association 69, 1974, 364-367) with Welch's
    degrees of freedom: the variances that are compared are not pooled with others. It needs five runs of each side, and
    with five it has little power (with an odd number of runs, one distance from each median is 0). Runs that answer
    every example alike count: failed runs are what such a claim is about.
    """

    fewest = 5
    counts_silent = True

    def weights(self, claim: Claim) -> list[tuple[float, ...]]:
        return [(-1.0, 1.0)]

    def estimates(self, claim: Claim, sample: Sample) -> tuple[Estimate, ...]:
        return super().estimates(claim, sample.spreads())


RELATIONS: dict[str, Better] = {
    ">": Better(),
    "~": Equal(),
    "ratio": Ratio(),
    "ordering": Ordering(),
    "trend": Trend(),
    "interaction": Interaction(),
    "spread": Spread(),
}


def _signed(claim: Claim, weights: tuple[float, ...]) -> tuple[float, ...]:
    """The weights with the sign that makes "better" positive."""
    return tuple(-weight for weight in weights) if claim.better == "lower" else weights


def _detectable(estimate: Estimate, level: float, power: float) -> float | None:
    return estimate.detectable(level, power) if estimate.error else None
