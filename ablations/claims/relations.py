"""What a claim may say of its sides, and what the seeds have to show for it: one class a relation.

Each relation turns the values of its sides into numbers of one seed each, oriented so that positive is as claimed, and
reads those with the paired t test and its interval. ``decide`` looks at the interval alone, which excludes the null
value exactly where ``p`` is below what is left of the level: so verdicts, p values and intervals never disagree,
whatever the correction for many claims.

===========  ==================================================  =============================================
relation     the claim                                           the number of a seed
===========  ==================================================  =============================================
>            a is better than b                                  a - b
~            a equals b within a margin                          a - b
ratio        a is at least x times as good as b                  log(a / b), against log x
ordering     a is better than b, b than c, and on                each step: a - b, b - c, ...
trend        the sides get better from the last to the first     slope over their places, in units a step
interaction  a beats b by more than c beats d                    (a - b) - (c - d)
spread       a depends less on the seed than b                   |b - median of b| - |a - median of a|
===========  ==================================================  =============================================
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from ablations.core.statistics import POWER, Contrast, Interval, minimum_detectable_effect, seeds_needed
from ablations.schema.claim import Claim

REPLICATES, CONTRADICTS, NOT_RESOLVED = "replicates", "contradicts", "not resolved"

Values = Sequence[Mapping[int, float]]  # of each side by seed, all sides with the same seeds


class Better:
    """a is better than b; and what all relations have in common.

    Attributes:
        sides: Fewest and most sides.
        fewest: Seeds below which nothing is decided.
    """

    sides: tuple[int, int] = (2, 2)
    fewest: int = 2

    def compared(self, count: int) -> list[tuple[int, int]]:
        """The sides whose difference means nothing while both are on the plateau."""
        return [(0, 1)]

    def problem(self, values: Values) -> str:
        """Why these values cannot be compared in this way; empty where they can."""
        return ""

    def contrasts(self, claim: Claim, values: Values) -> tuple[Contrast, ...]:
        """The numbers of each seed; the first contrast is tested, or all of them."""
        sign = -1.0 if claim.better == "lower" else 1.0
        return (weighted(values, (sign, -sign)),)

    def tested(self, contrasts: Sequence[Contrast]) -> Sequence[Contrast]:
        """The contrasts that are tested; any others only forbid."""
        return contrasts[:1]

    def p(self, claim: Claim, contrasts: Sequence[Contrast]) -> float:
        """Two-sided p against "neither as claimed nor the opposite"; there are two seeds or more."""
        return contrasts[0].p or 0.0

    def interval(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> Interval:
        """The interval that decides."""
        return contrasts[0].interval(level)

    def decide(self, claim: Claim, interval: Interval) -> str:
        """The outcome that an interval stands for."""
        null = claim.ratio or 0.0
        if interval.low is None or interval.high is None:
            return NOT_RESOLVED
        if interval.low > null:
            return REPLICATES
        return CONTRADICTS if interval.high < null else NOT_RESOLVED

    def veto(self, contrasts: Sequence[Contrast]) -> str:
        """What forbids to say "replicates" although the interval would."""
        return ""

    def detectable(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> float | None:
        """The smallest true effect that would be seen with 80 % power, as the interval counts."""
        contrast = contrasts[0]
        return minimum_detectable_effect(contrast.sd, contrast.n, level) if contrast.sd else None

    def needed(self, claim: Claim, contrasts: Sequence[Contrast], effect: float | None, level: float) -> int | None:
        """Seeds that show a true effect with 80 % power; without one, the effect of these contrasts."""
        contrast = contrasts[0]
        found = _mean(contrast) if effect is None else effect
        return self._at_least(seeds_needed(found, contrast.sd or 0.0, level, POWER))

    def _at_least(self, seeds: int | None) -> int | None:
        return None if seeds is None else max(self.fewest, seeds)


class Equal(Better):
    """a equals b within a margin: two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15,
    1987, 657-680), each at half the usual alpha, which is the same interval as everywhere.
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
        """Seeds that show equality where there is no difference at all: each one-sided test misses 10 % at most."""
        return seeds_needed(claim.margin or 0.0, contrasts[0].sd or 0.0, level, 1 - (1 - POWER) / 2)


