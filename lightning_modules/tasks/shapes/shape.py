"""Shapes of tasks: how examples become inputs, which head answers them, how answers are scored.

A data set is a row of ``table.TASKS`` and names its shape; a shape serves all its data sets. Loader, loop, pins,
records and tables use shapes only through the interfaces of this module.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self, cast

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model.losses import summed_divergence_of_logits
from lightning_modules.tasks.reading.layout import LayoutName
from lightning_modules.tasks.reading.own_lines import OwnLine
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.settings import OF_SOME_SHAPES, FineTuning


class Examples(Protocol):
    """The checked examples of a split, in the order of their source."""

    def __len__(self) -> int:
        """Number of examples."""
        ...

    def items_for_pin(self) -> list[Any]:
        """One JSON-ready item per example, answers included; pins are digests of these."""
        ...

    def gold(self) -> list[Any]:
        """The right answer of each example, or of each word that is tagged: a class, a number, texts ..."""
        ...

    def texts(self) -> list[str]:
        """Every text to encode, words separated by single spaces; `Shape.inputs` gets their pieces in this order."""
        ...

    def words(self) -> int:
        """Words of all rows of an epoch, repetitions included; the basis of cost estimates."""
        ...

    def about(self) -> list[tuple[str, ...]]:
        """For each example the texts that others may share; examples that share one belong on one side of a split."""
        ...

    def take(self, numbers: np.ndarray) -> Self:
        """The examples with these numbers, in this order."""
        ...


class Labelled:
    """What classes of examples share whose fields have a value per example, ``labels`` among them.

    Attributes:
        shared: The fields that are the same for all of them.
    """

    labels: np.ndarray
    shared: ClassVar[tuple[str, ...]] = ()

    def gold(self) -> list[Any]:
        """The labels."""
        return self.labels.tolist()

    def take(self, numbers: np.ndarray) -> Self:
        """Some of the examples."""
        fields = {name: values for name, values in vars(self).items() if values is not None and name not in self.shared}
        chosen = {
            name: values[numbers] if isinstance(values, np.ndarray) else [values[n] for n in numbers.tolist()]
            for name, values in fields.items()
        }
        return replace(cast(Any, self), **chosen)


class Inputs(Protocol):
    """The encoded examples of a split as items that a loader orders and batches.

    An item gets one answer: it is an example, or one window of a long one. It has one row of positions, or several
    that are compared with each other (the options of a question).

    Attributes:
        examples: The examples behind the items.
        sizes: Positions of each row of each item, special tokens included ``[n k]``.
    """

    examples: Any
    sizes: np.ndarray

    def __len__(self) -> int:
        """Number of items."""
        ...

    def batch(self, indices: np.ndarray) -> Example:
        """The items with these numbers, padded to the longest row of them: ``[b t]``, b = items x rows."""
        ...


class Head(nn.Module, ABC):
    """A network from the states of the layers to answers.

    Attributes:
        target: The name of the target whose predictions the loss is summed over.
    """

    target: ClassVar[str]

    @abstractmethod
    def forward(self, encoded: Encoded, example: Example) -> Tensor:
        """The outputs of a batch."""

    def loss(self, outputs: Tensor, example: Example) -> Tensor:
        """The summed loss of a batch, by default cross-entropy in nats; `count` is its denominator."""
        return F.cross_entropy(outputs.float(), example.targets[self.target].ids, reduction="sum")

    def count(self, example: Example) -> float:
        """Number of answers that the loss is summed over."""
        return example.targets[self.target].count()

    def divergence(self, outputs: Tensor, taught: Tensor, example: Example, temperature: float) -> Tensor:
        """How far the answers of a batch are from a teacher's, summed over all rows of both outputs.

        By default these are logits ``[n k]``: the divergence of two distributions at a temperature, times its square.
        Only for shapes that are `Shape.taught`.
        """
        return summed_divergence_of_logits(outputs, taught, temperature)

    def adopt_pooler(self, weights: dict[str, Tensor]) -> None:
        """Takes over the pretrained pooler; heads without a pooler ignore it."""

    def by_item(self, outputs: Tensor, example: Example) -> Sequence[Tensor]:
        """The outputs of each item; by default the rows of ``outputs``."""
        return outputs.unbind(0)


@dataclass(frozen=True)
class Scored:
    """The scores of a split.

    Attributes:
        metrics: Every metric of the task, by name.
        kept: Values per example that a record keeps for the noise of examples and ensembles, packed by ``kept.pack``:
            ``right`` (0 to 1) and, if answers are classes, ``answer``. Classes of texts also have ``probability``, by
            ``kept.packed_probabilities``, where there is room. A metric that these do not give by example
            (`scores.by_example`) has its own values, under its name.
        all_equal: Whether all examples got the same answer: an outcome rather than a score.
        predictions: Example -> answer in the format of the data set's official prediction file; None without one.
    """

    metrics: dict[str, float]
    kept: dict[str, str] = field(default_factory=dict)
    predictions: dict[str, Any] | None = None
    all_equal: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready data."""
        return {name: getattr(self, name) for name in ("metrics", "kept", "predictions", "all_equal")}


