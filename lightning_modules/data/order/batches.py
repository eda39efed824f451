"""The training batches of a rank: slices of one global batch, which is a function of seed and step alone."""

from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch.utils.data import DataLoader, Dataset

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.formats.running_text import Sequences
from lightning_modules.data.order import shuffled
from lightning_modules.data.order.portions import Portions
from lightning_modules.data.order.prepare import Prepare, uncorrupted
from lightning_modules.data.order.resumable import Resumable
from lightning_modules.draws import Draws


class Batches(Resumable):
    """The training batches of one rank, micro-batch by micro-batch; resumable exactly.

    Each ``Example.counts`` holds the counts of the whole optimiser step. For that, every rank prepares the
    global batch (0.1 ms) and yields only its own rows.

    Lightning reads ``state_dict`` after each batch and prefetches none because ``__len__`` is defined.
    """

    def __init__(
        self,
        sequences: Sequences | PairSequences,
        portions: Portions,
        prepare: Prepare = uncorrupted,
        *,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
    ) -> None:
        if len(sequences) == 0:
            raise ConfigError(
                [f"the text of {sequences.store.folder} has no sequence of {sequences.length} positions; add text."]
            )
        self.sequences, self.portions, self.prepare = sequences, portions, prepare
        self.rank, self.world_size, self.workers = rank, world_size, workers
        self.micro_batches = portions.micro_batches(world_size)
        self.position = 0  # micro-batches yielded

    def __len__(self) -> int:
        return self.portions.steps * self.micro_batches

    def __iter__(self) -> Iterator[Example]:
        if self.position >= len(self):  # a finished loader starts again
            self.position = 0
        first, done = divmod(self.position, self.micro_batches)
        for examples in self._steps(first):
            for example in examples[done:]:
                self.position += 1
                yield example
            done = 0

    def _steps(self, first: int) -> Iterator[list[Example]]:
        steps = range(first, self.portions.steps)
        if self.workers == 0:
            return map(self.step, steps)
        own = (
            torch.Generator()
        )  # torch's global one would spend a draw on the workers' seeds, which would change dropout
        loader = DataLoader(
            _Steps(self), batch_size=None, sampler=steps, num_workers=self.workers, collate_fn=_as_is, generator=own
        )
        return iter(loader)

    def step(self, step: int) -> list[Example]:
        """This rank's micro-batches of an optimiser step."""
        own, counts = [], {}
        draws = shuffled.presented(self.portions, step, len(self.sequences))
        share = self.portions.batch_size // self.world_size
        micro = min(self.portions.micro_batch_size or share, share)
        for rank in range(self.world_size):
            for start in range(rank * share, (rank + 1) * share, micro):
                part = _rows(draws, slice(start, min(start + micro, (rank + 1) * share)))
                example = self.prepare(self.sequences.batch(part.sample), part, self.sequences.store.vocabulary)
                for name, count in example.counts.items():
                    counts[name] = counts.get(name, 0.0) + count
                own += [example] if rank == self.rank else []
        for example in own:
            example.counts = dict(counts)
        return own

    def _portions(self) -> dict:
        counted = asdict(self.portions)
        del counted["steps"]  # a longer run may continue a shorter one
        return counted | {"world_size": self.world_size, "sequences": len(self.sequences)}


def _rows(draws: Draws, rows: slice) -> Draws:
    return Draws(draws.seed, draws.rows[rows], draws.sample[rows], draws.epoch[rows])


def _as_is(examples: list[Example]) -> list[Example]:
    return examples


class _Steps(Dataset[list[Example]]):
    """The steps of a loader as a map-style data set, for torch's worker processes."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __getitem__(self, step: int) -> list[Example]:
        return self.batches.step(step)
