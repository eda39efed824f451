"""Loaders: which sequences a run sees when, as a function of the data seed and the position alone.

Presentation ``p`` (the p-th sequence shown since training began) is sequence ``order[p % n]`` of epoch ``p // n``, each
epoch a fresh permutation. Optimiser step ``s`` takes presentations ``s * batch_size`` and up, so batches may cross
epochs and none is short. Ranks and micro-batches are slices of that one global batch.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from lightning_modules.batch import Example, Tokens, Vocabulary
from lightning_modules.config import ConfigError
from lightning_modules.data.baselines import bag_of_words, bigram
from lightning_modules.data.corpora.registry import Split
from lightning_modules.data.formats.input_format import InputFormat, Sequences
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.resumable import Resumable
from lightning_modules.data.settings import Data
from lightning_modules.data.store import open_store
from lightning_modules.draws import Draws, permutation

Prepare = Callable[[Tokens, Draws, Vocabulary], Example]

_HELDOUT_SEED = 0  # held-out sequences and their masks are the same for every run


def uncorrupted(tokens: Tokens, draws: Draws, vocabulary: Vocabulary) -> Example:
    """The example without any objective: nothing hidden, nothing predicted."""
    return Example.of(tokens)


@dataclass(frozen=True)
class Portions:
    """How many sequences are presented, in what portions.

    Attributes:
        seed: The data seed.
        batch_size: Sequences of an optimiser step, over all ranks and micro-batches.
        steps: Optimiser steps.
        micro_batch_size: Sequences of one forward pass on one rank; None means all of the rank's.
    """

    seed: int
    batch_size: int
    steps: int
    micro_batch_size: int | None = None

    def micro_batches(self, world_size: int = 1) -> int:
        """Forward passes of one optimiser step on one rank.

        Raises:
            ConfigError: When the batch cannot be shared equally.
        """
        if self.batch_size % world_size:
            raise ConfigError([f"batch_size {self.batch_size} cannot be shared equally by {world_size} ranks."])
        rows = self.batch_size // world_size
        return -(-rows // min(self.micro_batch_size or rows, rows))


class Batches(Resumable):
    """The training batches of one rank, micro-batch by micro-batch; resumable exactly.

    Each ``Example.counts`` holds the target counts of the whole optimiser step. Every rank prepares the global batch
    for that (0.1 ms); it yields only its own rows.

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
                [f"the text of {sequences.store.folder} makes no sequence of {sequences.length} positions."]
            )
        self.sequences, self.portions, self.prepare = sequences, portions, prepare
        self.rank, self.world_size, self.workers = rank, world_size, workers
        self.micro_batches = portions.micro_batches(world_size)
        self.position = 0  # micro-batches yielded

    def __len__(self) -> int:
        return self.portions.steps * self.micro_batches

    def __iter__(self) -> Iterator[Example]:
        if self.position >= len(self):  # a finished loader starts anew
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
        own = torch.Generator()  # torch's own would lose a draw to the workers' seeds, and dropout would change
        loader = DataLoader(
            _Steps(self), batch_size=None, sampler=steps, num_workers=self.workers, collate_fn=_as_is, generator=own
        )
        return iter(loader)

    def presented(self, step: int) -> Draws:
        """Which sequences a step presents, and the keys of their noise."""
        size, count = self.portions.batch_size, len(self.sequences)
        rows = np.arange(step * size, (step + 1) * size, dtype=np.int64)
        epoch, place = np.divmod(rows, count)
        sample = np.empty(size, dtype=np.int64)
        for number in np.unique(epoch).tolist():
            here = epoch == number
            sample[here] = _order(self.portions.seed, number, count)[place[here]]
        return Draws(seed=self.portions.seed, rows=rows, sample=sample, epoch=epoch)

    def step(self, step: int) -> list[Example]:
        """This rank's micro-batches of an optimiser step."""
        draws, own, counts = self.presented(step), [], {}
        share = self.portions.batch_size // self.world_size
        micro = min(self.portions.micro_batch_size or share, share)
        for rank in range(self.world_size):
            for start in range(rank * share, (rank + 1) * share, micro):
                part = _rows(draws, slice(start, min(start + micro, (rank + 1) * share)))
                example = self.prepare(self.sequences.batch(part.sample), part, self.sequences.store.vocabulary)
                for name, target in example.targets.items():
                    counts[name] = counts.get(name, 0.0) + target.count()
                own += [example] if rank == self.rank else []
        for example in own:
            example.counts = dict(counts)
        return own

    def _portions(self) -> dict:
        counted = asdict(self.portions)
        del counted["steps"]  # a longer run may continue a shorter one
        return counted | {"world_size": self.world_size, "sequences": len(self.sequences)}


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
    return permutation(seed, "order", epoch, size)


def _rows(draws: Draws, rows: slice) -> Draws:
    return Draws(draws.seed, draws.rows[rows], draws.sample[rows], draws.epoch[rows])


def _as_is(examples: list[Example]) -> list[Example]:
    return examples


