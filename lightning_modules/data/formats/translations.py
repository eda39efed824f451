"""A sentence and its translation as two sequences: ``source [SEP]`` and ``[CLS] target [SEP]``.

The decoder reads ``[CLS]`` and the target, and predicts the target and its ``[SEP]``, which ends it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lightning_modules.batch import Tokens
from lightning_modules.config import ConfigError
from lightning_modules.data.formats.running_text import Sequences
from lightning_modules.data.store import TokenStore

RECIPE = 1  # raise when the same store and settings would give different sequences
SIDES = 2
UNPREDICTED = 1  # [CLS] of the target; the source is not predicted either


def arrange(store: TokenStore, length: int) -> np.ndarray:
    """Start of source, start of target and end of each pair whose sides both fit ``[pairs 3]``.

    Longer pairs are left out: what remains of one would be no translation.

    Args:
        store: Documents of two sentences.
        length: Positions of each side.

    Raises:
        ConfigError: For documents of more or fewer sentences.
    """
    if (np.diff(store.documents) != SIDES).any():
        raise ConfigError(
            [f"the text of {store.folder} is no parallel text. Name a corpus with languages, such as multi30k:en-de."]
        )
    first = store.documents[:-1]
    edges = np.stack([store.sentences[first + n] for n in range(SIDES + 1)], 1)
    source, target = np.diff(edges).T
    return edges[(source > 0) & (target > 0) & (source + 1 <= length) & (target + 2 <= length)]


@dataclass(frozen=True, eq=False)
class Translations(Sequences):
    """Pairs of sentences. ``bounds`` are those of `arrange`, and ``length`` is that of both sides together."""

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def starts(self) -> np.ndarray:
        """See `Sequences.starts`."""
        return self.bounds[:, 0]

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Sequences.stretches`: those of source and target."""
        return [(self.bounds[:, side], self.bounds[:, side + 1]) for side in range(SIDES)]

    @property
    def documents(self) -> np.ndarray:
        """See `Sequences.documents`."""
        return np.ones(len(self), dtype=np.int64)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions of each pair that are no padding, special tokens included, on both sides together."""
        return self.bounds[:, 2] - self.bounds[:, 0] + 3

    @property
    def alike(self) -> np.ndarray:
        """See `Sequences.alike`: by the target, then by the source, whose length goes up and down in turn."""
        source, target = np.diff(self.bounds).T
        return target * 2 * self.length + np.where(target % 2, source, -source)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The targets of these pairs, with their sources, each side as long as its longest row ``[b t]``."""
        indices = np.asarray(indices, dtype=np.int64)
        start, middle, end = self.bounds[indices].T
        target = self._side(indices, middle, end, begins=True)
        ends = target.real & (target.ids == self.store.vocabulary.sep) & target.special
        target.ends, target.source = ends, self._side(indices, start, middle, begins=False)
        return target

    def _side(self, indices: np.ndarray, start: np.ndarray, end: np.ndarray, *, begins: bool) -> Tokens:
        size, vocabulary = end - start + begins, self.store.vocabulary
        column = np.arange(int(size.max()) + 1)
        place = start[:, None] + column - begins
        ids = self.store.ids[np.clip(place, 0, len(self.store.ids) - 1)].astype(np.int64)
        separator = column == size[:, None]
        ids[separator] = vocabulary.sep
        real = column <= size[:, None]
        ids[~real] = vocabulary.pad
        special = separator | ~real
        if begins:
            ids[:, 0], special[:, 0] = vocabulary.cls, True
        return Tokens.of(ids, special, real, indices)
