"""Positions of a step, drawn for each step: backpropagation through time of variable length.

Merity et al. 2018, section 4.1: with probability .95 a step has about L positions, else about L / 2; around that they
are normal with standard deviation 5. As in the released code numbers are cut down to whole ones, and at least 5. Here
they are at most L + 25, so that memory is known: one step in three million is longer there. Steps of equal length
would end rows at the same words in every pass.
"""

import math
from statistics import NormalDist

import numpy as np

from lightning_modules.draws import Draws

LEAST = 5  # positions
_FULL = 0.95  # share of steps around the usual length
_DEVIATION = 5.0
_FARTHEST = 25  # beyond the usual length


def longest(usual: int) -> int:
    """The most positions that a step can have."""
    return usual + _FARTHEST


def drawn(seed: int, usual: int, steps: int, multiple: int = 1) -> np.ndarray:
    """The positions of each of the first steps, a function of seed and step alone ``[steps]``.

    Args:
        usual: The usual length L.
        multiple: Lengths are rounded to the nearest multiple of it that a step can have; 1 changes nothing.
    """
    number = np.arange(steps, dtype=np.int64)
    draws = Draws(seed, number, number, np.zeros_like(number))
    choice, radius, angle = draws.uniform("length of a step", 3).T
    normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)  # Box and Muller 1958
    middle = np.where(choice < _FULL, usual, usual / 2)
    exact = np.clip(middle + _DEVIATION * normal, LEAST, longest(usual)).astype(np.int64)
    rounded = (exact + multiple // 2) // multiple * multiple
    return np.clip(rounded, multiple, longest(usual) // multiple * multiple)


def shares(usual: int) -> dict[int, float]:
    """The probability of each number of positions, all together 1."""
    most = longest(usual)
    found = dict.fromkeys(range(LEAST, most + 1), 0.0)
    for share, middle in ((_FULL, float(usual)), (1 - _FULL, usual / 2)):
        below = NormalDist(middle, _DEVIATION).cdf
        edges = [0.0, *(below(length) for length in range(LEAST + 1, most + 1)), 1.0]
        for length in found:
            place = length - LEAST
            found[length] += share * (edges[place + 1] - edges[place])
    assert math.isclose(sum(found.values()), 1.0)
    return found