class _Steps:
    """The steps of a loader as a map-style data set, for torch's worker processes."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __getitem__(self, step: int) -> list[Example]:
        return self.batches.step(step)


class HeldOut:
    """Fixed held-out sequences under fixed noise: the same examples for every run of the same data and format.

    Every rank evaluates all of them, so that each has the whole result.
    """

    def __init__(
        self, sequences: Sequences | PairSequences, count: int, batch_size: int, prepare: Prepare = uncorrupted
    ) -> None:
        self.sequences, self.batch_size, self.prepare = sequences, batch_size, prepare
        self.chosen = permutation(_HELDOUT_SEED, "heldout", 0, len(sequences))[:count]
        self._examples: list[Example] | None = None

    def __len__(self) -> int:
        return -(-len(self.chosen) // self.batch_size)

    def __iter__(self) -> Iterator[Example]:
        if self._examples is None:
            self._examples = [self._example(n * self.batch_size) for n in range(len(self))]
        return iter(self._examples)

    def _example(self, start: int) -> Example:
        sample = self.chosen[start : start + self.batch_size].astype(np.int64)
        draws = Draws(seed=_HELDOUT_SEED, rows=sample, sample=sample, epoch=np.zeros_like(sample))
        return self.prepare(self.sequences.batch(sample), draws, self.sequences.store.vocabulary)


@dataclass(eq=False, repr=False)
class PretrainingData(pl.LightningDataModule):
    """The text of a pretraining run for Lightning: training batches and fixed held-out examples.

    Attributes:
        data: Corpora and tokenizer.
        format: How documents become sequences.
        seed: Order and corruption follow from it.
        steps: Optimiser steps.
        batch_size: Sequences of an optimiser step, over all ranks and micro-batches.
        micro_batch_size: Sequences of one forward pass on one rank; None means all of the rank's.
        prepare: Makes training examples; see ``Prepare``.
        prepare_heldout: Makes held-out examples, the same for every run.
        heldout_sequences: How many held-out sequences, at most.
        workers: Processes that prepare batches; 0, in this process, is fastest.
    """

    data: Data
    format: InputFormat
    seed: int
    steps: int
    batch_size: int
    micro_batch_size: int | None = None
    prepare: Prepare = uncorrupted
    prepare_heldout: Prepare = uncorrupted
    heldout_sequences: int = 1024
    workers: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def prepare_data(self) -> None:
        """Builds the token stores that are not there yet (once a machine)."""
        for split in ("train", "heldout"):
            open_store(self.data, split)

    def setup(self, stage: str) -> None:
        """Opens the stores, so that no time of a training goes into it."""
        _ = self.sequences, self.heldout

    @functools.cached_property
    def sequences(self) -> Sequences | PairSequences:
        """What is trained on."""
        return self.format.arrange(open_store(self.data, "train"))

    @functools.cached_property
    def heldout(self) -> HeldOut:
        """The held-out examples, for validation and the neighbour baseline alike."""
        sequences = self.format.heldout().arrange(open_store(self.data, "heldout"))
        size = self.micro_batch_size or self.batch_size
        return HeldOut(sequences, self.heldout_sequences, size, self.prepare_heldout)

    def heldout_pairs(
        self, negatives: Literal["random", "swapped"], count: int, prepare: Prepare | None = None
    ) -> HeldOut:
        """Held-out segment pairs of one construction, the same for every run of this data and sequence length.

        They fill their sequences and come from chunks of at least two sentences, so about half of them are
        negatives. The labels are in ``inputs.labels["sentence"]``.

        Args:
            negatives: What stands in half of the pairs; see `InputFormat`.
            count: How many pairs, at most.
            prepare: Makes the examples; ``prepare_heldout`` unless something else is asked of them.

        Raises:
            ConfigError: When the held-out text makes no such pair.
        """
        pairs = self._pairs("heldout", negatives)
        return HeldOut(pairs, count, self.micro_batch_size or self.batch_size, prepare or self.prepare_heldout)

    def _pairs(self, split: Split, negatives: Literal["random", "swapped"]) -> PairSequences:
        length = self.format.sequence_length
        form = InputFormat(kind="segment_pairs", sequence_length=length, negatives=negatives, short_fraction=0.0)
        pairs = form.arrange(open_store(self.data, split)).of_several_sentences()
        if not len(pairs):
            raise ConfigError([f"the text of {pairs.store.folder} makes no pair of at least two sentences."])
        return pairs

    def train_dataloader(self) -> Batches:
        """The training batches of this rank."""
        portions = Portions(self.seed, self.batch_size, self.steps, self.micro_batch_size)
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return Batches(self.sequences, portions, self.prepare, rank=rank, world_size=world, workers=self.workers)

    def val_dataloader(self) -> HeldOut:
        """The held-out examples."""
        return self.heldout

    def baselines(self, targets: Sequence[str] = ("mlm",)) -> dict[str, float]:
        """Held-out losses, in nats, of the neighbour model (``bigram_loss``) and of frequencies (``unigram_loss``).

        One pair of names a target; those of next and previous tokens start with ``next_`` and ``previous_``.
        """
        named = {}
        for target in targets:
            found = bigram.cached_baseline(self.sequences.store, list(self.heldout), target)
            kind = bigram.prefix(target)
            named |= {f"{kind}bigram_loss": found.bigram, f"{kind}unigram_loss": found.unigram}
        return named

    def pair_baselines(self, count: int) -> dict[str, float]:
        """Shares of the pairs of `heldout_pairs` that are answered rightly by word counts and by the majority answer.

        ``nsp_`` is for random negatives, ``sop_`` for swapped ones; behind it stand ``bow`` (all words),
        ``overlap`` (the words that both segments have) and ``majority``.
        """
        found = {}
        for name, negatives in (("nsp", "random"), ("sop", "swapped")):
            asked = self.heldout_pairs(negatives, count)
            answer = bag_of_words.cached_baseline(self._pairs("train", negatives), asked.sequences, asked.chosen)
            found |= {f"{name}_{kind}": share for kind, share in asdict(answer).items()}
        return found
