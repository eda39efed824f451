"""Streams: the text of a corpus in rows that go on from step to step, so that a model may remember what came before.

Of B rows each is the B-th part of the text, without a gap; step s shows columns [s L, (s + 1) L) of all rows, and the
last of them predicts the first token of the next step (Transformer-XL: Dai et al. 2019, section 3.2, and the iterator
of its released code, which leaves out the target at the end of a row). Less than a step is left over at the end of the
text. How many rows there are is the order's business (`order.sampler.StreamSampler`): a stream is cut into blocks of L
positions, and row r has those from r S to (r + 1) S - 1, for S steps a pass, or as many blocks further on in the circle
of them as the seed says.

With shuffled sentences only its own words predict a sentence, and nothing before it does. So it is in the One Billion
Word benchmark (Dai et al. 2019, Table 7: context fragmentation). They are drawn once, the same for all seeds. Each is a
document of its own, so that ends of documents, if there are any, are after each sentence.

Read backward, the whole text is reversed token by token, as fastai's code does for the second language model of ULMFiT
(Howard and Ruder 2018, section 5). A model that reads from left to right then predicts what precedes a token, and all
that counts words of the text counts them in that order.

Steps may have drawn lengths (Merity et al. 2018, section 4.1): with probability .95 a step has about L positions, else
about L / 2; around that they are normal with standard deviation 5. As in the released code numbers are cut down to
whole ones, and at least 5. Here they are at most L + 25, so that memory is known: one step in three million is longer
there. Steps of equal length would end rows at the same words in every pass.

Steps may read a part of each row again (Yang et al. 2019, XLNet: released ``data_utils.py``). A window of L positions
begins every R of them, the reuse length. Its first R positions go on: they fill the memory, see each other alone, and
the next window begins behind them. The tail is read once more as the first part of later windows. It is the text that
follows, or a pair ``A [SEP] B [SEP] [CLS]`` whose A is that text::

    step 1    [ reused | tail          ]
    step 2             [ reused | tail          ]

A of a pair ends where a sentence does, at random. B is what follows A (label 0), or as much text from a random place,
grown to whole sentences (label 1); with a single sentence in reach it is always the latter. Both are cut at their ends,
the longer one first, so that every row is full. In rows that go on to the left all this is turned around. There B is to
the left of A, and the first R positions to be read are the last of the row. Pairs are drawn once, the same for all
seeds; the released code draws them once a pass of its making.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import model_validator

from lightning_modules import cached
from lightning_modules.batch import SegmentState, Tokens
from lightning_modules.config import knob
from lightning_modules.data.formats.format import InputFormat
from lightning_modules.data.formats.pairs import SPECIALS, tokens_lost
from lightning_modules.data.formats.text import Blocks
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import Draws, permutation

_SEED = 0  # all runs see the same order of sentences, and the same pairs
_RECIPE = 1  # raise when the same text would be shuffled otherwise
_AT_ONCE = 1 << 16  # sentences that are gathered together
_SHORTEST = 5  # positions of a step whose length is drawn
_FULL = 0.95  # share of steps around the usual length
_DEVIATION = 5.0
_FARTHEST = 25  # beyond the usual length

SentenceOrder = Literal["text", "shuffled", "backward"]


class StreamFormat(InputFormat):
    """Running text whose rows continue from step to step, in as many rows as a step has."""

    break_mode: ClassVar[str] = "none"  # by nature

    kind: Literal["stream"] = knob("stream", "Layout.")
    frame: Literal["document_ends", "none"] = knob(
        "document_ends", "Special tokens of the text: with document_ends a [SEP] is after each document."
    )
    sentence_order: SentenceOrder = knob(
        "text",
        "Order of the sentences, of held-out text as well. With shuffled it is random, and each sentence is "
        "a document of its own, so that nothing before it helps to predict it. With backward all tokens are reversed, "
        "those of texts in fine-tuning too (ULMFiT's second classifier).",
        neutral="text",
    )
    row_starts: Literal["even", "drawn"] = knob(
        "even",
        "Of training text: where the first row begins. With even it is the beginning of the text, for all "
        "seeds. With drawn each seed has a place of its own and reads other text. The other rows follow at even "
        "distances.",
        neutral="even",
    )
    lengths: Literal["fixed", "drawn"] = knob(
        "fixed",
        "Of training text: positions of a step. With fixed they are sequence_length. With drawn each step has "
        "a number of its own, about sequence_length or, one time in twenty, half of it (AWD-LSTM). What is left of a "
        "row when it is shorter than the next step is not shown. On a GPU drawn numbers are rounded to multiples of 8.",
        neutral="fixed",
    )
    both_ways: bool = knob(
        False,
        "Of training text: half of the rows of a step go through the text from its end to its beginning. What "
        "a model remembers is then to their right (XLNet's two-way data).",
        neutral=False,
    )
    reuse_length: int | None = knob(
        None,
        "Positions of a row that continue and fill the memory. They see each other alone, and the next step "
        "begins behind them and reads the rest of the row again (XLNet: 256 of 512). By default all continue.",
        neutral=None,
        ge=8,
        le=1 << 20,
    )
    rest: Literal["text", "pair"] = knob(
        "text",
        "With a reuse_length: what is behind those positions. It is the text that follows, or a pair A [SEP] "
        "B [SEP] [CLS], whose A is that text (XLNet). For half of the pairs B is what follows A, for the others it is "
        "not.",
        neutral="text",
    )

    @model_validator(mode="after")
    def _rows_continue_each_other(self) -> Self:
        if self.share < 1:
            raise ValueError(
                f"share {self.share:g} draws sequences at random, and those of a stream continue each other. Set "
                "share to 1, or kind to full_sentences."
            )
        if self.reuse_length is None and self.rest == "pair":
            raise ValueError(
                "rest pair needs positions that continue before it. Set reuse_length, half of sequence_length in "
                "XLNet, or rest to text."
            )
        if self.lengths == "drawn":
            ways = {"row_starts": "even", "both_ways": False, "reuse_length": None, "first_share": 0.0}
            wrong = {name: given for name in ways if (given := getattr(self, name)) != ways[name]}
            if wrong:
                named = ", ".join(f"{name} {given}" for name, given in wrong.items())
                raise ValueError(
                    "lengths drawn is of rows that go through the text from its beginning, whole: set lengths to "
                    f"fixed, or leave out {named}"
                )
        shortest = min(self.sequence_length, self.first_length or self.sequence_length)
        room = 1 if self.rest == "text" else 2 + SPECIALS
        if self.reuse_length is not None and self.reuse_length + room > shortest:
            raise ValueError(
                f"reuse_length {self.reuse_length} leaves {max(0, shortest - self.reuse_length)} of {shortest} "
                f"positions for the rest of a row, which needs {room}: lower reuse_length, or show longer sequences"
            )
        return self

    @property
    def cls(self) -> str:
        """Place of [CLS] in rows that have one."""
        return "last" if self.rest == "pair" else "first"

    @property
    def labels(self) -> frozenset[str]:
        """See `InputFormat.labels`."""
        return frozenset({"sentence"} if self.rest == "pair" else ())

    @property
    def longest(self) -> int:
        """See `InputFormat.longest`."""
        return self.sequence_length + _FARTHEST * (self.lengths == "drawn")

    def _bare(self) -> dict[str, Any]:
        # as of the time when all kinds had the same knobs
        return super()._bare() | {"break_mode": self.break_mode} | ({"cls": "last"} if self.rest == "pair" else {})

    def unpredicted(self, positions: int) -> int:
        """See `InputFormat.unpredicted`."""
        return 0

    def length_shares(self, length: int) -> dict[int, float]:
        """See `InputFormat.length_shares`."""
        if self.lengths == "fixed":
            return super().length_shares(length)
        most = length + _FARTHEST
        found = dict.fromkeys(range(_SHORTEST, most + 1), 0.0)
        for share, middle in ((_FULL, float(length)), (1 - _FULL, length / 2)):
            below = NormalDist(middle, _DEVIATION).cdf
            edges = [0.0, *(below(positions) for positions in range(_SHORTEST + 1, most + 1)), 1.0]
            for place, positions in enumerate(found):
                found[positions] += share * (edges[place + 1] - edges[place])
        assert math.isclose(sum(found.values()), 1.0)
        return found

    def heldout(self, *, blocks: bool = False) -> Self:
        """See `InputFormat.heldout`."""
        shown = {"row_starts": "even", "both_ways": False, "reuse_length": None, "rest": "text", "lengths": "fixed"}
        return self._of_one_length(self.sequence_length).model_copy(update=shown)

    def arrange(self, store: TokenStore) -> "Stream":
        """See `InputFormat.arrange`."""
        text, ends = ORDERS[self.sentence_order](store), self.frame == "document_ends"
        if self.reuse_length is not None:
            return ReusedStream.windows(text, self.sequence_length, ends, self.reuse_length, self.rest == "pair")
        return Stream.whole(text, self.sequence_length, ends)


def drawn_lengths(seed: int, usual: int, steps: int, multiple: int = 1) -> np.ndarray:
    """The positions of each of the first steps, a function of seed and step alone ``[steps]``.

    Args:
        usual: The usual length L.
        multiple: Lengths are rounded to the nearest multiple of it that a step can have; 1 changes nothing.
    """
    number = np.arange(steps, dtype=np.int64)
    draws = Draws(seed, number, number, np.zeros_like(number))
    choice, radius, angle = draws.uniform("length of a step", 3).T
    normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)  # Box and Muller 1958
    middle, longest = np.where(choice < _FULL, usual, usual / 2), usual + _FARTHEST
    exact = np.clip(middle + _DEVIATION * normal, _SHORTEST, longest).astype(np.int64)
    rounded = (exact + multiple // 2) // multiple * multiple
    return np.clip(rounded, multiple, longest // multiple * multiple)


@dataclass(frozen=True, eq=False)
class Stream(Blocks):
    """Blocks of a text that go on from each other; each knows the token that follows it."""

    @classmethod
    def whole(cls, store: TokenStore, length: int, ends: bool) -> Self:
        """The text of a store in as many blocks as have a token after them."""
        total = len(store.ids) + ends * len(np.setdiff1d(store.document_starts, [0]))
        return cls.of(store, np.arange(max(0, total - 1) // length + 1) * length, length, ends)

    @property
    def tokens(self) -> int:
        """Tokens of the text, ends of documents included."""
        return len(self.store.ids) + len(self.ends)

    def cut(self, edges: np.ndarray, length: int) -> Self:
        """The same text in other blocks, the longest of so many positions; the last must have a token after it."""
        return replace(self, edges=edges, bounds=edges - np.searchsorted(self.ends, edges, side="left"), length=length)

    def needed(self, rows: int) -> int:
        """Tokens of the shortest text that gives a step so many rows."""
        return rows * self.length + 1

    def continued(self, indices: np.ndarray, state: SegmentState, length: int | None = None) -> Tokens:
        """The blocks with these numbers, as rows of a step that go on from the step before.

        Args:
            length: Positions of a step whose length is drawn: then the numbers are places of the text.
        """
        if length is None:
            return replace(self.batch(indices), segment_state=state)
        tokens = self.between(indices, indices, indices + length, length)
        return replace(tokens, following=torch.from_numpy(self.at(indices + length)[0]), segment_state=state)

    def batch(self, indices: np.ndarray, length: int | None = None, context: int = 0) -> Tokens:
        """The blocks with these numbers, as rows ``[b t]`` without padding.

        Args:
            indices: Blocks of equal length.
            length: Their positions, if it is known.
            context: Positions before each block that are shown with it and predict nothing.
        """
        indices = np.asarray(indices, dtype=np.int64)
        start, end = self.edges[indices] - context, self.edges[indices + 1]
        tokens = self.between(indices, start, end, int((end - start).max(initial=0)))
        return replace(tokens, following=torch.from_numpy(self.at(end)[0]), context=context)


def shuffled(store: TokenStore) -> TokenStore:
    """The store with its sentences in random order, each a document of its own, kept in a file next to it."""
    sizes = np.diff(store.sentences)
    order = permutation(_SEED, "order of sentences", 0, len(sizes))
    ids = cached.kept_array(store.folder / f"shuffled-{_RECIPE}.npy", lambda: _gathered(store, order))
    starts = np.append(0, np.cumsum(sizes[order]))
    return replace(
        store, ids=ids, sentences=starts, documents=np.arange(len(starts)), corpora=(), mark_files={}, made=shuffled
    )


def backward(store: TokenStore) -> TokenStore:
    """The store with its tokens from the last to the first."""
    sentences, documents = (int(ends[-1]) - ends[::-1] for ends in (store.sentences, store.documents))
    count = len(store.documents) - 1
    return replace(
        store,
        ids=np.ascontiguousarray(store.ids[::-1]),
        sentences=sentences,
        documents=documents,
        corpora=tuple(count - first for first in store.corpora[::-1]),
        mark_files={},
        made=backward,
    )


ORDERS: dict[SentenceOrder, Callable[[TokenStore], TokenStore]] = {
    "text": lambda store: store,
    "shuffled": shuffled,
    "backward": backward,
}


def _gathered(store: TokenStore, order: np.ndarray) -> np.ndarray:
    """The ids of sentences in this order."""
    ids, done = np.empty_like(store.ids), 0
    for first in range(0, len(order), _AT_ONCE):
        some = order[first : first + _AT_ONCE]
        part = np.concatenate([store.ids[store.sentences[n] : store.sentences[n + 1]] for n in some])
        ids[done : done + len(part)] = part
        done += len(part)
    return ids


@dataclass(frozen=True, eq=False)
class ReusedStream(Stream):
    """The windows of a text, of which the first positions go on.

    Attributes:
        reuse: How many positions of a window go on.
        pair_tail: Whether what is behind them is a pair.
    """

    reuse: int
    pair_tail: bool

    @classmethod
    def windows(cls, store: TokenStore, length: int, ends: bool, reuse: int, pair_tail: bool) -> Self:
        """The text of a store in as many windows as fit."""
        tokens = Stream.whole(store, length, ends).tokens
        edges = np.arange(max(0, (tokens - length) // reuse + 1) + 1) * reuse
        return cls.of(store, edges, length, ends, reuse=reuse, pair_tail=pair_tail)

    @cached_property
    def sizes(self) -> np.ndarray:
        """See `Sequences.sizes`: all are full."""
        return np.full(len(self), self.length)

    def needed(self, rows: int) -> int:
        """See `Stream.needed`."""
        return (rows - 1) * self.reuse + self.length

    def batch(self, indices: np.ndarray, length: int | None = None, context: int = 0) -> Tokens:
        """The windows with these numbers, as rows ``[b t]`` that go on to the right, by themselves."""
        return self._rows(np.asarray(indices, dtype=np.int64), np.zeros(len(indices), dtype=bool))

    def continued(self, indices: np.ndarray, state: SegmentState, length: int | None = None) -> Tokens:
        """See `Stream.continued`."""
        indices = np.asarray(indices, dtype=np.int64)
        back = np.zeros(len(indices), dtype=bool) if state.backward is None else state.backward.numpy()
        return replace(self._rows(indices, back), segment_state=replace(state, reuse=self.reuse))

    def _rows(self, indices: np.ndarray, back: np.ndarray) -> Tokens:
        """Windows as rows in the order of the text, each gone through to the right, or back."""
        start = indices * self.reuse
        place = start[:, None] + np.arange(self.length)
        if not self.pair_tail:
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
        lost, _ = tokens_lost(a_end - a_start, b_end - b_start, room)
        middle = (a_end - start - lost)[:, None]
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
