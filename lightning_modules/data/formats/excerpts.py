"""Excerpts of segment pairs: controls that show whether an answer needs all words, or their order.

A method that answers from the first words alone, or from shuffled words, has not compared how two texts go on. To mean
something, a method must learn on the same excerpts as it is tested on.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.draws import Draws

Excerpt = Literal["all", "first", "rest", "shuffled"]
FIRST_WORDS = 8
_SEED = 0


class Shuffled(PairSequences):
    """Segment pairs whose words are in random order within each segment; the pieces of a word stay together."""

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The pairs with these numbers, as rows ``[b t]``; of so many positions, by default of all."""
        tokens = super().batch(indices, length)
        sample = tokens.sample.numpy()
        ids, special, segment = (part.numpy() for part in (tokens.ids, tokens.special, tokens.tables["segment"]))
        begins = self.store.vocabulary.begins(ids) | special | (np.diff(special, axis=1, prepend=True) != 0)
        keys = Draws(_SEED, sample, sample, np.zeros_like(sample), "shuffled words").uniform("order", ids.shape[1])
        word = np.take_along_axis(keys, np.cumsum(begins, axis=1) - 1, axis=1)
        column = np.arange(ids.shape[1])
        part = np.where(special, column, 0)
        part = np.maximum.accumulate(part, axis=1) * 2 + ~special  # every special token, and what is between two
        order = np.argsort(part + np.where(special, 0, word), axis=1, kind="stable")
        shuffled = np.take_along_axis(ids, order, axis=1)
        assert (np.take_along_axis(segment, order, axis=1) == segment).all()
        marks = {name: mark.gather(1, torch.from_numpy(order)) for name, mark in tokens.marks.items()}
        return replace(tokens, ids=torch.from_numpy(shuffled), marks=marks)


def excerpt(pairs: PairSequences, part: Excerpt) -> PairSequences:
    """Pairs of which only an excerpt is shown, with the same numbers and labels.

    Args:
        pairs: Pairs with all their words.
        part: ``first``: the first eight words of each segment; ``rest``: what follows them, which may be nothing;
            ``shuffled``: all words in random order.
    """
    if part == "all":
        return pairs
    if part == "shuffled":
        return Shuffled(pairs.store, pairs.index, pairs.length)
    index = pairs.index.copy()
    for start, end in ((0, 1), (2, 3)):
        index[end if part == "first" else start] = _after_words(pairs, index[start], index[end])
    return PairSequences(pairs.store, index, pairs.length)


def _after_words(pairs: PairSequences, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where the first words of some stretches of text end."""
    column = np.arange((end - start).max(initial=1))
    source = start[:, None] + column
    ids = pairs.store.ids[np.minimum(source, len(pairs.store.ids) - 1)]
    begins = pairs.store.vocabulary.begins(ids) | (column == 0)
    later = (np.cumsum(begins, axis=1) > FIRST_WORDS) & (source < end[:, None])
    return np.where(later.any(axis=1), start + later.argmax(axis=1), end)
