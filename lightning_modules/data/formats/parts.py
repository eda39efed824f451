"""A part of the sequences of a text: less text, shown more often."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from lightning_modules.batch import Tokens
from lightning_modules.data.formats.by_language import InTurn
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.formats.running_text import Sequences
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import permutation


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the sequences of a store, numbered again from 0.

    Attributes:
        chosen: The numbers of those that belong to the part.
    """

    goes_on: ClassVar[bool] = False  # sequences of a part do not go on from each other

    whole: Sequences | PairSequences | InTurn
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def store(self) -> TokenStore:
        """The tokens."""
        return self.whole.store

    @property
    def length(self) -> int:
        """Positions of a sequence."""
        return self.whole.length

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions that are no padding of each sequence."""
        return self.whole.sizes[self.chosen]

    @property
    def alike(self) -> np.ndarray:
        """See `Sequences.alike`."""
        assert not isinstance(self.whole, InTurn), "`training.bucket_steps` is refused with `format.languages`"
        return self.whole.alike[self.chosen]

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The sequences with these numbers of the part, as rows ``[b t]``; of so many positions, by default of all."""
        return self.whole.batch(self.chosen[np.asarray(indices)], length)


Arranged = Sequences | PairSequences | InTurn | Part


def part(whole: Sequences | PairSequences | InTurn, share: float) -> Arranged:
    """A share of the sequences, at least one of them, drawn at random but once and for all.

    All seeds have the same part, and a smaller part is within a larger one.
    """
    if share >= 1:
        return whole
    return Part(whole, permutation(0, "part of the text", 0, len(whole))[: max(1, round(share * len(whole)))])
