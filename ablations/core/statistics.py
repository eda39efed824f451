"""Means over seeds with their intervals, and Holm's correction for many claims at one look.

Pure functions of numbers, independent of grids. The *level* of an interval is its coverage (0.95); *alpha* is the rest
(0.05).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
POWER = 0.8


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
    from scipy import stats  # half a second to import

    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * _spread(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, level)


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
