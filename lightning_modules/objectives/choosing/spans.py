"""SpanBERT's spans of geometric length (Joshi et al. 2020, section 3.1, and the released code)."""

from typing import ClassVar, Literal

import numpy as np

from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing.text import Text, runs
from lightning_modules.objectives.choosing.units import Units


class Spans(Units):
    """Spans of whole words whose number is geometric, cut off and renormalised (SpanBERT).

    Again and again, a piece that is still visible is drawn; a span begins where its word begins, and may run over
    hidden words up to the end of the text. The last span is cut where the budget ends, within a word if need be. Spans
    that overlap or touch are one group. With ``longest: 1`` these are whole words, in SpanBERT's way. Lower rates hide
    subsets.
    """

    spans: ClassVar[bool] = True

    kind: Literal["spans"] = knob("spans", "")
    p: float = knob(0.2, "Parameter of the geometric distribution of the words of a span.", gt=0, le=1)
    longest: int = knob(10, "Most words of a span, before spans that touch are joined.", ge=1, le=512)

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each run of hidden positions, a group."""
        columns = text.candidates.shape[1]
        spans = Anchored(text, self.lengths(draws.uniform("length", columns)), draws)
        hidden, rest = np.zeros_like(text.candidates), budget.copy()
        while rest.any():
            rest -= hide(hidden, *spans.next(hidden), rest)
        return runs(hidden)

    def lengths(self, uniform: np.ndarray) -> np.ndarray:
        """Words of spans from uniform numbers, by the inverse of the cut distribution function."""
        shares = self.shares()
        return 1 + np.minimum(np.searchsorted(np.cumsum(shares), uniform, side="right"), self.longest - 1)

    def shares(self) -> np.ndarray:
        """Probability of 1, 2 ... words."""
        shares = self.p * (1 - self.p) ** np.arange(self.longest)
        return shares / shares.sum()


class Anchored:
    """The spans that begin at the words of pieces in random order.

    Args:
        lengths: Number of words of the span drawn at each piece ``[b t]``.
    """

    def __init__(self, text: Text, lengths: np.ndarray, draws: Draws) -> None:
        words, columns = text.words, text.candidates.shape[1]
        self._row = np.arange(len(lengths))
        row = self._row[:, None]
        uniform = np.where(text.candidates, draws.uniform("choose", columns), 2.0)
        self._order = np.argsort(uniform, axis=1)
        self._left = np.take_along_axis(text.candidates, self._order, axis=1)
        word = np.maximum(words.number, 0)
        last = np.minimum(word + np.minimum(lengths, words.following[row, word]), words.first.shape[1]) - 1
        self._start = words.first[row, word]
        self._end = words.end[row, last]

    def next(self, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and end ``[b]`` of each row's next span, whose anchor is still visible; empty where all is hidden."""
        self._left &= ~np.take_along_axis(hidden, self._order, axis=1)
        at = self._left.argmax(1)
        anchor = self._order[self._row, at]
        some = self._left[self._row, at]
        return self._start[self._row, anchor], np.where(some, self._end[self._row, anchor], 0)


def hide(hidden: np.ndarray, start: np.ndarray, end: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Hides one stretch of each row, in place, as far as the rest of the budget goes; returns how many were new."""
    column = np.arange(hidden.shape[1])
    new = ~hidden & (column >= start[:, None]) & (column < end[:, None])
    new &= np.cumsum(new, axis=1) <= rest[:, None]
    hidden |= new
    return new.sum(1)
