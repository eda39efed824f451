"""Text as it is counted: pieces in order, and where neither a document nor a stretch goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_modules.data.baselines.bigram import STRETCH
from lightning_modules.data.store import TokenStore

_AT_ONCE = 1 << 22  # places that are looked at together
_LARGEST_TABLE = 1 << 25  # numbers; those of two pieces of a vocabulary of 5,792


@dataclass(frozen=True, eq=False)
class Counted:
    """Text that is counted.

    Attributes:
        ids: Its pieces ``[n]``.
        fresh: Whether a piece does not go on from the one before ``[n]``.
        size: Pieces of the vocabulary.
    """

    ids: np.ndarray
    fresh: np.ndarray
    size: int

    @classmethod
    def of(cls, store: TokenStore, most: int, marked: bool = False) -> "Counted":
        """A text, or stretches of it that are spread evenly, as the bigram baseline counts them.

        Args:
            most: Pieces, to a stretch of ``STRETCH``.
            marked: Whether documents end with a ``[SEP]`` that is predicted; then they go on from each other.
        """
        ids, starts = store.ids, np.unique(store.document_starts)
        if marked:
            ids, starts = np.insert(ids, starts[1:], store.vocabulary.sep), starts[:0]
        begins = np.zeros(len(ids) + 1, dtype=bool)
        begins[starts] = True
        stretches = -(-len(ids) // STRETCH)
        chosen = np.unique(np.linspace(0, stretches - 1, min(stretches, -(-most // STRETCH))).astype(np.int64))
        parts = [slice(n * STRETCH, min((n + 1) * STRETCH, len(ids))) for n in chosen.tolist()]
        fresh = np.concatenate([begins[part] for part in parts])
        firsts = np.cumsum([0, *(part.stop - part.start for part in parts)])[:-1]
        fresh[firsts[np.diff(chosen, prepend=-2) != 1]] = True
        return cls(np.concatenate([ids[part] for part in parts]), fresh, store.vocabulary.size)

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(np.concatenate([self.ids, other.ids]), np.concatenate([self.fresh, other.fresh]), self.size)

    @property
    def backward(self) -> "Counted":
        """The same text from its end to its beginning."""
        return Counted(self.ids[::-1], np.append(True, self.fresh[:0:-1]), self.size)

    @property
    def single(self) -> np.ndarray:
        """How often each piece is in it ``[v]``."""
        return np.bincount(self.ids, minlength=self.size)

    def beside(self, offsets: Sequence[int]) -> "list[tuple[np.ndarray, np.ndarray]]":
        """Each piece and its context, the pieces at some offsets: numbers of contexts and pieces, part by part.

        Contexts that are not of one stretch of a document are left out.
        """
        low, high = min(0, *offsets), max(0, *offsets)
        return [self._beside(start, offsets, low, high) for start in range(0, len(self.ids), _AT_ONCE)]

    def _beside(self, start: int, offsets: Sequence[int], low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        ids = self.ids[start : start + _AT_ONCE + high - low]
        count = max(0, len(ids) - (high - low))
        goes_on = np.ones(count, dtype=bool)
        for step in range(1, high - low + 1):
            goes_on &= ~self.fresh[start + step : start + step + count]
        around = np.stack([ids[offset - low : offset - low + count] for offset in offsets], axis=1)
        return numbered(around[goes_on], self.size), ids[-low : count - low][goes_on]


def numbered(context: np.ndarray, size: int) -> np.ndarray:
    """One number for each context ``[n]``; -1 for one with an unknown piece.

    Args:
        context: Its pieces ``[n k]``, -1 for an unknown one.
    """
    number = np.zeros(len(context), dtype=np.int64)
    for column in context.T:
        number = number * size + column
    return np.where((context < 0).any(1), -1, number)


class Places:
    """Where numbers are among ascending ones.

    Args:
        known: The ascending numbers, from 0 on.
    """

    def __init__(self, known: np.ndarray) -> None:
        self.known, self._table = known, None
        if len(known) and known[-1] < _LARGEST_TABLE:  # ten times as fast as to search
            self._table = np.full(known[-1] + 1, -1, dtype=np.int32)
            self._table[known] = np.arange(len(known))

    def of(self, asked: np.ndarray) -> np.ndarray:
        """The place of each number ``[n]``; -1 for one that is not there."""
        if not len(self.known):
            return np.full(len(asked), -1)
        if self._table is not None:
            last = len(self._table) - 1
            return np.where((asked < 0) | (asked > last), -1, self._table[np.minimum(asked, last)])
        place = np.minimum(np.searchsorted(self.known, asked), len(self.known) - 1)
        return np.where(self.known[place] == asked, place, -1)
