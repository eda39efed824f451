"""Batches of a task for Lightning: which examples are seen when, as a function of seed and epoch alone.

Examples of similar length share a batch, which keeps padding small: an epoch's random order is cut into windows of
several batches, each window is sorted by length and cut into batches, and the batches are shuffled. The last batch of
an epoch may be short; each example is seen once per epoch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from lightning_modules.batch import Example
from lightning_modules.data.formats.text import TABLE
from lightning_modules.data.order.batches import PLAIN, Prefetch, Resumable, made_ahead
from lightning_modules.data.settings import Data
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.characters import spelt
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.draws import permutation
from lightning_modules.objectives import LanguageModel
from lightning_modules.tasks import unlabelled, validation
from lightning_modules.tasks.reading.layout import MARKS
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.scores.kept import packed_probabilities
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.shapes.shape import Inputs, Scored
from lightning_modules.tasks.shapes.texts import TextExamples
from lightning_modules.tasks.task import Split, Task

_WINDOW = 32  # batches sorted by length together


class Batches(Resumable):
    """The training batches of all epochs, one after the other; resumable exactly.

    Lightning reads ``state_dict`` after each batch and prefetches none because ``__len__`` is defined.

    Args:
        seed: The order follows from it.
        epochs: How often each item is seen.
        steps: Number of batches in all, instead of ``epochs``; the last epoch may be incomplete.
        prefetch: How batches reach the device.
    """

    def __init__(
        self,
        inputs: Inputs,
        seed: int,
        epochs: int,
        batch_size: int,
        steps: int | None = None,
        prefetch: Prefetch = PLAIN,
    ) -> None:
        self.inputs, self.seed, self.batch_size, self.prefetch = inputs, seed, batch_size, prefetch
        self.steps = steps or epochs * self.each_epoch
        self.position = 0  # batches yielded

    @property
    def each_epoch(self) -> int:
        """Batches per epoch."""
        return -(-len(self.inputs) // self.batch_size)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Example]:
        if self.position >= len(self):  # a finished loader starts again
            self.position = 0
        for example in made_ahead(self._from(self.position), self.prefetch.ahead):
            self.position += 1
            yield example

    def _from(self, position: int) -> Iterator[Example]:
        while position < len(self):
            epoch, done = divmod(position, self.each_epoch)
            for indices in self.epoch(epoch)[done : done + len(self) - position]:
                position += 1
                yield _sized(self.inputs, indices, self.prefetch)

    def epoch(self, number: int) -> list[np.ndarray]:
        """The numbers of the items of each batch of an epoch."""
        order, size = permutation(self.seed, "task order", number, len(self.inputs)), self.batch_size
        lengths, batches = self.inputs.sizes.max(1), []
        for window in _cut(order, size * _WINDOW):
            batches += _cut(window[np.argsort(lengths[window], kind="stable")], size)
        return [batches[n] for n in permutation(self.seed, "task batches", number, len(batches)).tolist()]

    @cached_property
    def shapes(self) -> np.ndarray:
        """For each training batch: rows, positions per row, and positions that are not padding ``[n 3]``."""
        epochs = range(-(-len(self) // self.each_epoch))
        sizes = [self.inputs.sizes[indices] for number in epochs for indices in self.epoch(number)]
        return np.array([(batch.size, batch.max(), batch.sum()) for batch in sizes[: len(self)]])

    def _sizes(self) -> dict:
        return {"seed": self.seed, "batch_size": self.batch_size, "examples": len(self.inputs)}


class InOrder:
    """Every item once, sorted by length; independent of any seed."""

    def __init__(self, inputs: Inputs, batch_size: int, prefetch: Prefetch = PLAIN) -> None:
        self.inputs, self.prefetch = inputs, prefetch
        self.order = np.argsort(inputs.sizes.max(1), kind="stable")
        self.batches = _cut(self.order, batch_size)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Example]:
        examples = (_sized(self.inputs, indices, self.prefetch) for indices in self.batches)
        return made_ahead(examples, self.prefetch.ahead)


def _sized(inputs: Inputs, indices: np.ndarray, prefetch: Prefetch) -> Example:
    """A batch of some items in the sizes that suit a device; no row becomes longer than the longest of all."""
    example = inputs.batch(indices)
    return example if prefetch == PLAIN else example.widened(prefetch.multiple, int(inputs.sizes.max()))


def _cut(numbers: np.ndarray, size: int) -> list[np.ndarray]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


class Changed:
    """The items of a split with something changed in each batch."""

    def __init__(self, inputs: Inputs, change: Callable[[Example], Example]) -> None:
        self.inputs, self.change = inputs, change
        self.examples, self.sizes = inputs.examples, inputs.sizes

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: np.ndarray) -> Example:
        """The items with these numbers, changed."""
        return self.change(self.inputs.batch(indices))


def _spelt(vocabulary: Vocabulary, example: Example) -> Example:
    return replace(example, inputs=spelt(example.inputs, vocabulary))


def _in_language(number: int, example: Example) -> Example:
    """With the number of its language at every position; `NO_LANGUAGE` leaves it out."""
    example.inputs.tables[TABLE] = torch.full_like(example.inputs.ids, number)
    return example


@dataclass(eq=False, repr=False)
class TaskData(pl.LightningDataModule):
    """The examples of a task for Lightning.

    Attributes:
        data: The pretraining text, whose tokenizer encodes the examples.
        settings: Batch size, epochs, maximum length.
        seed: Determines the order of the training examples.
        own: The tokenizer of a published checkpoint, which replaces that of ``data``.
        language_model: What the training examples predict besides the task. None for the task alone.
        characters: Whether the model reads words by their characters.
        backward: Whether it reads texts reversed.
        languages: Split -> the number that the model has for the language of its texts; None without embeddings of
            languages.
    """

    data: Data
    task: Task
    settings: FineTuning
    seed: int
    own: Encoder | None = None
    language_model: LanguageModel | None = None
    characters: bool = False
    backward: bool = False
    languages: Mapping[Split, int] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        """What it holds, without opening it; Lightning's own would draw batches and look for lengths in them."""
        size = f"batches of {self.settings.batch_size}, at most {self.settings.max_length} positions"
        return f"{type(self).__name__}: {self.task.title}; {size}; seed {self.seed}"

    __repr__ = __str__

    def setup(self, stage: str) -> None:
        """Encodes the examples, so that training time does not include it."""
        _ = self.train, self.dev

    @cached_property
    def encoder(self) -> Encoder:
        """The tokenizer of pretraining."""
        return self.own or Encoder(tokenizer_file(self.data), self.data.tokenizer.kind)

    @cached_property
    def train(self) -> Inputs:
        """The training examples."""
        return self._inputs("train")

    @cached_property
    def dev(self) -> Inputs:
        """The examples that are scored: the dev set, or with ``validation_share`` a part of the training examples."""
        return self._inputs("dev")

    def _inputs(self, split: Split) -> Inputs:
        name, share = self.task.name, self.settings.validation_share
        if split == "train":
            examples = validation.drawn(name, share, self.settings.train_examples, self.seed)
            if further := unlabelled.drawn(name, self.settings, self.seed, self.dev.examples):
                assert isinstance(examples, TextExamples), "`tasks.fitting` refuses those of other shapes"
                examples = examples.beside(further)
        else:
            examples = validation.examples(name, split, share)
        return self.encoded(examples)

    def encoded(self, examples: Any) -> Inputs:
        """The items of some examples of the task's shape."""
        pieces = Pieces.of(examples.texts(), self.encoder)
        pieces = pieces.backward(self.settings.max_length - MARKS) if self.backward else pieces
        return self.task.shape.inputs(examples, pieces, self.encoder.vocabulary, self.settings)

    def shown(self, split: Split) -> Inputs:
        """The items of a split as the model reads them."""
        inputs = self.train if split == "train" else self.dev
        inputs = Changed(inputs, partial(_spelt, self.encoder.vocabulary)) if self.characters else inputs
        return Changed(inputs, partial(_in_language, self.languages[split])) if self.languages else inputs

    def score(self, outputs: list[np.ndarray]) -> Scored:
        """Scores the outputs of each dev item, in the order of `val_dataloader`."""
        place = np.argsort(self.val_dataloader().order)
        in_order, shape = [outputs[n] for n in place.tolist()], self.task.shape
        scored = self.task.score(shape.answers(in_order, self.dev), self.dev.examples)
        return replace(scored, kept=scored.kept | packed_probabilities(shape.probabilities(in_order)))

    @property
    def provenance(self) -> dict[str, Any]:
        """What a record says of how batches reached the device."""
        return Prefetch.of(self.trainer).provenance

    def train_dataloader(self) -> Batches:
        """The training batches of all epochs."""
        settings, lm = self.settings, self.language_model
        shown = self.shown("train")
        inputs = shown if lm is None else Changed(shown, lm.with_targets)
        prefetch = Prefetch.of(self.trainer)
        return Batches(inputs, self.seed, settings.epochs, settings.batch_size, settings.steps, prefetch)

    def val_dataloader(self) -> InOrder:
        """The dev examples."""
        return InOrder(self.shown("dev"), self.settings.batch_size, Prefetch.of(self.trainer))
