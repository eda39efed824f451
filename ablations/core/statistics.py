"""Means over seeds, contrasts paired by seed, corrections for many claims, power and detectable effects.

Pure functions of numbers, independent of grids. The *level* of an interval is its coverage (0.95); *alpha* is the rest
(0.05).
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np
from scipy import optimize, stats

LEVEL = 0.95
POWER = 0.8
MOST_SEEDS = 1000
RANK_TEST_PAIRS = 6  # the smallest two-sided p of five signed ranks is 2 / 2**5 = 0.0625: never below 0.05


@dataclass(frozen=True)
class Interval:
    """A mean with its t interval. ``low`` and ``high`` are None if ``n`` is too small for one."""

    mean: float | None
    low: float | None
    high: float | None
    n: int
    level: float = LEVEL

    @property
    def half(self) -> float | None:
        """Half the width, in the unit of the mean."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Contrast:
    """The mean of ``a - b`` over common seeds, in the unit of the metric.

    Attributes:
        seeds: The seeds of both sides, in order.
        differences: ``a - b``, one per seed.
        alone: Seeds of only one side, which are excluded.
    """

    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    alone: tuple[int, ...] = field(default=())

    @property
    def n(self) -> int:
        """The number of pairs."""
        return len(self.seeds)

    @property
    def sd(self) -> float | None:
        """The standard deviation of the differences (n - 1 below the line), None for fewer than two pairs."""
        return None if self.n < 2 else _spread(self.differences)

    def interval(self, level: float = LEVEL) -> Interval:
        """The t interval of the mean difference."""
        return mean_interval(self.differences, level)

    @property
    def p(self) -> float | None:
        """Two-sided p of the paired t test, None for fewer than two pairs; see :func:`tail`."""
        return None if self.n < 2 else min(1.0, 2 * min(self.tail(0.0), self.tail(0.0, below=True)))

    def tail(self, bound: float, *, below: bool = False) -> float:
        """One-sided p against "the mean is at most ``bound``" (at least, where ``below``).

        Without any spread the mean is known exactly: 0 on the asked side of the bound, else 1 (1/2 on the bound,
        so that two tails make 1).
        """
        gap = (bound - float(np.mean(self.differences))) if below else (float(np.mean(self.differences)) - bound)
        sd = self.sd or 0.0
        if sd == 0.0:
            return 0.5 if gap == 0 else float(gap < 0)
        return float(stats.t.sf(gap * math.sqrt(self.n) / sd, self.n - 1))

    @property
    def rank_p(self) -> float | None:
        """Two-sided exact p of Wilcoxon's signed-rank test; None below six pairs, where it cannot reach 0.05."""
        if self.n < RANK_TEST_PAIRS or not any(self.differences):
            return None
        return float(cast(Any, stats.wilcoxon(self.differences)).pvalue)


