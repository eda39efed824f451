"""Means over seeds with their intervals.

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

    @property
    def ends(self) -> tuple[float | None, float | None, float | None]:
        """The mean and both ends."""
        return self.mean, self.low, self.high


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
