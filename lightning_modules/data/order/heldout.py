"""The held-out examples: fixed sequences under fixed noise."""

from collections.abc import Iterator

import numpy as np

from lightning_modules.batch import Example
from lightning_modules.data.formats.parts import Arranged
from lightning_modules.data.order.prepare import Prepare, uncorrupted
from lightning_modules.draws import Draws, permutation

_SEED = 0  # held-out sequences and their masks are the same for every run


class HeldOut:
    """Held-out sequences: the same examples for every run with the same data and format.

    Every rank evaluates all of them, so that each has the complete result.
    """

    def __init__(self, sequences: Arranged, count: int, batch_size: int, prepare: Prepare = uncorrupted) -> None:
        self.sequences, self.batch_size, self.prepare = sequences, batch_size, prepare
        self.chosen = permutation(_SEED, "heldout", 0, len(sequences))[:count]
        self._examples: list[Example] | None = None

    def __len__(self) -> int:
        return -(-len(self.chosen) // self.batch_size)

    def __iter__(self) -> Iterator[Example]:
        if self._examples is None:
            self._examples = [self._example(n * self.batch_size) for n in range(len(self))]
        return iter(self._examples)

    def _example(self, start: int) -> Example:
        sample = self.chosen[start : start + self.batch_size].astype(np.int64)
        draws = Draws(seed=_SEED, rows=sample, sample=sample, epoch=np.zeros_like(sample))
        return self.prepare(self.sequences.batch(sample), draws, self.sequences.store.vocabulary)