class Ratio(Better):
    """a is at least x times as good as b: a / b where higher is better, b / a where lower is.

    Tested on the logarithm, where the quotient is a difference; mean and interval are those of the geometric mean over
    seeds, and the null value is x. Ours is a test of the ratio, where a published one is mostly a quotient of means.
    """

    def problem(self, values: Values) -> str:
        low = min((value for side in values for value in side.values()), default=1.0)
        return "" if low > 0 else f"a ratio needs values above 0, and there is {low:g}"

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
        """The smallest true ratio above x that would be seen."""
        found = super().detectable(claim, contrasts, level)
        return None if found is None else (claim.ratio or 1.0) * math.exp(found)

    def needed(self, claim: Claim, contrasts: Sequence[Contrast], effect: float | None, level: float) -> int | None:
        found = math.exp(_mean(contrasts[0])) if effect is None else effect
        return super().needed(claim, contrasts, math.log(found / (claim.ratio or 1.0)), level)


class Ordering(Better):
    """Each side is better than the next.

    An ordering is a conjunction, and all its steps have to be shown: the intersection-union test (Berger, Technometrics
    24, 1982, 295-300), each step at the full level, which needs no correction within the claim. Kendall's tau with the
    claimed order is told beside it and decides nothing: four sides of which two are truly equal have a tau well above
    0, and the two estimates stand in the claimed order every other time. The claim is contradicted when any step lies
    the other way, each at its share of the level (Bonferroni). Both together are an interval for the smallest step: its
    lower end is the lowest lower end of the steps, its upper end the lowest upper end at the shared level.
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
        means = [one.mean for one in wide if one.mean is not None]
        lows = [one.low for one in wide if one.low is not None]
        highs = [high for step in contrasts if (high := step.interval(shared).high) is not None]
        return Interval(min(means, default=None), min(lows, default=None), min(highs, default=None), wide[0].n, level)

    def detectable(self, claim: Claim, contrasts: Sequence[Contrast], level: float) -> float | None:
        """The step that, were all steps so large, would be seen in all of them with 80 % power or more."""
        sd, power = max(step.sd or 0.0 for step in contrasts), 1 - (1 - POWER) / len(contrasts)
        return minimum_detectable_effect(sd, contrasts[0].n, level, power) if sd else None

    def needed(self, claim: Claim, contrasts: Sequence[Contrast], effect: float | None, level: float) -> int | None:
        """Seeds that show every step; None where a step measured so far goes the other way."""
        means = [_mean(step) if effect is None else effect for step in contrasts]
        power = 1 - (1 - POWER) / len(contrasts)
        found = [
            seeds_needed(mean, step.sd or 0.0, level, power) if mean > 0 else None
            for mean, step in zip(means, contrasts, strict=True)
        ]
        return None if None in found else max(seeds for seeds in found if seeds is not None)


class Trend(Ordering):
    """The sides get better from the last to the first: the slope of each seed's values over their places.

    One summary a seed, then a t test of the summaries (Matthews, Altman, Campbell and Royston, British Medical Journal
    300, 1990, 230-235). Places count 1, 2, 3, whatever the values of the axis: list them so that steps are alike, as in
    doublings. A slope alone would call a curve with a peak a trend; so "replicates" asks too that no step's mean goes
    the other way. Weaker than an ordering, which asks that every step is shown.
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

    It says that the two differences differ, as where one is positive and the other negative; that they have opposite
    signs is more, and takes two claims of its own.
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
    tails are heavy or some runs fail, which is what such claims are about; distances from the mean, in up to 14 %.
    Simulated under equal spreads (normal, heavy-tailed, skewed, 15 % failed runs; correlation 0 to 0.9), this one
    rejects at 5 % in 0.3-1.2 % of cases with 5 seeds, in 3.0-4.8 % with 10, in 3.4-5.1 % with 20, and in up to 9 % with
    4: five seeds are asked for, and with five it sees next to nothing (of two medians with an odd number of seeds, one
    distance each is 0). With 20 seeds a threefold spread is seen in 97 % of cases. The effect is a difference of mean
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
    taus = (stats.kendalltau(claimed, [sign * side[seed] for side in values]).statistic for seed in sorted(values[0]))
    return [float(tau) for tau in taus if tau == tau]


def _mean(contrast: Contrast) -> float:
    return contrast.interval().mean or 0.0
