"""Running text: ``[CLS] text [SEP]``, with an extra ``[SEP]`` where a new document begins inside.

Either whole sentences, packed until the next does not fit, across documents or not (FULL-SENTENCES and DOC-SENTENCES of
Liu et al. 2019, section 4.2), or stretches of a fixed length.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from lightning_modules.batch import Tokens
from lightning_modules.data.formats.pairs import chain
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import Draws

_SEED = 0  # as for pairs, all runs see the same sequences
RECIPE = 1  # raise when the same store and settings would give different sequences

BreakMode = Literal["sentences", "documents", "none"]  # where sequences end


def arrange(store: TokenStore, length: int, break_mode: BreakMode, short: float = 0.0) -> np.ndarray:
    """Start of each sequence of a store, and the end ``[sequences + 1]``.

    Args:
        length: Positions of a sequence, of which ``[CLS]`` and the last ``[SEP]`` take two.
        break_mode: Whether sequences end at sentence boundaries, also where a document ends, or at the fixed length.
        short: Share of sequences that have a random shorter length, as BERT's short pairs: uniform from 2 tokens up,
            and at least one sentence where sentences are kept whole.
    """
    if break_mode == "none":
        return _fixed(store, length - 2, short)
    return _packed(store, length - 2, short, within_documents=break_mode == "documents")


def _rooms(room: int, short: float, count: int) -> np.ndarray:
    """The tokens that each of some sequences has room for ``[count]``."""
    number = np.arange(count)
    noise = Draws(_SEED, number, number, np.zeros_like(number), stream="short sequences")
    shorter = 2 + noise.integers("room", 1, room - 1)[:, 0]
    return np.where(noise.uniform("short", 1)[:, 0] < short, shorter, room)


def _inner_starts(store: TokenStore) -> np.ndarray:
    """Starts of documents except the first; inside a sequence a ``[SEP]`` precedes them."""
    return np.setdiff1d(store.document_starts, [0, len(store.ids)])


def _fixed(store: TokenStore, room: int, short: float) -> np.ndarray:
    """Bounds of stretches of ``room`` tokens, where a document's start counts as one extra token (its separator).

    A separator at the edge of a stretch is omitted, which makes that sequence one token shorter.
    """
    starts = _inner_starts(store)
    separators = starts + np.arange(len(starts))  # their positions in the text with separators
    edges = stretches(len(store.ids) + len(starts), room, short)
    bounds = edges - np.searchsorted(separators, edges, side="left")
    return np.unique(np.append(bounds, len(store.ids)))


def stretches(total: int, room: int, short: float) -> np.ndarray:
    """Starts of stretches of ``room`` tokens of so many in total, a share of them shorter."""
    if not short:
        return np.arange(0, total, room)
    edges = np.cumsum(np.append(0, _rooms(room, short, -(-total // 2))))  # the shortest has two tokens
    return edges[edges < total]


def _packed(store: TokenStore, room: int, short: float, *, within_documents: bool) -> np.ndarray:
    """Bounds of greedily packed whole sentences, long ones cut into pieces of ``room`` tokens."""
    sentences = np.unique(store.sentences)  # without empty ones
    pieces = -(-np.diff(sentences) // room)
    inside = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(sentences[:-1], pieces) + inside * room  # of each unit, a sentence or a piece of one
    opens = np.isin(starts, _inner_starts(store)).astype(np.int64)  # units after a separator
    cost = np.concatenate([[0], np.cumsum(np.diff(np.append(starts, len(store.ids))) + opens)])
    # A sequence that starts with unit i ends before the first unit that does not fit; the separator of its own first
    # unit is omitted.
    unit = np.arange(len(starts))
    rooms = _rooms(room, short, len(starts)) if short else room
    after = np.maximum(np.searchsorted(cost, cost[:-1] + opens + rooms, side="right") - 1, unit + 1)
    if within_documents:
        following = np.append(np.flatnonzero(opens), len(starts))  # first units of documents after the first
        after = np.minimum(after, following[np.searchsorted(following, unit, side="right")])
    return np.append(starts[chain(after)], len(store.ids))


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequences of a store: stretches ``bounds[i] .. bounds[i + 1]`` of its tokens.

    Attributes:
        bounds: Start of each sequence's text, and the end ``[sequences + 1]``.
    """

    goes_on: ClassVar[bool] = False  # whether sequences go on from each other, in the order of the text

    store: TokenStore
    bounds: np.ndarray
    length: int
    _starts: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", _inner_starts(self.store))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def starts(self) -> np.ndarray:
        """Where in the text each sequence begins ``[sequences]``."""
        return self.bounds[:-1]

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start and end of the stretches of text that each sequence shows."""
        return [(self.bounds[:-1], self.bounds[1:])]

    @property
    def documents(self) -> np.ndarray:
        """How many documents each sequence shows parts of ``[sequences]``."""
        ((start, end),) = self.stretches
        return 1 + np.searchsorted(self._starts, end, "left") - np.searchsorted(self._starts, start, "right")

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions of each sequence that are no padding ``[sequences]``."""
        return np.diff(self.bounds) + self.documents + 1  # separators are between documents

    @property
    def alike(self) -> np.ndarray:
        """A number for each sequence: those with neighbouring numbers have similar lengths ``[sequences]``."""
        return self.sizes

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The sequences with these numbers, as rows ``[b t]``; of so many positions, by default of all."""
        indices = np.asarray(indices, dtype=np.int64)
        start, end = self.bounds[indices], self.bounds[indices + 1]
        length = length or self.length
        column = np.arange(length)
        first = np.searchsorted(self._starts, start, side="right")
        inner = np.searchsorted(self._starts, end, side="left") - first  # documents that begin inside a row
        separator = np.zeros((len(indices), length), dtype=bool)
        source = start[:, None] + (column - 1)
        if inner.any():
            rows = np.repeat(np.arange(len(indices)), inner)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(inner) - inner, inner)
            separator[rows, self._starts[first[rows] + nth] - start[rows] + nth + 1] = True
            source -= np.cumsum(separator, axis=1)
        last = (end - start + inner + 1)[:, None]
        separator |= column == last
        real = column <= last
        return self.store.framed(indices, source, separator, real, np.zeros(source.shape, dtype=np.int64))
