"""Running text without ``[CLS]`` and ``[SEP]`` around it: blocks of a fixed length, every position of which is text.

Documents follow each other without a mark (GPT: Radford et al. 2018), or each ends with a ``[SEP]`` that belongs to the
text and is predicted as any other token (``<|endoftext|>`` of GPT-2: Radford et al. 2019).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.data.formats.running_text import Sequences, stretches
from lightning_modules.data.store import TokenStore

RECIPE = 1  # raise when the same store and settings would give different blocks

Frame = Literal["cls_sep", "document_ends", "none"]  # the special tokens of running text; with cls_sep it has no blocks


def arrange(store: TokenStore, length: int, ends: bool, short: float = 0.0) -> np.ndarray:
    """Start of each block, and the end ``[blocks + 1]``, in the text with its ends of documents.

    Args:
        ends: Whether a ``[SEP]`` follows each document.
        short: Share of blocks that have a random shorter length.

    A last token that would be alone is left out: there is nothing from which it could be predicted.
    """
    total = len(store.ids) + len(_ends(store, ends))
    edges = np.append(stretches(total, length, short), total)
    return edges[:-1] if len(edges) > 2 and edges[-1] - edges[-2] == 1 else edges


def _ends(store: TokenStore, ends: bool) -> np.ndarray:
    after = np.setdiff1d(store.document_starts, [0]) if ends else np.zeros(0, dtype=np.int64)
    return after + np.arange(len(after))


@dataclass(frozen=True, eq=False)
class Blocks(Sequences):
    """The blocks of a store: stretches ``edges[i] .. edges[i + 1]`` of its text with its ends of documents.

    Attributes:
        edges: Start of each block, and the end ``[blocks + 1]``.
        ends: Where documents end, in the same text.
    """

    edges: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, store: TokenStore, edges: np.ndarray, length: int, ends: bool) -> Self:
        """The blocks that `arrange` cut."""
        marks = _ends(store, ends)
        return cls(store, edges - np.searchsorted(marks, edges, side="left"), length, edges, marks)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions of each block that are no padding ``[blocks]``."""
        return np.diff(self.edges)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The blocks with these numbers, as rows ``[b t]``; of so many positions, by default of all."""
        indices = np.asarray(indices, dtype=np.int64)
        return self.between(indices, self.edges[indices], self.edges[indices + 1], length or self.length)

    def at(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ids at places of the text with its ends of documents, whether they are ends, and their places without."""
        before = np.searchsorted(self.ends, place, side="left")
        end = np.append(self.ends, -1)[before] == place
        source = place - before
        ids = self.store.ids[np.minimum(source, len(self.store.ids) - 1)].astype(np.int64)
        ids[end] = self.store.vocabulary.sep
        return ids, end, source

    def between(self, indices: np.ndarray, start: np.ndarray, end: np.ndarray, length: int) -> Tokens:
        """Stretches of the text with its ends of documents, as rows ``[b t]`` of sequences with these numbers."""
        place = start[:, None] + np.arange(length)
        real = place < end[:, None]
        ids, end, source = self.at(place)
        ids[~real] = self.store.vocabulary.pad
        return Tokens.of(
            ids,
            end | ~real,
            real,
            indices,
            {"segment": np.zeros(ids.shape, dtype=np.int64)},
            marks=self.store.marks_at(source, real & ~end),
            ends=torch.from_numpy(end & real) if len(self.ends) else None,
        )
