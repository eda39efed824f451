"""XLNet's spans, spread evenly over a text (Yang et al. 2019, section 3.1, and the released code)."""

from typing import Literal

import numpy as np

from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.choosing.pieces import smallest
from lightning_modules.objectives.choosing.text import Text
from lightning_modules.objectives.choosing.units import Units


class SpreadSpans(Units):
    """Spans of n pieces with p(n) ~ 1/n, each in a context of its own, from the left to the right of the text (XLNet).

    The context of a span of n pieces is n pieces for each one that is hidden, if one in so many is: 6 n at a rate of
    1/6. A random part of it comes before the span, which begins at the next beginning of a word, and the rest after it.
    Since a span is no part of its context, the text ends before the budget, and single pieces at random fill it. Spans
    are cut where the budget or a text ends; the released code leaves out one that meets the end. It means to count
    words, and counts pieces.
    """

    kind: Literal["spread_spans"] = knob("spread_spans", "")
    longest: int = knob(5, "Most pieces, or words, of a span.", ge=1, le=512)
    counted: Literal["pieces", "words"] = knob(
        "pieces", "What the length of a span counts: pieces, as XLNet's released code does, or words, as it means to."
    )

    def choose(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """Each span, and each single piece, a group."""
        group = self.placed(text, budget, draws)
        column = np.arange(group.shape[1])
        left = text.candidates & (group < 0)
        single = smallest(left, draws.uniform("choose", len(column)), budget - (group >= 0).sum(1))
        return np.where(single, column, group)

    def placed(self, text: Text, budget: np.ndarray, draws: Draws) -> np.ndarray:
        """The spans alone, without the single pieces that fill the budget: the group of each position ``[b t]``."""
        line, columns = _Line(text), text.candidates.shape[1]
        lengths, offsets = (draws.uniform(purpose, columns) for purpose in ("length", "offset"))
        weights = np.cumsum(1.0 / np.arange(1, self.longest + 1))
        each = line.size / np.maximum(budget, 1)  # pieces for each that is hidden
        group = np.full_like(line.place, -1)
        at, rest = np.zeros_like(budget), np.where(line.size > 0, budget, 0)
        for number in range(columns):
            drawn = 1 + np.searchsorted(weights, lengths[:, number] * weights[-1], side="right")
            size = np.minimum(np.minimum(drawn, self.longest), rest)
            around = np.floor(size * each).astype(np.int64)
            before = (offsets[:, number] * around).astype(np.int64)
            start = line.word_from(at + before)
            end = np.minimum(line.after(start, size, words=self.counted == "words"), start + rest)
            line.mark(group, start, end)
            rest = np.where(start < line.size, rest - (end - start), 0)
            at = end + around - before
            if not rest.any():
                break
        return group


class _Line:
    """The positions of each row that may be hidden, numbered without gaps.

    Attributes:
        place: The position of each number ``[b t]``.
        size: How many there are ``[b]``.
    """

    def __init__(self, text: Text) -> None:
        candidates, self.words = text.candidates, text.words
        self._row, self._column = np.arange(len(candidates)), np.arange(candidates.shape[1])
        self.place, self.size = np.argsort(~candidates, axis=1, kind="stable"), candidates.sum(1)
        self._number = np.cumsum(candidates, axis=1) - 1
        inside = self._column < self.size[:, None]
        begins = np.take_along_axis(text.begins, self.place, axis=1) & inside
        parted = inside.copy()
        parted[:, 1:] &= np.diff(self.place, axis=1) > 1
        self._word, self._end = (self._next(where) for where in (begins, parted))

    def _next(self, where: np.ndarray) -> np.ndarray:
        """The first number from each one on at which something is; the size of the row if there is none."""
        found = np.where(where, self._column, self.size[:, None])
        return np.minimum.accumulate(found[:, ::-1], axis=1)[:, ::-1]

    def word_from(self, number: np.ndarray) -> np.ndarray:
        """The first beginning of a word from each row's number on; its size where there is none."""
        found = self._word[self._row, np.minimum(number, len(self._column) - 1)]
        return np.where(number < self.size, found, self.size)

    def after(self, start: np.ndarray, count: np.ndarray, *, words: bool) -> np.ndarray:
        """The number after so many pieces, or words, from the beginning of a word on, in the same text."""
        start = np.minimum(start, len(self._column) - 1)
        if words:
            word = np.maximum(self.words.number[self._row, self.place[self._row, start]], 0)
            last = word + np.minimum(count, self.words.following[self._row, word]) - 1
            return self._number[self._row, self.words.end[self._row, np.maximum(last, 0)] - 1] + 1
        following = np.minimum(start + 1, len(self._column) - 1)
        end = np.where(start + 1 < self.size, self._end[self._row, following], self.size)
        return np.minimum(start + count, end)

    def mark(self, group: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """Gives the positions from ``start`` to ``end`` of each row a group, in place."""
        inside = (self._column >= start[:, None]) & (self._column < np.minimum(end, self.size)[:, None])
        row, number = np.nonzero(inside)
        group[row, self.place[row, number]] = self.place[row, start[row]]
