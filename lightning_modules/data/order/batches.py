"""The training batches of a rank: slices of one global batch, which is a function of seed and step alone."""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from lightning_modules.batch import Example, SegmentState, Tokens, Vocabulary
from lightning_modules.config import ConfigError
from lightning_modules.data.formats.format import Sequences
from lightning_modules.data.formats.stream import Stream
from lightning_modules.data.formats.text import Multilingual
from lightning_modules.data.order.sampler import BatchSchedule, stages
from lightning_modules.draws import Draws

if TYPE_CHECKING:  # planning does without Lightning, which takes seconds
    import pytorch_lightning

_Item = TypeVar("_Item")
CollateFn = Callable[[Tokens, Draws, Vocabulary], Example]  # makes examples of sequences: how a system corrupts them


def uncorrupted(tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> Example:
    """The example without objectives: no corruption and no targets."""
    return Example.of(tokens)


@dataclass(frozen=True)
class Prefetch:
    """How a loader feeds a device.

    Attributes:
        ahead: Steps that a thread prepares while the device works on others. 0 prepares each when it is needed.
        multiple: Rows and what is read of them take sizes that are multiples of it (`Example.widened`).
        drawn_multiple: Lengths of steps that are drawn are rounded to multiples of it (`drawn_lengths`).
    """

    ahead: int = 0
    multiple: int = 1
    drawn_multiple: int = 1

    @property
    def provenance(self) -> dict[str, int]:
        """What a record says of it: the multiple, where it is not 1."""
        return {"sizes_in_multiples_of": self.multiple} if self.multiple > 1 else {}

    @classmethod
    def of(cls, trainer: "pytorch_lightning.Trainer | None") -> "Prefetch":
        """That of the device of a Trainer: a GPU works ahead of the program, and is fast on sizes that it has met."""
        on_gpu = trainer is not None and trainer.strategy.root_device.type == "cuda"
        return cls(ahead=2, multiple=16, drawn_multiple=8) if on_gpu else PLAIN


PLAIN = Prefetch()


def made_ahead(items: Iterator[_Item], count: int) -> Generator[_Item]:
    """The same items, up to so many of which a thread makes before they are needed. An error comes in its place."""
    if not count:
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(1, "batches") as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(count))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # pyright: ignore[reportReturnType]


