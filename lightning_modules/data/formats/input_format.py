"""Input formats: how documents become sequences (the verb *arrange*). Static; corruption comes later."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.config import Settings, identity, knob, once
from lightning_modules.data.formats import pairs
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.store import TokenStore


class InputFormat(Settings):
    """One segment of running text, or two segments that may or may not belong together.

    ``full_sentences`` is ``[CLS] text [SEP]`` with an extra ``[SEP]`` where a new document begins inside:
    RoBERTa's FULL-SENTENCES (Liu et al. 2019, section 4.2): whole sentences, packed until the next does not fit,
    across documents. A sentence longer than a sequence is cut into pieces; nothing is dropped. With
    ``break_mode="none"`` text is cut at fixed lengths instead, wherever that falls (fairseq's name for it; used by
    Wettig et al. 2023): no padding, where short sequences of whole sentences are a fifth padding.

    ``segment_pairs`` is BERT's and ALBERT's ``[CLS] A [SEP] B [SEP]``; see `pairs`.
    """

    kind: Literal["full_sentences", "segment_pairs"] = knob(
        "full_sentences", "One segment of running text, or BERT's two segments.", neutral="full_sentences"
    )
    sequence_length: int = knob(512, "Positions of a sequence, special tokens included.", ge=8, le=1 << 20)
    break_mode: Literal["sentences", "none"] = knob(
        "sentences", "Whether sequences end at sentence boundaries or at fixed lengths.", neutral="sentences"
    )
    negatives: Literal["random", "swapped"] = knob(
        "random",
        "Segment pairs: what stands in half of the pairs instead of the text that follows: a segment of another "
        "document (BERT), or the two segments in the wrong order (ALBERT).",
        neutral="random",
    )
    short_fraction: float = knob(
        0.1, "Segment pairs: share of pairs that are filled to a random shorter length only.", neutral=0.0, ge=0, le=1
    )
    duplicates: int = knob(
        1, "Segment pairs: how often each text is arranged, with fresh draws (BERT's dupe_factor).", neutral=1, ge=1
    )
    short_documents: bool = knob(
        False,
        "Segment pairs: draw the shorter length once a document, as BERT's released code does, instead of once a pair.",
        neutral=False,
    )
    lone_negatives: bool = knob(
        False,
        "Segment pairs, swapped: a chunk of one sentence gets a random second segment and counts as out of order, "
        "as in ALBERT's released code; else it is left out.",
        neutral=False,
    )

    @once
    def resolved(self) -> Self:
        """What the other kind has, or what has nothing to act on, is at its neutral value."""
        if self.kind == "full_sentences":
            pairs = {"negatives": "random", "short_fraction": 0.0, "duplicates": 1, "short_documents": False}
            return self.model_copy(update=pairs | {"lone_negatives": False})
        lone = self.lone_negatives and self.negatives == "swapped"
        once = self.short_documents and self.short_fraction > 0
        return self.model_copy(update={"break_mode": "sentences", "lone_negatives": lone, "short_documents": once})

    def heldout(self) -> Self:
        """The format of the held-out text: running text for every kind, so that one measure serves all."""
        if self.kind == "full_sentences":
            return self
        return self.model_copy(update={"kind": "full_sentences", "break_mode": "none"})

    def arrange(self, store: TokenStore) -> "Sequences | PairSequences":
        """The sequences of a store, in the order of the text. The index is cached beside the store."""
        if self.kind == "segment_pairs":
            index = self._cached(store, "pairs", pairs.RECIPE, lambda: pairs.arrange(store, self.resolved()))
            return PairSequences(store, index, self.sequence_length)
        return Sequences(
            store, self._cached(store, "sequences", _RECIPE, lambda: self._bounds(store)), self.sequence_length
        )

    def _cached(self, store: TokenStore, name: str, recipe: int, make: Callable[[], np.ndarray]) -> np.ndarray:
        path = store.folder / f"{name}-{identity([self.essence(), recipe])[:12]}.npy"
        try:
            return np.asarray(np.load(path, mmap_mode="r"))
        except (OSError, ValueError):
            made = make()
        temporary = path.with_suffix(f".{os.getpid()}")
        with open(temporary, "wb") as file:
            np.save(file, made)
        os.replace(temporary, path)
        return made

    def _bounds(self, store: TokenStore) -> np.ndarray:
        room = self.sequence_length - 2
        return _fixed(store, room) if self.break_mode == "none" else _packed(store, room)


_RECIPE = 1  # bumped when the same store and settings would give other sequences


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
