"""Running text: ``[CLS] text [SEP]``, with an extra ``[SEP]`` where a new document begins inside.

Whole sentences packed until the next does not fit, across documents (FULL-SENTENCES of Liu et al. 2019, section
4.2), or stretches of a fixed length, wherever that falls.
"""

from dataclasses import dataclass

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.data.store import TokenStore

RECIPE = 1  # bumped when the same store and settings would give other sequences


def arrange(store: TokenStore, length: int, *, whole_sentences: bool) -> np.ndarray:
    """Where each sequence of a store starts, and the end ``[sequences + 1]``.

    Args:
        store: The tokens.
        length: Positions of a sequence, of which ``[CLS]`` and the last ``[SEP]`` take two.
        whole_sentences: Whether sequences end at sentence boundaries, or after so many tokens.
    """
    return (_packed if whole_sentences else _fixed)(store, length - 2)


def _inner_starts(store: TokenStore) -> np.ndarray:
    """Where documents begin, except at the beginning of the text; a ``[SEP]`` precedes these inside a sequence."""
    return np.setdiff1d(store.document_starts, [0, len(store.ids)])


def _fixed(store: TokenStore, room: int) -> np.ndarray:
    """Bounds of stretches of ``room`` tokens, where a document's start counts as one token more (its separator).

    A separator that falls on the edge of a stretch is not written: that sequence is one token shorter.
    """
    starts = _inner_starts(store)
    separators = starts + np.arange(len(starts))  # their places in the text with separators
    edges = np.arange(0, len(store.ids) + len(starts), room)
    bounds = edges - np.searchsorted(separators, edges, side="left")
    return np.unique(np.append(bounds, len(store.ids)))


def _packed(store: TokenStore, room: int) -> np.ndarray:
    """Bounds of greedily packed whole sentences, long ones cut into pieces of ``room`` tokens."""
    sentences = np.unique(store.sentences)  # without those that have no token
    pieces = -(-np.diff(sentences) // room)
    inside = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(sentences[:-1], pieces) + inside * room  # of each unit: a sentence or a piece of one
    opens = np.isin(starts, _inner_starts(store)).astype(np.int64)  # units that a separator precedes
    cost = np.concatenate([[0], np.cumsum(np.diff(np.append(starts, len(store.ids))) + opens)])
    # A sequence that starts with unit i ends before the first unit whose end lies beyond its room; the separator of
    # its own first unit is not written.
    after = np.searchsorted(cost, cost[:-1] + opens + room, side="right") - 1
    jumps, first, unit = after.tolist(), [0], 0
    while (unit := jumps[unit]) < len(jumps):
        first.append(unit)
    return np.append(starts[first], len(store.ids))


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequences of a store: stretches ``bounds[i] .. bounds[i + 1]`` of its tokens.

    Attributes:
        store: The tokens.
        bounds: Where each sequence's text starts, and the end ``[sequences + 1]``.
        length: Positions of a sequence.
    """

    store: TokenStore
    bounds: np.ndarray
    length: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", _inner_starts(self.store))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def fill(self) -> float:
        """The share of positions that are not padding."""
        inside = int((~np.isin(self._starts, self.bounds)).sum())
        return (len(self.store.ids) + inside + 2 * len(self)) / (len(self) * self.length)

    def batch(self, indices: np.ndarray) -> Tokens:
        """The sequences with these numbers, as rows ``[b t]``."""
        indices = np.asarray(indices, dtype=np.int64)
        start, end = self.bounds[indices], self.bounds[indices + 1]
        column = np.arange(self.length)
        first = np.searchsorted(self._starts, start, side="right")
        inner = np.searchsorted(self._starts, end, side="left") - first  # documents that begin inside a row
        separator = np.zeros((len(indices), self.length), dtype=bool)
        source = start[:, None] + (column - 1)
        if inner.any():
            rows = np.repeat(np.arange(len(indices)), inner)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(inner) - inner, inner)
            separator[rows, self._starts[first[rows] + nth] - start[rows] + nth + 1] = True
            source -= np.cumsum(separator, axis=1)
        last = (end - start + inner + 1)[:, None]
        separator |= column == last
        real = column <= last
        vocabulary = self.store.vocabulary
        ids = self.store.ids[np.minimum(source, len(self.store.ids) - 1)].astype(np.int64)
        ids[~real] = vocabulary.pad
        ids[separator] = vocabulary.sep
        ids[:, 0] = vocabulary.cls
        special = separator | ~real
        special[:, 0] = True
        return Tokens(
            ids=torch.from_numpy(ids),
            begins_word=torch.from_numpy(vocabulary.begins_word[ids]),
            special=torch.from_numpy(special),
            real=torch.from_numpy(real),
            sample=torch.from_numpy(indices),
            tables={"segment": torch.zeros(ids.shape, dtype=torch.int64)},
        )
