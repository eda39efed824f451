"""The relations that a claim may state between its sides, and their tests: one class per relation.

Each relation turns the values of its sides into one number per seed, positive as claimed, and applies the paired t test
and its interval to these. ``decide`` uses only the interval, which excludes the null value exactly when ``p`` is below
the rest of the level: so verdicts, p values and intervals always agree, whatever the correction for many claims.

===========  ==================================================  =============================================
relation     the claim                                           the number of a seed
===========  ==================================================  =============================================
>            a is better than b                                  a - b
~            a equals b within a margin                          a - b
ratio        a is at least x times as good as b                  log(a / b), against log x
ordering     a is better than b, b than c, and on                each step: a - b, b - c, ...
trend        the sides get better from the last to the first     slope over their places, in units a step
interaction  a beats b by more than c beats d                    (a - b) - (c - d)
spread       a depends less on the seed than b                   ``|b - median of b| - |a - median of a|``
===========  ==================================================  =============================================
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
from scipy import stats

from ablations.core.statistics import POWER, Contrast, Interval, minimum_detectable_effect, seeds_needed
from ablations.schema.claim import Claim

REPLICATES, CONTRADICTS, NOT_RESOLVED = "replicates", "contradicts", "not resolved"

Values = Sequence[Mapping[int, float]]  # of each side by seed, all sides with the same seeds


class Better:
    """a is better than b; the base class of all relations.

    Attributes:
        sides: Smallest and largest number of sides.
        fewest: Smallest number of seeds for a decision.
    """

    sides: tuple[int, int] = (2, 2)
    fewest: int = 2

    def compared(self, count: int) -> list[tuple[int, int]]:
        """Pairs of sides whose difference means nothing while both are on the plateau."""
        return [(0, 1)]

    def problem(self, values: Values) -> str:
        """Why these values cannot be compared in this way; empty if they can."""
        return ""

    def contrasts(self, claim: Claim, values: Values) -> tuple[Contrast, ...]:
        """The number of each seed; the test uses the first contrast, or all of them."""
        sign = -1.0 if claim.better == "lower" else 1.0
        return (weighted(values, (sign, -sign)),)

    def tested(self, contrasts: Sequence[Contrast]) -> Sequence[Contrast]:
        """The contrasts that are tested; others can only veto."""
        return contrasts[:1]

    def p(self, claim: Claim, contrasts: Sequence[Contrast]) -> float:
        """Two-sided p against "neither as claimed nor the opposite"; needs at least two seeds."""
        return contrasts[0].p or 0.0

    def interval(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> Interval:
        """The interval that decides."""
        return contrasts[0].interval(level)

    def decide(self, claim: Claim, interval: Interval) -> str:
        """The outcome for an interval."""
        null = claim.ratio or 0.0
        if interval.low is None or interval.high is None:
            return NOT_RESOLVED
        if interval.low > null:
            return REPLICATES
        return CONTRADICTS if interval.high < null else NOT_RESOLVED

    def veto(self, contrasts: Sequence[Contrast]) -> str:
        """Why the outcome is not "replicates" although the interval shows it; empty without a reason."""
        return ""

    def detectable(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> float | None:
        """The smallest true effect that has 80 % power, in the interval's unit."""
        contrast = contrasts[0]
        return minimum_detectable_effect(contrast.sd, contrast.n, level) if contrast.sd else None

    def needed(self, claim: Claim, contrasts: Sequence[Contrast], effect: float | None, level: float) -> int | None:
        """Seeds that show a true effect with 80 % power; without one, the effect of these contrasts."""
        contrast = contrasts[0]
        size = _mean(contrast) if effect is None else effect
        return self._at_least(seeds_needed(size, contrast.sd or 0.0, level, POWER))

    def _at_least(self, seeds: int | None) -> int | None:
        return None if seeds is None else max(self.fewest, seeds)


class Equal(Better):
    """a equals b within a margin: two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15,
    1987, 657-680), each at half the usual alpha, which gives the same interval as everywhere.
    """

    def p(self, claim: Claim, contrasts: Sequence[Contrast]) -> float:
        margin, tail = claim.margin or 0.0, contrasts[0].tail
        inside = max(tail(-margin), tail(margin, below=True))
        beyond = min(tail(margin), tail(-margin, below=True))
        return min(1.0, 2 * min(inside, beyond))

    def decide(self, claim: Claim, interval: Interval) -> str:
        if interval.low is None or interval.high is None:
            return NOT_RESOLVED
        margin = claim.margin or 0.0
        if -margin < interval.low and interval.high < margin:
            return REPLICATES
        return CONTRADICTS if interval.low > margin or interval.high < -margin else NOT_RESOLVED

    def needed(self, claim: Claim, contrasts: Sequence[Contrast], effect: float | None, level: float) -> int | None:
        """Seeds that show equality without a true difference: each one-sided test misses at most 10 %."""
        return seeds_needed(claim.margin or 0.0, contrasts[0].sd or 0.0, level, 1 - (1 - POWER) / 2)