class Shape(ABC):
    """One form of labelled examples and their answers. Shapes are frozen dataclasses.

    Attributes:
        measures: Name of each metric that fits its labels -> its description, one line. All are better when higher.
        parts: Parts of a data set with metrics of their own, called ``<part>_<metric>``.
        methods: Name of each baseline -> what tables call it.
        methods_version: Raised when the same examples would give the baselines of this shape alone other scores.
        rows: Rows per item, where texts are read in one order.
        layouts: The layouts of rows that answers can be read from.
        symmetric: Whether the two texts of a row may change places, so that both orders can be read.
        reads: Texts of a row, 1 or 2, if its head reads them as wholes; 0 where answers are read from single positions.
        classes: Number of possible answers; 0 if answers are not classes.
        positive: The classes that F1 asks for.
        labels: Names of the classes whose numbers are the gold answers; empty where they have none.
        numbers: Whether answers are real numbers.
        taught: Whether a student can learn from a teacher's outputs (`Head.divergence`).
        keeps_answers: Whether records keep the ``answer`` to each example, from which `score` gives any metric.
        line: The keys of an example in a user's own file.
    """

    measures: dict[str, str]
    parts: ClassVar[tuple[str, ...]] = ()
    line: type[OwnLine]
    methods: ClassVar[dict[str, str]] = {"majority": "majority class", "tfidf": "TF-IDF + logistic regression"}
    methods_version: ClassVar[int] = 0
    layouts: frozenset[LayoutName] = frozenset({"cls_sep"})
    rows: int = 1
    symmetric: bool = False
    reads: int = 0
    classes: int = 0
    positive: tuple[int, ...] = (1,)
    labels: tuple[str, ...] = ()
    numbers: bool = False
    taught: bool = False
    keeps_answers: bool = False

    @abstractmethod
    def read(self, rows: Iterable[Any], task: str) -> Examples:
        """Checks and cleans the rows of a source.

        Raises:
            ConfigError: With every invalid example (the first dozen).
        """

    def all_equal(self, answers: Any) -> bool:
        """Whether all examples got the same answer; ``answers`` are in the form of `answers`, two or more."""
        parts = [np.ravel(part) for part in (answers if isinstance(answers, list) else [answers])]
        values = np.concatenate(parts) if parts else np.empty(0)
        return len(values) > 1 and bool((values == values[0]).all())

    @abstractmethod
    def row(self, line: Any, number: int) -> Any:
        """The row for `read` of an example in a user's own file.

        Args:
            line: What was read of it, a ``line`` of this shape.
            number: Its number in the file, from 1.

        Raises:
            Fault: When its parts do not fit together.
        """

    @abstractmethod
    def problem(self, row: Any) -> str:
        """What is wrong with a row, worded to follow its place; empty if nothing is."""

    @abstractmethod
    def text_of(self, row: Any) -> str:
        """What rows must share to be on the same side of an own split: a text that several of them ask about."""

    @property
    def idle(self) -> dict[str, str]:
        """Settings of a fine-tuning that cannot act on this shape -> why, worded to follow the name of a task."""
        unread = "is answered from single positions, so nothing represents its texts"
        idle: dict[str, str] = {} if self.reads else dict.fromkeys(("reader", "pooler", "hidden_layer"), unread)
        idle["span_beam"] = "is not answered by a span of a passage"
        if not self.symmetric:
            idle["both_orders"] = "has no two texts that could change places"
        return idle if self.numbers else {**idle, "mean_label": "has labels that are no numbers"}

    @property
    def of_all(self) -> tuple[str, ...]:
        """The metrics of whole data sets, which a row of any data may name."""
        return tuple(name for name in self.measures if name.rpartition("_")[0] not in self.parts)

    @property
    def usual(self) -> tuple[str, ...]:
        """The metrics of a task that names none."""
        return tuple(self.measures)

    @abstractmethod
    def inputs(self, examples: Any, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning) -> Inputs:
        """The items of examples; ``pieces`` are those of ``examples.texts()``."""

    @abstractmethod
    def head(self, hidden_size: int, settings: FineTuning) -> Head:
        """A new head for a backbone of that width, initialised from torch's global generator."""

    def answers(self, outputs: Sequence[np.ndarray], inputs: Any) -> Any:
        """One answer per example, from the outputs of each item in order: classes, tags, texts ...

        By default the class with the highest output, the first of ties ``[n]``.
        """
        return np.stack(outputs).argmax(1)

    def probabilities(self, outputs: Sequence[np.ndarray]) -> np.ndarray | None:
        """The probability of each class for each example ``[n classes]``; by default None: there are none."""
        return None

    @abstractmethod
    def score(self, answers: Any, examples: Any, metrics: Sequence[str]) -> Scored:
        """Scores answers of a model or a baseline."""

    @abstractmethod
    def baselines(self, train: Any, dev: Any) -> dict[str, Any]:
        """Name -> dev answers of a baseline without a network; the names are those of ``methods``."""

    def settled(self, settings: FineTuning) -> FineTuning:
        """The settings as they act: those of ``idle`` are neutral, and one text is read by the mean if each would be
        read by its own.
        """
        update: dict[str, Any] = {name: OF_SOME_SHAPES[name] for name in self.idle}
        if self.reads == 1 and settings.reader == "mean_per_text":
            update["reader"] = "mean"
        return settings.model_copy(update=update)

    def rows_of(self, settings: FineTuning) -> int:
        """Rows per item."""
        return self.rows * (2 if self.symmetric and settings.both_orders else 1)

    def items(self, examples: int, pieces: int, settings: FineTuning) -> float:
        """The approximate number of items of so many examples with so many pieces in total."""
        return examples
