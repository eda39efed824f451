"""Lightning's data module of pretraining, and the baselines on its text."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytorch_lightning as pl

from lightning_modules.batch import Annotation, Direction, Example
from lightning_modules.config import ConfigError
from lightning_modules.data.annotations import open_annotated
from lightning_modules.data.baselines import bigram, pair_methods
from lightning_modules.data.formats.format import InputFormat, Sequences, Subset
from lightning_modules.data.formats.pairs import (
    Negatives,
    Pairing,
    PairSequences,
    SegmentPairFormat,
    truncation_control,
)
from lightning_modules.data.formats.stream import Stream
from lightning_modules.data.formats.text import Multilingual
from lightning_modules.data.order.batches import Batches, CollateFn, Prefetch, uncorrupted
from lightning_modules.data.order.heldout import HeldOut, HeldOutStream, Reading
from lightning_modules.data.order.sampler import BatchSchedule
from lightning_modules.data.settings import Data
from lightning_modules.data.store import open_store, tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.whole_words import HiddenWords, hidden_words, stretches

# question about a pair -> the pairs that ask it: does the second segment follow (NSP), are both in order (SOP)?
QUESTIONS: dict[str, Negatives] = {"nsp": "random", "sop": "swapped"}


@dataclass(eq=False, repr=False)
class PretrainingData(pl.LightningDataModule):
    """The text of a pretraining run for Lightning: training batches and fixed held-out examples.

    Attributes:
        seed: Determines order and corruption.
        batch_size: Sequences per optimiser step, over all ranks and micro-batches.
        micro_batch_size: Sequences per forward pass on one rank; None means all of the rank.
        collate: Makes training examples; see ``CollateFn``.
        collate_heldout: Makes held-out examples, the same for every run.
        heldout_format: The format of the held-out text; by default that of ``format``.
        heldout_sequences: Maximum number of held-out sequences.
        pairing: The construction of held-out pairs.
        by_tokens: Whether a step has as many tokens as ``batch_size`` sequences of full length, not so many sequences.
        bucket_steps: Steps by tokens whose sequences are sorted by length together.
        words_rate: Share of words hidden in `whole_words`.
        direction: In which held-out text is visible there.
        workers: Processes that prepare batches; 0 (in this process) is fastest on a CPU.
        prefetch: How batches reach the device; None is what suits that of the Trainer.
        reads: Annotations of the training text: annotator and kind of tags.
        reading: How held-out streams are read.
    """

    data: Data
    format: InputFormat
    seed: int
    steps: int
    batch_size: int
    micro_batch_size: int | None = None
    collate: CollateFn = uncorrupted
    collate_heldout: CollateFn = uncorrupted
    heldout_format: InputFormat | None = None
    heldout_sequences: int = 1024
    pairing: Pairing = "released"
    by_tokens: bool = False
    bucket_steps: int = 1
    words_rate: float = 0.15
    direction: Direction = "both"
    workers: int = 0
    prefetch: Prefetch | None = None
    reads: frozenset[Annotation] = frozenset()
    reading: Reading | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        """What it holds, without opening it; Lightning's own would draw batches and look for lengths in them."""
        form = f"{self.format.kind.replace('_', ' ')} of {self.format.sequence_length} positions"
        work = f"{self.steps:,} steps of {self.batch_size} sequences"
        return f"{type(self).__name__}: {', '.join(self.data.corpora)}; {form}; {work}; seed {self.seed}"

    __repr__ = __str__

    def prepare_data(self) -> None:
        """Builds missing token stores and annotations, once per machine."""
        open_annotated(self.data, "train", self.reads)
        open_store(self.data, "heldout")

    def setup(self, stage: str) -> None:
        """Opens the stores, so that training time does not include it."""
        _ = self.train_dataloader(), self.heldout

    @functools.cached_property
    def sequences(self) -> Sequences:
        """The training sequences."""
        return self._arranged(self.format)

    def _arranged(self, form: InputFormat) -> Sequences:
        return Subset.share(form.arrange(open_annotated(self.data, "train", self.reads)), form.share)

    @functools.cached_property
    def first_sequences(self) -> Sequences | None:
        """The training sequences of the first steps of a length curriculum, if there is one."""
        form = self.format.first()
        return self._arranged(form) if form else None

    @property
    def schedule(self) -> BatchSchedule:
        """The division of the training into steps and micro-batches."""
        first_steps = sum(steps for _, steps in self.format.stages(self.steps)[:-1])
        form = self.format.resolved()
        return BatchSchedule(
            self.seed, self.batch_size, self.steps, self.micro_batch_size, self.by_tokens, first_steps,
            both_ways=form.both_ways, drawn=form.row_starts == "drawn",
            lengths_drawn=form.lengths == "drawn",
            drawn_multiple=self._prefetch.drawn_multiple if form.lengths == "drawn" else 1,
            language_exponent=form.language_exponent, bucket_steps=self.bucket_steps,
        )  # fmt: skip

    @property
    def _prefetch(self) -> Prefetch:
        return self.prefetch or Prefetch.of(self.trainer)

    @property
    def provenance(self) -> dict[str, Any]:
        """What a record says of how batches reached the device."""
        multiple = self.schedule.drawn_multiple
        return self._prefetch.provenance | ({"drawn_lengths_in_multiples_of": multiple} if multiple > 1 else {})

    def state_dict(self) -> dict[str, Any]:
        """What drawn lengths are multiples of, if they are drawn: where a step reads follows from those before it."""
        schedule = self.schedule
        return {"drawn_multiple": schedule.drawn_multiple} if schedule.lengths_drawn else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on as on the device that the training began on, so that it reads the same text."""
        self.prefetch = replace(self._prefetch, **state)

    @functools.cached_property
    def heldout(self) -> HeldOut:
        """The held-out examples of the measurements during a training."""
        return self.some_heldout(self.heldout_sequences)

    def some_heldout(self, count: int, collate: CollateFn | None = None) -> HeldOut:
        """At most ``count`` held-out sequences, the same for every run; a larger number begins with a smaller one's.

        Of a stream it is as many positions in rows; a larger number goes on where the rows of a smaller one end.
        """
        form = self.heldout_format or self.format.heldout()
        sequences = form.arrange(open_store(self.data, "heldout"))
        if isinstance(sequences, Stream):
            reading = self.reading or Reading(rows=8, length=sequences.length)
            return HeldOutStream(sequences, count * sequences.length, reading, collate or self.collate_heldout)
        size = self.micro_batch_size or self.batch_size
        return HeldOut(sequences, count, size, collate or self.collate_heldout)

    def heldout_pairs(self, negatives: Negatives, count: int, collate: CollateFn | None = None) -> HeldOut:
        """Held-out segment pairs of one construction, the same for every run of this data and sequence length.

        They have full length and consist of at least two sentences, so about half of them are
        negatives, of matched pairs exactly half. The labels are in ``inputs.labels["sentence"]``.

        Args:
            negatives: The kind of negatives; see `InputFormat`.
            collate: Makes the examples; by default ``collate_heldout``.

        Raises:
            ConfigError: When the held-out text has no such pair.
        """
        pairs = truncation_control(self._asked_pairs(negatives, count), self.format.resolved().excerpt)
        return HeldOut(pairs, count, self.micro_batch_size or self.batch_size, collate or self.collate_heldout)

    def _asked_pairs(self, negatives: Negatives, count: int) -> PairSequences:
        form, store = self._pair_format(negatives), open_store(self.data, "heldout")
        return _some(form.arrange_asked(store, count), self.pairing)

    def _pair_format(self, negatives: Negatives) -> SegmentPairFormat:
        length, pairing = self.format.sequence_length, self.pairing
        return SegmentPairFormat(sequence_length=length, negatives=negatives, pairing=pairing, short_fraction=0.0)

    def heldout_translations(self, count: int, collate: CollateFn) -> tuple[HeldOut, HeldOut]:
        """Held-out sentences next to their translations, and the same next to translations of others.

        Each pair has both of its sentences first, in rows of their own. Pairs that have no room for the translation of
        the other are left out.

        Raises:
            ConfigError: When the held-out text has no pair.
        """
        form = self.format.heldout().model_copy(update={"languages": "pairs"})
        pairs = form.arrange(open_store(self.data, "heldout"))
        assert isinstance(pairs, Multilingual)
        pairs = pairs.both_ways()
        others = pairs.mismatched()
        fits = others.sizes <= others.length
        size = self.micro_batch_size or self.batch_size
        own, other = (HeldOut(one.taken(fits), count, size, collate) for one in (pairs, others))
        return own, other

    def whole_words(self, count: int) -> HiddenWords:
        """Held-out text with the same words hidden under every tokenizer.

        Args:
            count: Stretches of text, at most.

        Raises:
            ConfigError: When the text has no word that can be hidden.
        """
        length = self.format.heldout().sequence_length
        return hidden_words(
            stretches(self.data, length, count),
            Encoder(tokenizer_file(self.data), self.data.tokenizer.kind),
            length=length,
            rate=self.words_rate,
            batch_size=self.micro_batch_size or self.batch_size,
            direction=self.direction,
        )

    def train_dataloader(self) -> Batches:
        """The training batches of this rank."""
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return Batches(
            self.sequences, self.schedule, self.collate, rank=rank, world_size=world, workers=self.workers,
            prefetch=self._prefetch, first=self.first_sequences,
        )  # fmt: skip

    def val_dataloader(self) -> HeldOut:
        """The held-out examples."""
        return self.heldout

    def baselines(
        self, targets: Sequence[str] = ("mlm",), heldout: Iterable[Example] | None = None
    ) -> dict[str, float]:
        """Losses in nats of the bigram baseline (``bigram_loss``) and token frequencies (``unigram_loss``).

        For the targets of language models the names start with ``next_`` and ``previous_``. Nothing for whole words
        and targets of an objective of one's own, which are not counted.

        Args:
            targets: What is predicted.
            heldout: The text that is predicted; by default that of the measurements during a training.
        """
        named, examples = {}, list(heldout or self.heldout)
        for target in targets:
            if target not in bigram.OF_TOKENS:
                continue
            losses = bigram.cached_baseline(self.sequences.store, examples, target)
            kind = bigram.prefix(target)
            named |= {f"{kind}bigram_loss": losses.bigram, f"{kind}unigram_loss": losses.unigram}
        return named

    def pair_baselines(self, count: int) -> dict[str, float]:
        """Accuracies on `heldout_pairs` of simple methods; see `pair_methods.METHODS`, and of the best of them.

        ``nsp_`` is for random negatives, ``sop_`` for swapped ones; then follows the method's name.
        """
        shares = {}
        for name, negatives in QUESTIONS.items():
            for method, share in pair_methods.as_metrics(self.pair_scores(negatives, count)).items():
                shares[f"{name}_{method}"] = share
        return shares

    def pair_scores(self, negatives: Negatives, count: int) -> dict[str, pair_methods.Score]:
        """The scores on `heldout_pairs` of simple methods that learn from training pairs of the same construction.

        Raises:
            ConfigError: When either text has no such pair.
        """
        chosen = self.heldout_pairs(negatives, count).chosen
        pairs, shown = self._asked_pairs(negatives, count), self.format.resolved().excerpt
        train = self._pair_format(negatives).arrange_whole(open_store(self.data, "train")).of_several_sentences()
        train = _some(train, self.pairing)
        return pair_methods.cached_scores(truncation_control(train, shown), truncation_control(pairs, shown), chosen)


def _some(pairs: PairSequences, pairing: Pairing) -> PairSequences:
    if not len(pairs):
        matching = " that can be matched with others" if pairing == "matched" else ""
        text = f"the text of {pairs.store.folder} has no pair of at least two sentences{matching}"
        raise ConfigError([f"{text} in {pairs.length} positions. Add text or raise format.sequence_length."])
    return pairs
