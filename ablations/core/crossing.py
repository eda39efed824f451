"""Curves of held-out loss aligned by their *crossing*, the tokens at which a loss passes a bar.

Two curves that differ by a stretch of time alone, ``b(t) = a(t / s)``, are one curve at equal multiples of their own
crossing. Their difference there, the *aligned* effect, is 0, whatever it is at equal tokens: one is faster, not better.

The reverse does not follow. Where a loss falls by as much with every doubling of tokens, a constant offset is a stretch
of time too, and near the crossing all curves meet. So an aligned effect is compared with what a constant offset of the
same size would leave (`left_by_offset`). *Speed* has to be distinguished from it (`is_speed`).

Curves are functions of the logarithm of tokens, linear between the measured points and unknown beyond them. Functions
take many at once: losses ``[..., points]`` on common logarithms ``[points]``, which ascend.
"""

from typing import Any, NamedTuple

import numpy as np

EARLIER = 5 / 6  # of a training or a multiple: later the falling learning rate flattens every curve
QUARTER = 0.25  # of the effect at equal tokens: as much may be left of it where the difference is one of speed
_ROUNDING = 1e-9  # of a logarithm

Floats = Any  # a number or an array of them


class Crossings(NamedTuple):
    """Where curves pass a bar, each ``[...]``, in the unit of the logarithms.

    Attributes:
        at: Between two points, by linear interpolation; NaN where it is not known (censored).
        low, high: The points on either side; infinite where there is none: a curve that begins below the bar passed it
            before its first point, one that ends above it will pass after its last, or never.
    """

    at: np.ndarray
    low: np.ndarray
    high: np.ndarray


def crossings(x: np.ndarray, losses: np.ndarray, bar: Floats) -> Crossings:
    """The first place of each curve at or below a bar ``[...]``.

    >>> found = crossings(np.array([0.0, 1.0, 2.0]), np.array([5.0, 4.0, 3.5]), 4.5)
    >>> float(found.at), float(found.low), float(found.high)
    (0.5, 0.0, 1.0)
    """
    bar = np.asarray(bar, dtype=float)[..., None]
    below = losses <= bar
    has_passed, place = below.any(axis=-1), below.argmax(axis=-1)
    is_between = has_passed & (place > 0)
    right = np.where(is_between, place, 1)
    before, after = _both(losses, right)
    left, width = x[right - 1], x[right] - x[right - 1]
    fall = np.where(is_between, before - after, 1.0)
    at = np.where(is_between, left + width * (before - bar[..., 0]) / fall, np.nan)
    low = np.where(has_passed, np.where(place > 0, left, -np.inf), x[-1])
    high = np.where(has_passed, np.where(place > 0, x[right], x[0]), np.inf)
    return Crossings(at, low, high)


def values_at(x: np.ndarray, losses: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The losses ``[...]`` at one place of each curve, NaN beyond its points and where the place is NaN."""
    inside = (at >= x[0] - _ROUNDING) & (at <= x[-1] + _ROUNDING)
    places = np.where(inside, at, x[0])
    right = np.clip(np.searchsorted(x, places), 1, len(x) - 1)
    before, after = _both(losses, right)
    share = (places - x[right - 1]) / (x[right] - x[right - 1])
    return np.where(inside, before + (after - before) * share, np.nan)


def _both(losses: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The losses at the points left and right of one place of each curve."""
    before, after = (np.take_along_axis(losses, place[..., None], axis=-1) for place in (right - 1, right))
    return before[..., 0], after[..., 0]


def aligned(x: np.ndarray, losses: np.ndarray, bar: Floats, axes: tuple[int, ...] = (-1,)) -> np.ndarray:
    """The losses ``[...]`` at the largest multiple of their own crossing that all curves along ``axes`` reach.

    NaN for all of them where one does not pass the bar.
    """
    at = crossings(x, losses, bar).at
    return values_at(x, losses, at + (x[-1] - at).min(axis=axes, keepdims=True))


def left_by_offset(x: np.ndarray, losses: np.ndarray, offsets: np.ndarray, weights: np.ndarray, bar: float) -> Floats:
    """What is left of a contrast at equal multiples of the crossing, if its sides differ by constants alone ``[...]``.

    Args:
        x: Logarithms of tokens ``[points]``.
        losses: The curves of one side ``[..., runs, points]``, of which all sides have the form.
        offsets: By how much each side lies above it ``[..., sides]``.
        weights: Of the sides in the contrast ``[sides]``.
        bar: The loss that is passed.

    Returns:
        NaN where a curve does not pass the bar.
    """
    lifted = losses[..., None, :, :] + offsets[..., :, None, None]
    return (aligned(x, lifted, bar, axes=(-2, -1)).mean(axis=-1) * weights).sum(axis=-1)


def is_quality(low: Floats, high: Floats, effect: Floats) -> Floats:
    """Whether an interval of the aligned effect excludes 0, on the side of the effect at equal tokens."""
    return np.where(np.asarray(effect) < 0, np.asarray(high) < 0, (np.asarray(low) > 0) & (np.asarray(effect) > 0))


def is_speed(low: Floats, high: Floats, effect: Floats, left: Floats, margin: float) -> Floats:
    """Whether an interval of the aligned effect shows that a difference is one of speed.

    It lies within the margin or a quarter of the effect at equal tokens, whichever is larger, and it excludes what a
    constant offset would leave, on the side of 0. Without the second condition a constant offset would be called speed
    in up to two thirds of grids (`benchmarks/simulation`).
    """
    sign = np.where(np.asarray(effect) < 0, -1.0, 1.0)
    near, far = np.minimum(sign * low, sign * high), np.maximum(sign * low, sign * high)
    band = np.maximum(margin, QUARTER * np.abs(effect))
    return (near > -band) & (far < band) & (far < sign * left)


def nearest(left: np.ndarray, effect: Floats) -> np.ndarray:
    """The least in the direction of an effect ``[...]`` of what several forms of curve would leave ``[forms, ...]``."""
    sign = np.where(np.asarray(effect) < 0, -1.0, 1.0)
    return sign * np.fmin.reduce(sign * left, axis=0)
