"""Streams: the text of a corpus in rows that go on from step to step, so that a model may remember what came before.

Of B rows each is the B-th part of the text, without a gap; step s shows columns [s L, (s + 1) L) of all rows, and the
last of them predicts the first token of the next step (Transformer-XL: Dai et al. 2019, section 3.2, and the iterator
of its released code, which leaves out the target at the end of a row). Less than a step is left over at the end of the
text. How many rows there are is the order's business (`order.shuffled.Streamed`): a stream is cut into blocks of L
positions, and row r has those from r S to (r + 1) S - 1, for S steps a pass, or as many blocks further on in the circle
of them as the seed says.

With shuffled sentences only its own words predict a sentence, and nothing before it does. So it is in the One Billion
Word benchmark (Dai et al. 2019, Table 7: context fragmentation). They are drawn once, the same for all seeds. Each is a
document of its own, so that ends of documents, if there are any, are after each sentence.

Read backward, the whole text is reversed token by token, as fastai's code does for the second language model of ULMFiT
(Howard and Ruder 2018, section 5). A model that reads from left to right then predicts what precedes a token, and all
that counts words of the text counts them in that order.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
import torch

from lightning_modules import cached
from lightning_modules.batch import SegmentState, Tokens
from lightning_modules.data.formats.blocks import Blocks
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import permutation

_SEED = 0  # all runs see the same order of sentences
_RECIPE = 1  # raise when the same text would be shuffled otherwise
_AT_ONCE = 1 << 16  # sentences that are gathered together

SentenceOrder = Literal["text", "shuffled", "backward"]


@dataclass(frozen=True, eq=False)
class Stream(Blocks):
    """Blocks of a text that go on from each other; each knows the token that follows it."""

    goes_on: ClassVar[bool] = True

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

    def going(self, indices: np.ndarray, going: SegmentState) -> Tokens:
        """The blocks with these numbers, as rows of a step that go on from the step before."""
        return replace(self.batch(indices), segment_state=going)

    def stretches(self, start: np.ndarray, length: int, going: SegmentState) -> Tokens:
        """Rows of a step that begin at these places of the text, whatever its blocks are; ``sample`` holds places."""
        tokens = self.between(start, start, start + length, length)
        return replace(tokens, following=torch.from_numpy(self.at(start + length)[0]), segment_state=going)

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
