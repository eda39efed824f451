"""Whole words, and the ends of words."""

from typing import Literal

import numpy as np

from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing.text import Stretches, Text, spread
from lightning_modules.objectives.choosing.units import Units


class WholeWords(Units):
    """Whole words, in random order; one that would exceed the budget is skipped (BERT's later release).

    A lower rate chooses a subset of the words of a higher one up to the first word that did not fit.
    """

    kind: Literal["whole_words"] = knob("whole_words", "")

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each hidden word, a group."""
        return filled(text.words, text.candidates, budget, draws)


class Bionic(Units):
    """The ends of words: first pieces stay, and those after them are hidden, of words in random order.

    What would exceed the budget is skipped. Where fewer pieces continue a word than the budget holds, all are hidden.
    """

    kind: Literal["bionic"] = knob("bionic", "")

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """The hidden end of each word, a group."""
        ends = text.candidates & ~text.begins
        begins = ends.copy()
        begins[:, 1:] &= text.begins[:, :-1]
        return filled(Stretches.of(ends, begins), ends, budget, draws)


def filled(stretches: Stretches, members: np.ndarray, budget: np.ndarray, draws: Draws) -> np.ndarray:
    """Groups of whole stretches in random order, each taken if it fits what is left of the budget ``[b t]``."""
    rows = np.arange(len(members))[:, None]
    order = shuffled(stretches, draws, members.shape[1])
    size = stretches.size[rows, order]
    taken = np.zeros_like(stretches.size, dtype=bool)
    rest = budget.copy()
    for column in range(size.shape[1]):
        fits = (size[:, column] > 0) & (size[:, column] <= rest)
        taken[rows[:, 0], order[:, column]] = fits
        rest -= size[:, column] * fits
        if not rest.any():
            break
    return spread(stretches, np.where(taken, stretches.first, -1), members)


def shuffled(stretches: Stretches, draws: Draws, columns: int) -> np.ndarray:
    """The numbers of each row's stretches in random order, by the number drawn at their first positions ``[b w]``."""
    rows = np.arange(len(stretches.first))[:, None]
    uniform = draws.uniform("choose", columns)[rows, np.minimum(stretches.first, columns - 1)]
    return np.argsort(np.where(stretches.size > 0, uniform, 2.0), axis=1)
