"""What an estimate can show: power, detectable effects, and the power of a test of equality.

An estimate has a standard error and degrees of freedom; the true standard error is taken as known, as in a plan. Exact
for a normal value with an independent chi-squared variance, by the noncentral t distribution.
"""

import math
from functools import cache
from typing import cast

import numpy as np

from ablations.core.statistics import LEVEL, POWER

_NODES = 400


def power(effect: float, error: float, df: float, level: float = LEVEL) -> float:
    """The chance that an interval excludes 0 although the true value is ``effect``.

    Args:
        error: Its standard error, above 0, in the same unit.
        df: Degrees of freedom of the error; may be infinite.
    """
    from scipy import stats  # half a second to import

    bound, shift = float(stats.t.ppf((1 + level) / 2, df)), abs(effect) / error
    if math.isinf(df):
        return float(stats.norm.sf(bound - shift) + stats.norm.sf(bound + shift))
    # the far tail by its mirror image: SciPy's lower tail is NaN for large shifts
    return float(stats.nct.sf(bound, df, shift) + stats.nct.sf(bound, df, -shift))


def detectable(error: float, df: float, level: float = LEVEL, target: float = POWER) -> float:
    """The smallest true value whose interval excludes 0 with the target power, in the unit of ``error``."""
    return error * _standardised(df, level, target)


@cache  # the claims of a grid share few degrees of freedom and levels
def _standardised(df: float, level: float, target: float) -> float:
    from scipy import optimize

    high = 1.0
    while power(high, 1.0, df, level) < target:
        high *= 2
    root = optimize.brentq(lambda effect: power(effect, 1.0, df, level) - target, 0.0, high, xtol=1e-13)
    return cast(float, root)  # a tuple only with full_output


def equality_power(margin: float, error: float, df: float, level: float = LEVEL) -> float:
    """The chance that the whole interval lies within the margins of 0 when the true value is 0.

    The interval is the one that decides everything else (two one-sided tests at half of the remaining alpha each). The
    chance given an estimated error is a normal one; it is averaged over the error's chi-squared distribution.

    >>> [round(equality_power(0.02, sd / 2, 70, 0.997), 2) for sd in (0.009, 0.012, 0.015)]
    [0.82, 0.22, 0.01]
    """
    from scipy import stats  # half a second to import

    if error == 0:
        return 1.0
    bound = float(stats.t.ppf((1 + level) / 2, df))
    if math.isinf(df):
        reach = np.array([margin / error - bound])
    else:
        quantiles, _ = _legendre()
        reach = margin / error - bound * np.sqrt(stats.chi2.ppf(quantiles, df) / df)
    chance = np.maximum(2 * stats.norm.cdf(reach) - 1, 0.0)
    return float(chance[0]) if math.isinf(df) else float(_legendre()[1] @ chance)


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2