def _spread(values: Sequence[float]) -> float:
    """Standard deviation (n - 1); exactly 0 if the values differ only by rounding."""
    sd = float(np.std(values, ddof=1))
    return 0.0 if sd <= 1e-12 * max(map(abs, values)) else sd


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's t interval of the mean; n = 1 has a mean but no interval, n = 0 neither.

    >>> interval = mean_interval([1.0, 2.0, 3.0])
    >>> round(interval.mean, 3), round(interval.half, 3), interval.n
    (2.0, 2.484, 3)
    """
    n = len(values)
    if n == 0:
        return Interval(None, None, None, 0, level)
    mean = float(np.mean(values))
    if n == 1:
        return Interval(mean, None, None, 1, level)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * _spread(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, level)


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> Contrast:
    """Pairs two sides by seed; seeds of only one side are excluded and listed in ``alone``.

    >>> contrast = paired({0: 3.0, 1: 3.5, 2: 9.0}, {0: 2.0, 1: 2.0})
    >>> contrast.seeds, contrast.differences, contrast.alone
    ((0, 1), (1.0, 1.5), (2,))
    """
    common = tuple(sorted(a.keys() & b.keys()))
    return Contrast(common, tuple(a[seed] - b[seed] for seed in common), tuple(sorted(a.keys() ^ b.keys())))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given (Scandinavian Journal of Statistics 6, 1979, 65-70).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order, adjusted, largest = np.argsort(p, kind="stable"), [0.0] * len(p), 0.0
    for step, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - step) * p[index]))
        adjusted[index] = largest
    return adjusted


def holm_levels(p: Sequence[float], level: float = LEVEL) -> list[float]:
    """The coverage at which each contrast's interval decides exactly as Holm's test does.

    Step k of m compares its p value with alpha / (m - k + 1), and the first failure stops the procedure. So a rejected
    contrast's interval has the alpha of its own step, and every contrast from the first failure on has the alpha of
    that step: an interval excludes the null value exactly where Holm rejects (Serlin, Journal of Experimental Education
    61, 1993, 350-360).

    They guarantee: over all contrasts whose true effect is null, the chance that any interval misses it is at most
    alpha, and each interval alone covers at least ``level``. They are narrower than Bonferroni's (alpha / m for all),
    which guarantee joint coverage of the non-null effects too.

    >>> [round(1 - level, 4) for level in holm_levels([0.001, 0.2, 0.03])]
    [0.0167, 0.025, 0.025]
    """
    order, levels, alpha, stopped = np.argsort(p, kind="stable"), [level] * len(p), 1 - level, False
    for step, index in enumerate(order):
        at_step = (1 - level) / (len(p) - step)
        alpha = alpha if stopped else at_step
        stopped = stopped or p[index] >= at_step
        levels[index] = 1 - alpha
    return levels


def paired_power(effect: float, sd: float, n: int, level: float = LEVEL) -> float:
    """The power of a two-sided paired t test of ``n`` pairs to detect a true mean difference.

    Exact, by the noncentral t distribution; at five seeds the normal approximation is off by a third.

    Args:
        effect: The true mean difference.
        sd: Standard deviation of the differences, above 0, in the same unit.
        n: Pairs, at least 2.
        level: Coverage of the interval that must exclude 0.
    """
    bound, shift = stats.t.ppf((1 + level) / 2, n - 1), abs(effect) * math.sqrt(n) / sd
    # the far tail by its mirror image: SciPy's lower tail is NaN for large shifts
    return float(stats.nct.sf(bound, n - 1, shift) + stats.nct.sf(bound, n - 1, -shift))


def minimum_detectable_effect(sd: float, n: int, level: float = LEVEL, power: float = POWER) -> float | None:
    """The smallest true difference that ``n`` pairs detect with the given power, in the unit of ``sd``.

    None for fewer than two pairs. With ``sd`` 1 the unit is standard deviations of the difference, as in a plan.

    >>> round(minimum_detectable_effect(1.0, 5), 3), minimum_detectable_effect(1.0, 1)
    (1.682, None)
    """
    if n < 2:
        return None
    return sd * _standardised_effect(n, level, power) if sd else 0.0


@cache  # the contrasts of a grid share few numbers of seeds and levels
def _standardised_effect(n: int, level: float, power: float) -> float:
    high = 1.0
    while paired_power(high, 1.0, n, level) < power:
        high *= 2
    root = optimize.brentq(lambda effect: paired_power(effect, 1.0, n, level) - power, 0.0, high, xtol=1e-13)
    return cast(float, root)  # a tuple only with full_output


def seeds_needed(
    effect: float, sd: float, level: float = LEVEL, power: float = POWER, most: int = MOST_SEEDS
) -> int | None:
    """The smallest number of seeds with which a two-sided paired t test detects a true mean difference.

    Exact, by bisection over :func:`paired_power`, which grows with the number of pairs. ``sd`` comes from a pilot and
    is uncertain: that of five pairs may be off by a factor of two (95 % interval 0.6 to 2.9 times).

    Args:
        effect: The true mean difference to detect.
        sd: Standard deviation of the differences between paired seeds, not negative, in the same unit.
        level: Coverage of the interval that must exclude 0.
        power: The target power, between 0 and 1.
        most: The largest number to consider.

    Returns:
        At least 2; None if ``most`` seeds are not enough, as for an effect of 0.

    Raises:
        ValueError: For an ``effect`` or ``sd`` that is not finite, or an ``sd`` below 0.

    >>> seeds_needed(0.1, 0.1), seeds_needed(0.1, 0.05), seeds_needed(0.0, 0.1)
    (10, 5, None)
    """
    if not (math.isfinite(effect) and math.isfinite(sd) and sd >= 0):
        raise ValueError(f"effect {effect!r} and sd {sd!r}: both must be finite, with sd >= 0")
    if effect == 0:
        return None
    if sd == 0:
        return 2
    # bisect_left over False ... False, True ... True
    seeds = bisect_left(range(2, most + 1), True, key=lambda n: paired_power(effect, sd, n, level) >= power) + 2
    return seeds if seeds <= most else None
