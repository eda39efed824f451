"""The training batches of a rank: slices of one global batch, which is a function of seed and step alone."""

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from lightning_modules.batch import Example, SegmentState
from lightning_modules.data.formats.parts import Arranged
from lightning_modules.data.formats.stream import Stream
from lightning_modules.data.order.phases import phases
from lightning_modules.data.order.portions import Portions
from lightning_modules.data.order.prepare import Prepare, uncorrupted
from lightning_modules.data.order.resumable import PLAIN, Feeding, Resumable, made_ahead

_ADDED = {
    "by_tokens": False,
    "first_steps": 0,
    "both_ways": False,
    "drawn": False,
    "lengths_drawn": False,
    "drawn_multiple": 1,
    "language_exponent": 1.0,
    "bucket_steps": 1,
}  # later than the first checkpoints, where they are without effect


class Batches(Resumable):
    """The training batches of one rank, micro-batch by micro-batch; resumable exactly.

    Steps by tokens have rows no longer than the longest of their micro-batch. The padding that is left out changes no
    number but rounding, and which random numbers of dropout meet which position.

    The rows of a stream are those of the same micro-batch of the same rank at every step (`Tokens.segment_state`).

    Each ``Example.counts`` holds the counts of the whole optimiser step. For that, every rank prepares the
    global batch (0.1 ms) and yields only its own rows.

    Lightning reads ``state_dict`` after each batch and prefetches none because ``__len__`` is defined.
    """

    def __init__(
        self,
        sequences: Arranged,
        portions: Portions,
        prepare: Prepare = uncorrupted,
        *,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        feeding: Feeding = PLAIN,
        first: Arranged | None = None,
    ) -> None:
        self.phases, self.portions, self.prepare = phases(sequences, portions, first), portions, prepare
        self.rank, self.world_size, self.workers, self.feeding = rank, world_size, workers, feeding
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
            return made_ahead(map(self.step, steps), self.feeding.ahead)
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
        phase = next(phase for phase in reversed(self.phases) if phase.start <= step)
        sequences, draws, fresh = phase.sequences, phase.presented(step), phase.fresh(step)
        drawn = phase.length(step)
        sizes = phase.order.sizes[draws.sample] if drawn is None else np.full(len(draws.sample), drawn)
        for rank, parts in enumerate(self.portions.divided(sizes, self.world_size)):
            for group, rows in enumerate(parts):
                length = int(sizes[rows].max()) if self.portions.by_tokens else sequences.length
                part = draws.of(rows)
                if isinstance(sequences, Stream) and fresh is not None:
                    going = _going(group, fresh, phase.order.backward, rows)
                    if drawn is None:
                        tokens = sequences.going(part.sample, going)
                    else:
                        tokens = sequences.stretches(part.sample, drawn, going)
                else:
                    tokens = sequences.batch(part.sample, length)
                example = self.prepare(tokens, part, sequences.store.vocabulary)
                for name, count in example.counts.items():
                    counts[name] = counts.get(name, 0.0) + count
                if rank == self.rank:
                    own.append(example.widened(self.feeding.multiple, sequences.length))
        for example in own:
            example.counts = dict(counts)
        return own

    def _portions(self) -> dict:
        counted = asdict(self.portions)
        del counted["steps"]  # a longer run may continue a shorter one
        counted = {name: value for name, value in counted.items() if name not in _ADDED or value != _ADDED[name]}
        numbers = {"sequences": len(self.phases[-1].sequences)}
        if len(self.phases) > 1:
            numbers["first_sequences"] = len(self.phases[0].sequences)
        return counted | {"world_size": self.world_size, **numbers}


def _going(group: int, fresh: bool, backward: np.ndarray | None, rows: np.ndarray) -> SegmentState:
    """How some rows of a step go on; a micro-batch without any that goes on to the left is as one of a plain stream."""
    anew = torch.ones(len(rows), dtype=torch.bool) if fresh else None
    back = None if backward is None or not backward[rows].any() else torch.from_numpy(backward[rows])
    return SegmentState(group, anew, back)


def _as_is(examples: list[Example]) -> list[Example]:
    return examples


class _Steps(Dataset[list[Example]]):
    """The steps of a loader as a map-style data set, for torch's worker processes."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __getitem__(self, step: int) -> list[Example]:
        return self.batches.step(step)
