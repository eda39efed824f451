"""ALBERT's n-grams of whole words (Lan et al. 2020, section 4.1, and the released code)."""

from typing import Literal

import numpy as np

from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing.text import Text, spread
from lightning_modules.objectives.choosing.units import Units
from lightning_modules.objectives.choosing.whole_words import shuffled


class NGrams(Units):
    """Runs of n words with p(n) ~ 1/n, from words in random order (ALBERT).

    One that does not fit the budget is tried shorter; one that meets a hidden word is left out, not cut. Near the end
    of a text, only lengths that fit are drawn. Unlike in the released code none crosses a special piece. Rates do not
    nest: what did not fit at a low rate may fit at a higher one, and be in the way of others.
    """

    kind: Literal["ngrams"] = knob("ngrams", "")
    longest: int = knob(3, "Most words of an n-gram.", ge=1, le=32)

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each n-gram, a group."""
        words, columns = text.words, text.candidates.shape[1]
        row = np.arange(len(budget))
        order, lengths = shuffled(words, draws, columns), self._lengths(text, draws)
        pieces = self._pieces(text)
        group = np.full((len(row), words.first.shape[1] + self.longest), -1)
        within, rest = np.arange(self.longest), budget.copy()
        for column in range(order.shape[1]):
            word = order[:, column]
            fits = (pieces[row, word] <= rest[:, None]) & (within < lengths[row, word][:, None])
            place = word[:, None] + within
            taken = fits & ~((group[row[:, None], place] >= 0) & fits).any(1, keepdims=True)
            chosen, nth = np.nonzero(taken)
            group[chosen, place[chosen, nth]] = words.first[chosen, word[chosen]]
            count = taken.sum(1)
            rest -= np.where(count > 0, pieces[row, word, np.maximum(count, 1) - 1], 0)
            if not rest.any():
                break
        return spread(words, group, text.candidates)

    def _lengths(self, text: Text, draws: Draws) -> np.ndarray:
        """The number of words drawn for the n-gram at each word ``[b w]``; 0 where a row has fewer words."""
        words, columns = text.words, text.candidates.shape[1]
        possible = np.where(words.size > 0, np.minimum(words.following, self.longest), 0)
        weights = np.cumsum(1.0 / np.arange(1, self.longest + 1))
        row = np.arange(len(possible))[:, None]
        uniform = draws.uniform("length", columns)[row, np.minimum(words.first, columns - 1)]
        drawn = 1 + np.searchsorted(weights, uniform * weights[np.maximum(possible, 1) - 1], side="right")
        return np.minimum(drawn, possible)

    def _pieces(self, text: Text) -> np.ndarray:
        """The number of pieces of the first 1, 2 ... words from each word on ``[b w longest]``."""
        words = text.words
        count = words.first.shape[1]
        last = np.minimum(np.arange(count)[:, None] + np.arange(self.longest), count - 1)
        return words.end[:, last] - words.first[:, :, None]