class Ratio(Better):
    """a is at least x times as good as b: a / b where higher is better, b / a where lower is.

    The test uses logarithms, which turn the quotient into a difference; mean and interval are those of the geometric
    mean over seeds, and the null value is x. Published ratios are mostly quotients of means.
    """

    def problem(self, values: Values) -> str:
        low = min((value for side in values for value in side.values()), default=1.0)
        return "" if low > 0 else f"a ratio needs values above 0, not {low:g}"

    def contrasts(self, claim: Claim, values: Values) -> tuple[Contrast, ...]:
        return super().contrasts(claim, [{seed: math.log(v) for seed, v in side.items()} for side in values])

    def p(self, claim: Claim, contrasts: Sequence[Contrast]) -> float:
        bound, tail = math.log(claim.ratio or 1.0), contrasts[0].tail
        return min(1.0, 2 * min(tail(bound), tail(bound, below=True)))

    def interval(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> Interval:
        logs = contrasts[0].interval(level)
        mean, low, high = (None if x is None else math.exp(x) for x in (logs.mean, logs.low, logs.high))
        return Interval(mean, low, high, logs.n, level)

    def detectable(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> float | None:
        """The smallest true ratio above x that has 80 % power."""
        log = super().detectable(claim, contrasts, level)
        return None if log is None else (claim.ratio or 1.0) * math.exp(log)

    def needed(self, claim: Claim, contrasts: Sequence[Contrast], effect: float | None, level: float) -> int | None:
        ratio = math.exp(_mean(contrasts[0])) if effect is None else effect
        return super().needed(claim, contrasts, math.log(ratio / (claim.ratio or 1.0)), level)


class Ordering(Better):
    """Each side is better than the next.

    An ordering is a conjunction, so every step must be shown: the intersection-union test (Berger, Technometrics 24,
    1982, 295-300) tests each step at the full level and needs no correction within the claim. Kendall's tau with the
    claimed order is printed beside it and decides nothing: if two of four sides are truly equal, tau is still well
    above 0, and the two estimates are in the claimed order every other time. The claim is contradicted if any step goes
    the other way, each at its share of the level (Bonferroni). Both together give an interval for the smallest step:
    its lower end is the lowest lower end of the steps, its upper end the lowest upper end at the shared level.
    """

    sides = (3, 26)

    def compared(self, count: int) -> list[tuple[int, int]]:
        return list(pairwise(range(count)))

    def contrasts(self, claim: Claim, values: Values) -> tuple[Contrast, ...]:
        single = super().contrasts
        return tuple(single(claim, step)[0] for step in pairwise(values))

    def tested(self, contrasts: Sequence[Contrast]) -> Sequence[Contrast]:
        return contrasts

    def p(self, claim: Claim, contrasts: Sequence[Contrast]) -> float:
        shown = max(2 * step.tail(0.0) for step in contrasts)
        refuted = len(contrasts) * min(2 * step.tail(0.0, below=True) for step in contrasts)
        return min(1.0, shown, refuted)

    def interval(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> Interval:
        shared = 1 - (1 - level) / len(contrasts)
        wide = [step.interval(level) for step in contrasts]
        means = [interval.mean for interval in wide if interval.mean is not None]
        lows = [interval.low for interval in wide if interval.low is not None]
        highs = [high for step in contrasts if (high := step.interval(shared).high) is not None]
        return Interval(min(means, default=None), min(lows, default=None), min(highs, default=None), wide[0].n, level)

    def detectable(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> float | None:
        """The step size that has at least 80 % power to show all steps, if all have this size."""
        sd, power = max(step.sd or 0.0 for step in contrasts), 1 - (1 - POWER) / len(contrasts)
        return minimum_detectable_effect(sd, contrasts[0].n, level, power) if sd else None

    def needed(self, claim: Claim, contrasts: Sequence[Contrast], effect: float | None, level: float) -> int | None:
        """Seeds that show every step; None if a measured step goes the other way."""
        means = [_mean(step) if effect is None else effect for step in contrasts]
        power = 1 - (1 - POWER) / len(contrasts)
        seeds = [
            seeds_needed(mean, step.sd or 0.0, level, power) if mean > 0 else None
            for mean, step in zip(means, contrasts, strict=True)
        ]
        return None if None in seeds else max(count for count in seeds if count is not None)


class Trend(Ordering):
    """The sides get better from the last to the first: the slope of each seed's values over their places.

    One summary per seed, then a t test of the summaries (Matthews, Altman, Campbell, Royston, British Medical Journal
    300, 1990, 230-235). Places count 1, 2, 3, whatever the values of the axis are: list sides with equal steps, such as
    doublings. By slope alone a curve with a peak would be a trend; so "replicates" also needs every step's mean to go
    the claimed way. An ordering is stronger: it needs every step to be shown.
    """

    def contrasts(self, claim: Claim, values: Values) -> tuple[Contrast, ...]:
        places = np.arange(len(values))[::-1] - (len(values) - 1) / 2
        sign = -1.0 if claim.better == "lower" else 1.0
        slope = weighted(values, (sign * places / (places**2).sum()).tolist())
        return (slope, *super().contrasts(claim, values))

    def p(self, claim: Claim, contrasts: Sequence[Contrast]) -> float:
        return contrasts[0].p or 0.0

    def interval(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> Interval:
        return contrasts[0].interval(level)

    def veto(self, contrasts: Sequence[Contrast]) -> str:
        wrong = [n for n, step in enumerate(contrasts[1:], start=1) if _mean(step) < 0]
        return f"the slope is as claimed, but step {', '.join(map(str, wrong))} goes the other way" if wrong else ""

    tested = Better.tested
    detectable = Better.detectable
    needed = Better.needed


class Interaction(Better):
    """a beats b by more than c beats d: the difference of differences of each seed.

    It shows that the two differences differ. Opposite signs are a stronger statement and need two claims of their own.
    """

    sides = (4, 4)

    def compared(self, count: int) -> list[tuple[int, int]]:
        return [(0, 1), (2, 3)]

    def contrasts(self, claim: Claim, values: Values) -> tuple[Contrast, ...]:
        sign = -1.0 if claim.better == "lower" else 1.0
        return (weighted(values, (sign, -sign, -sign, sign)),)


class Spread(Better):
    """a depends less on the seed than b: distances from the side's median, compared seed by seed.

    The test of Brown and Forsythe (Journal of the American Statistical Association 69, 1974, 364-367), paired. The
    textbook test of two correlated variances (Pitman's and Morgan's) rejects equal spreads in 12 to 38 % of cases when
    tails are heavy or some runs fail, as in such claims; distances from the mean, in up to 14 %.
    Simulated under equal spreads (normal, heavy-tailed, skewed, 15 % failed runs; correlation 0 to 0.9), this one
    rejects at 5 % in 0.3-1.2 % of cases with 5 seeds, in 3.0-4.8 % with 10, in 3.4-5.1 % with 20, and in up to 9 % with
    4. So it needs five seeds, and with five it has little power (with an odd number of seeds, one distance from each
    median is 0). With 20 seeds it shows a threefold spread in 97 % of cases. The effect is a difference of mean
    distances from the median.
    """

    fewest = 5

    def contrasts(self, claim: Claim, values: Values) -> tuple[Contrast, ...]:
        far = []
        for side in values:
            median = float(np.median(list(side.values()))) if side else 0.0
            far.append({seed: abs(value - median) for seed, value in side.items()})
        return (weighted(far, (-1.0, 1.0)),)


RELATIONS: dict[str, Better] = {
    ">": Better(),
    "~": Equal(),
    "ratio": Ratio(),
    "ordering": Ordering(),
    "trend": Trend(),
    "interaction": Interaction(),
    "spread": Spread(),
}


def weighted(values: Values, weights: Sequence[float]) -> Contrast:
    """The weighted sum of the sides, seed by seed."""
    seeds = tuple(sorted(values[0]))
    sums = tuple(sum(weight * side[seed] for weight, side in zip(weights, values, strict=True)) + 0.0 for seed in seeds)
    return Contrast(seeds, sums)


def agreement(claim: Claim, values: Values) -> list[float]:
    """Kendall's tau of each seed's values with the claimed order, best first: 1 for the order, -1 for its reverse."""
    sign = -1.0 if claim.better == "lower" else 1.0
    claimed = list(range(len(values)))[::-1]
    found = (stats.kendalltau(claimed, [sign * side[seed] for side in values]) for seed in sorted(values[0]))
    taus = (float(cast(Any, tau).statistic) for tau in found)
    return [tau for tau in taus if tau == tau]


def _mean(contrast: Contrast) -> float:
    return contrast.interval().mean or 0.0
