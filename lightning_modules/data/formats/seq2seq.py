"""A sentence and its translation as two sequences: ``source [SEP]`` and ``[CLS] target [SEP]``.

The decoder reads ``[CLS]`` and the target, and predicts the target and its ``[SEP]``, which ends it.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from lightning_modules.batch import SOURCE, Tokens
from lightning_modules.config import ConfigError, knob
from lightning_modules.data.formats.format import InputFormat, Sequences
from lightning_modules.data.store import TokenStore

_RECIPE = 1  # raise when the same store and settings would give different sequences
_SIDES = 2


class Seq2SeqFormat(InputFormat):
    """A sentence and its translation, as two sequences."""

    gives: ClassVar[frozenset[str]] = frozenset({SOURCE})
    sides: ClassVar[int] = _SIDES

    kind: Literal["seq2seq"] = knob("seq2seq", "Layout.")

    @model_validator(mode="after")
    def _translations_have_their_own_length(self) -> Self:
        if self.first_share:
            raise ValueError(
                f"first_share {self.first_share:g} shows shorter text first, and a translation has the length that it "
                "has: set first_share to 0"
            )
        return self

    def unpredicted(self, positions: int) -> int:
        """See `InputFormat.unpredicted`."""
        return positions // _SIDES + 1  # [CLS] of the target

    def heldout(self, *, blocks: bool = False) -> Self:
        """See `InputFormat.heldout`."""
        return self._of_one_length(self.sequence_length).model_copy(update={"share": 1.0})

    def arrange(self, store: TokenStore) -> "Translations":
        """See `InputFormat.arrange`. Pairs with a side that is too long are left out: a part is no translation."""
        index = self._cached(store, "translations", _RECIPE, lambda: arrange(store, self.sequence_length))
        return Translations(store, index, _SIDES * self.sequence_length)


def arrange(store: TokenStore, length: int) -> np.ndarray:
    """Start of source, start of target and end of each pair whose sides both fit ``[pairs 3]``.

    Raises:
        ConfigError: For documents that are not a sentence and its translation.
    """
    if (np.diff(store.documents) != _SIDES).any():
        raise ConfigError(
            [f"the text of {store.folder} is no parallel text. Name a corpus with languages, such as multi30k:en-de."]
        )
    first = store.documents[:-1]
    edges = np.stack([store.sentences[first + n] for n in range(_SIDES + 1)], 1)
    source, target = np.diff(edges).T
    return edges[(source > 0) & (target > 0) & (source + 1 <= length) & (target + 2 <= length)]


@dataclass(frozen=True, eq=False)
class Translations(Sequences):
    """Pairs of sentences.

    Attributes:
        bounds: Start of source, start of target and end of each pair ``[pairs 3]``.
        length: Positions of both sides together.
    """

    specials: ClassVar[int] = 3

    store: TokenStore
    bounds: np.ndarray
    length: int

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Sequences.stretches`: those of source and target."""
        return [(self.bounds[:, side], self.bounds[:, side + 1]) for side in range(_SIDES)]

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