class Resumable(ABC):
    """A loader that continues at its position when training resumes.

    Attributes:
        position: Batches yielded since training began.
    """

    position: int

    def state_dict(self) -> dict:
        """The position, and the batch sizes that it refers to."""
        return {"position": self.position, "portions": self._sizes()}

    def load_state_dict(self, state: dict) -> None:
        """Continues after the batches that were yielded before.

        Raises:
            ConfigError: When the position refers to other batch sizes.
        """
        if state["portions"] != self._sizes():
            raise ConfigError(
                [f"this data position was saved with {state['portions']}, but the loader has {self._sizes()}."]
            )
        self.position = state["position"]

    @abstractmethod
    def _sizes(self) -> dict:
        """What positions refer to: loaders with equal values have the same batch at the same position."""


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
        sequences: Sequences,
        schedule: BatchSchedule,
        collate: CollateFn = uncorrupted,
        *,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        prefetch: Prefetch = PLAIN,
        first: Sequences | None = None,
    ) -> None:
        self.stages, self.schedule, self.collate = stages(sequences, schedule, first), schedule, collate
        self.rank, self.world_size, self.workers, self.prefetch = rank, world_size, workers, prefetch
        self.micro_batches = schedule.micro_batches(world_size)
        self.position = 0  # micro-batches yielded

    def __len__(self) -> int:
        return self.schedule.steps * self.micro_batches

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
        steps = range(first, self.schedule.steps)
        if self.workers == 0:
            return made_ahead(map(self.step, steps), self.prefetch.ahead)
        # torch's global generator would spend a draw on the workers' seeds, which would change dropout
        loader = DataLoader(
            _Steps(self), batch_size=None, sampler=steps, num_workers=self.workers, collate_fn=list,
            generator=torch.Generator(),
        )  # fmt: skip
        return iter(loader)

    def step(self, step: int) -> list[Example]:
        """This rank's micro-batches of an optimiser step."""
        own, counts = [], {}
        stage = next(stage for stage in reversed(self.stages) if stage.start <= step)
        sequences, sampler, number = stage.sequences, stage.sampler, step - stage.start
        draws, resets, drawn = sampler.presented(number), sampler.resets(number), sampler.length(number)
        sizes = sampler.sizes[draws.sample] if drawn is None else np.full(len(draws.sample), drawn)
        for rank, parts in enumerate(self.schedule.divided(sizes, self.world_size)):
            for group, rows in enumerate(parts):
                part = draws.of(rows)
                if isinstance(sequences, Stream) and resets is not None:
                    tokens = sequences.continued(
                        part.sample, _segment_state(group, resets, sampler.backward, rows), drawn
                    )
                else:
                    length = int(sizes[rows].max()) if self.schedule.by_tokens else sequences.length
                    tokens = sequences.batch(part.sample, length)
                example = self.collate(tokens, part, sequences.store.vocabulary)
                for name, count in example.counts.items():
                    counts[name] = counts.get(name, 0.0) + count
                if rank == self.rank:
                    own.append(example.widened(self.prefetch.multiple, sequences.length))
        for example in own:
            example.counts = dict(counts)
        return own

    def shown(self, steps: int) -> Counter[int]:
        """Positions -> how many rows of so many positions the first steps show, on all ranks.

        Where steps have equally many sequences, rows count in full, as published costs do; by tokens without padding,
        and of drawn lengths as they were drawn.
        """
        rows: Counter[int] = Counter()
        for stage in self.stages:
            lengths = stage.lengths(steps)
            if self.schedule.by_tokens or self.schedule.lengths_drawn:
                rows.update({int(length): int(lengths[length]) for length in np.flatnonzero(lengths)})
            else:
                rows[stage.sequences.length] += int(lengths.sum())
        return rows

    def real_tokens(self, steps: int) -> int:
        """The positions that are no padding of all rows that the first steps show."""
        counted = (stage.lengths(steps) for stage in self.stages)
        return sum(int(np.dot(lengths, np.arange(len(lengths)))) for lengths in counted)

    def tokens_by_language(self, steps: int) -> dict[str, int]:
        """Language -> the positions of its rows that are no padding, of those that the first steps show.

        Of a pair those of each sentence. Empty where languages are not known.
        """
        last = self.stages[-1]
        if not isinstance(last.sequences, Multilingual):
            return {}
        counts = last.sampler.counts(min(steps, last.steps)) @ last.sequences.tokens_by_language()
        return dict(zip(last.sequences.names, map(int, counts), strict=True))

    def _sizes(self) -> dict:
        given = {field.name: (getattr(self.schedule, field.name), field.default) for field in fields(self.schedule)}
        # other fields with a default are later than the first checkpoints
        counted = {n: value for n, (value, default) in given.items() if n == "micro_batch_size" or value != default}
        del counted["steps"]  # a longer run may continue a shorter one
        counted |= {"world_size": self.world_size, "sequences": len(self.stages[-1].sequences)}
        return counted | ({"first_sequences": len(self.stages[0].sequences)} if len(self.stages) > 1 else {})


def _segment_state(group: int, resets: bool, backward: np.ndarray | None, rows: np.ndarray) -> SegmentState:
    """How some rows of a step go on; a micro-batch without any that goes on to the left is as one of a plain stream."""
    anew = torch.ones(len(rows), dtype=torch.bool) if resets else None
    back = None if backward is None or not backward[rows].any() else torch.from_numpy(backward[rows])
    return SegmentState(group, anew, back)


class _Steps(Dataset[list[Example]]):
    """The steps of a loader as a map-style data set, for torch's worker processes."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __getitem__(self, step: int) -> list[Example]:
        return self.batches.step(step)
