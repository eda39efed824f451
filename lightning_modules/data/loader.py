"""Lightning's data module of pretraining, and the baselines on its text."""

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pytorch_lightning as pl

from lightning_modules.config import ConfigError
from lightning_modules.data.baselines import bag_of_words, bigram
from lightning_modules.data.corpora.registry import Split
from lightning_modules.data.formats.input_format import InputFormat, Negatives
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.formats.running_text import Sequences
from lightning_modules.data.order.batches import Batches
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.data.order.portions import Portions
from lightning_modules.data.order.prepare import Prepare, uncorrupted
from lightning_modules.data.settings import Data
from lightning_modules.data.store import open_store

# question about a pair -> the pairs that ask it: does the second segment follow (NSP), are both in order (SOP)?
QUESTIONS: dict[str, Negatives] = {"nsp": "random", "sop": "swapped"}


@dataclass(eq=False, repr=False)
class PretrainingData(pl.LightningDataModule):
    """The text of a pretraining run for Lightning: training batches and fixed held-out examples.

    Attributes:
        data: Corpora and tokenizer.
        format: The input format.
        seed: Determines order and corruption.
        steps: Optimiser steps.
        batch_size: Sequences per optimiser step, over all ranks and micro-batches.
        micro_batch_size: Sequences per forward pass on one rank; None means all of the rank.
        prepare: Makes training examples; see ``Prepare``.
        prepare_heldout: Makes held-out examples, the same for every run.
        heldout_sequences: Maximum number of held-out sequences.
        workers: Processes that prepare batches; 0 (in this process) is fastest.
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

    def __str__(self) -> str:
        """What it holds, without opening it; Lightning's own would draw batches and look for lengths in them."""
        form = f"{self.format.kind.replace('_', ' ')} of {self.format.sequence_length} positions"
        work = f"{self.steps:,} steps of {self.batch_size} sequences"
        return f"{type(self).__name__}: {', '.join(self.data.corpora)}; {form}; {work}; seed {self.seed}"

    __repr__ = __str__

    def prepare_data(self) -> None:
        """Builds missing token stores, once per machine."""
        for split in ("train", "heldout"):
            open_store(self.data, split)

    def setup(self, stage: str) -> None:
        """Opens the stores, so that training time does not include it."""
        _ = self.sequences, self.heldout

    @functools.cached_property
    def sequences(self) -> Sequences | PairSequences:
        """The training sequences."""
        return self.format.arrange(open_store(self.data, "train"))

    @functools.cached_property
    def heldout(self) -> HeldOut:
        """The held-out examples, for validation and the bigram baseline alike."""
        sequences = self.format.heldout().arrange(open_store(self.data, "heldout"))
        size = self.micro_batch_size or self.batch_size
        return HeldOut(sequences, self.heldout_sequences, size, self.prepare_heldout)

    def heldout_pairs(self, negatives: Negatives, count: int, prepare: Prepare | None = None) -> HeldOut:
        """Held-out segment pairs of one construction, the same for every run of this data and sequence length.

        They have full length and consist of at least two sentences, so about half of them are
        negatives. The labels are in ``inputs.labels["sentence"]``.

        Args:
            negatives: The kind of negatives; see `InputFormat`.
            count: Maximum number of pairs.
            prepare: Makes the examples; by default ``prepare_heldout``.

        Raises:
            ConfigError: When the held-out text has no such pair.
        """
        pairs = self._pairs("heldout", negatives)
        return HeldOut(pairs, count, self.micro_batch_size or self.batch_size, prepare or self.prepare_heldout)

    def _pairs(self, split: Split, negatives: Negatives) -> PairSequences:
        length = self.format.sequence_length
        form = InputFormat(kind="segment_pairs", sequence_length=length, negatives=negatives, short_fraction=0.0)
        pairs = form.arrange_pairs(open_store(self.data, split)).of_several_sentences()
        if not len(pairs):
            raise ConfigError([f"the text of {pairs.store.folder} has no pair of at least two sentences."])
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
        """Held-out losses in nats of the bigram baseline (``bigram_loss``) and token frequencies (``unigram_loss``).

        For the targets of language models the names start with ``next_`` and ``previous_``.
        """
        named = {}
        for target in targets:
            losses = bigram.cached_baseline(self.sequences.store, list(self.heldout), target)
            kind = bigram.prefix(target)
            named |= {f"{kind}bigram_loss": losses.bigram, f"{kind}unigram_loss": losses.unigram}
        return named

    def pair_baselines(self, count: int) -> dict[str, float]:
        """Accuracies on `heldout_pairs` of TF-IDF + logistic regression and of the majority class.

        ``nsp_`` is for random negatives, ``sop_`` for swapped ones; then follows ``bow`` (all words), ``overlap``
        (shared words) or ``majority``.
        """
        shares = {}
        for name, negatives in QUESTIONS.items():
            pairs, chosen = self._pairs("heldout", negatives), self.heldout_pairs(negatives, count).chosen
            baseline = bag_of_words.cached_baseline(self._pairs("train", negatives), pairs, chosen)
            shares |= {f"{name}_{kind}": share for kind, share in asdict(baseline).items()}
        return shares
