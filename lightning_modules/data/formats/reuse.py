"""Streams of which each step reads the rest of a row again (Yang et al. 2019, XLNet: released ``data_utils.py``).

A window of L positions begins every R of them, the reuse length. Its first R positions go on: they fill the memory, see
each other alone, and the next window begins behind them. The rest is read once more as the first part of later windows.
It is the text that follows, or a pair ``A [SEP] B [SEP] [CLS]`` whose A is that text::

    step 1    [ reused | rest          ]
    step 2             [ reused | rest          ]

A of a pair ends where a sentence does, at random. B is what follows A (label 0), or as much text from a random place,
grown to whole sentences (label 1); with a single sentence in reach it is always the latter. Both are cut at their ends,
the longer one first, so that every row is full. In rows that go on to the left all this is turned around. There B is to
the left of A, and the first R positions to be read are the last of the row.

Pairs are drawn once, the same for all seeds; the released code draws them once a pass of its making.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
import torch

from lightning_modules.batch import SegmentState, Tokens
from lightning_modules.data.formats.pairs import SPECIALS
from lightning_modules.data.formats.stream import Stream
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import Draws

Rest = Literal["text", "pair"]  # what is behind the positions that go on
_SEED = 0


@dataclass(frozen=True, eq=False)
class ReusedStream(Stream):
    """The windows of a text, of which the first positions go on.

    Attributes:
        reuse: How many positions of a window go on.
        rest: What is behind them.
    """

    goes_on: ClassVar[bool] = True

    reuse: int
    rest: Rest

    @classmethod
    def of_whole(cls, store: TokenStore, length: int, ends: bool, reuse: int, rest: Rest) -> Self:
        """The text of a store in as many windows as fit."""
        text = Stream.whole(store, length, ends)
        edges = np.arange(max(0, (text.tokens - length) // reuse + 1) + 1) * reuse
        bounds = edges - np.searchsorted(text.ends, edges, side="left")
        return cls(store, bounds, length, edges, text.ends, reuse, rest)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions of each window: all are full."""
        return np.full(len(self), self.length)

    def needed(self, rows: int) -> int:
        """See `Stream.needed`."""
        return (rows - 1) * self.reuse + self.length

    def batch(self, indices: np.ndarray, length: int | None = None, context: int = 0) -> Tokens:
        """The windows with these numbers, as rows ``[b t]`` that go on to the right, by themselves."""
        return self._rows(np.asarray(indices, dtype=np.int64), np.zeros(len(indices), dtype=bool))

    def going(self, indices: np.ndarray, going: SegmentState) -> Tokens:
        """See `Stream.going`."""
        indices = np.asarray(indices, dtype=np.int64)
        back = np.zeros(len(indices), dtype=bool) if going.backward is None else going.backward.numpy()
        return replace(self._rows(indices, back), segment_state=replace(going, reuse=self.reuse))

    def _rows(self, indices: np.ndarray, back: np.ndarray) -> Tokens:
        """Windows as rows in the order of the text, each gone through to the right, or back."""
        start = indices * self.reuse
        place = start[:, None] + np.arange(self.length)
        if self.rest == "text":
            return self._shown(indices, place, {})
        first = np.where(back, self.tokens - start - self.length, start)
        follows = np.zeros(len(indices), dtype=bool)
        segment = np.zeros_like(place)
        for backward in (False, True):
            (rows,) = np.nonzero(back == backward)
            read, follows[rows], segment[rows] = self._paired(indices[rows], first[rows], backward)
            # what is read from the end of the text is turned around
            place[rows] = np.where(read < 0, read, self.tokens - 1 - read)[:, ::-1] if backward else read
            segment[rows] = segment[rows][:, ::-1] if backward else segment[rows]
        labels = {"sentence": torch.from_numpy(1 - follows.astype(np.int64))}
        cls = torch.from_numpy(np.where(back, 0, self.length - 1))
        return replace(self._shown(indices, place, labels), tables={"segment": torch.from_numpy(segment)}, cls=cls)

    def _shown(self, indices: np.ndarray, place: np.ndarray, labels: dict[str, torch.Tensor]) -> Tokens:
        """Rows of places of the text. -1 represents [SEP], and -2 [CLS]."""
        ids, end, source = self.at(np.maximum(place, 0))
        vocabulary, own = self.store.vocabulary, place >= 0
        ids[place == -1], ids[place == -2], end[~own] = vocabulary.sep, vocabulary.cls, False
        return Tokens.of(
            ids,
            end | ~own,
            np.ones(ids.shape, dtype=bool),
            indices,
            {"segment": np.zeros(ids.shape, dtype=np.int64)},
            labels=labels,
            marks=self.store.marks_at(source, own & ~end),
            ends=torch.from_numpy(end) if len(self.ends) else None,
        )

    @cached_property
    def _sentences(self) -> np.ndarray:
        """Where sentences begin, in the text with its ends of documents, and its end."""
        starts = np.unique(self.store.sentences)
        return starts + np.searchsorted(self.ends - np.arange(len(self.ends)), starts, side="right")

    def _paired(
        self, number: np.ndarray, start: np.ndarray, backward: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Windows with pairs, in the text or in the text turned around.

        Args:
            number: Of each window ``[b]``.
            start: Its first place as it is read ``[b]``.
            backward: Whether places are counted from the end of the text.

        Returns:
            Places, -1 for [SEP] and -2 for [CLS] ``[b t]``; whether B follows A ``[b]``; segments ``[b t]``.
        """
        sentences = self.tokens - self._sentences[::-1] if backward else self._sentences
        draws = Draws(_SEED, number, number, np.zeros_like(number), "reuse back" if backward else "reuse")
        room = self.length - self.reuse - SPECIALS
        a_start = start + self.reuse
        a_end, b_start, b_end, follows = _segments(a_start, room, sentences, draws)
        middle = (self.reuse + _left(a_end - a_start, b_end - b_start, room))[:, None]
        column = np.arange(self.length)
        second = b_start[:, None] + column - middle - 1
        place = np.where(column < middle, start[:, None] + column, second)
        place[(column == middle) | (column == self.length - 2)] = -1
        place[:, -1] = -2
        segment = np.where(column == self.length - 1, 2, (column > middle).astype(np.int64))
        return place, follows, segment


def _segments(
    a_start: np.ndarray, room: int, sentences: np.ndarray, draws: Draws
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The end of A, both ends of B, and whether B follows A ``[b]``; together they fill the room."""
    first, last = np.searchsorted(sentences, a_start, side="right"), np.searchsorted(sentences, a_start + room)
    inside = last - first  # sentences that end within the room
    end = sentences[np.minimum(last, len(sentences) - 1)]
    chance = draws.uniform("pair", 3)
    follows = (inside > 0) & (chance[:, 0] < 0.5)
    cut = sentences[np.minimum(first + (chance[:, 1] * inside).astype(np.int64), len(sentences) - 1)]
    a_end = np.where(inside > 0, cut, end)
    least = np.maximum(1, room - (a_end - a_start))
    start = (chance[:, 2] * (sentences[-1] - least + 1)).astype(np.int64)
    stop = sentences[np.searchsorted(sentences, start + least)]
    start = sentences[np.searchsorted(sentences, start, side="right") - 1]
    return a_end, np.where(follows, a_end, start), np.where(follows, end, stop), follows


def _left(a: np.ndarray, b: np.ndarray, room: int) -> np.ndarray:
    """What is left of A where both fill the room: the longer one loses first, then both in turn, B first."""
    excess = a + b - room
    uneven = np.minimum(excess, np.abs(a - b))
    return a - np.where(a > b, uneven, 0) - (excess - uneven) // 2
