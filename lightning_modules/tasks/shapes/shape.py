"""What a shape of tasks decides: how examples become inputs, what head answers them, how answers are scored.

A data set is a row of ``table.TASKS`` and names its shape; a shape is written once and serves every data set of it.
Loader, loop, pins, records and tables know shapes only through what stands here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Example
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.settings import FineTuning


class Examples(Protocol):
    """The checked examples of a split, in the order of their source."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def items_for_pin(self) -> list[Any]:
        """One JSON-ready item per example, answers included; pins are digests of these."""
        ...

    def texts(self) -> list[str]:
        """Every text that is encoded, words separated by single spaces; `Shape.inputs` gets their pieces in order."""
        ...

    def words(self) -> int:
        """Words of all rows that a model is shown in an epoch, repetitions counted: what costs are estimated from."""
        ...

    def take(self, numbers: np.ndarray) -> Self:
        """The examples with these numbers, in this order."""
        ...


class Inputs(Protocol):
    """The encoded examples of a split as items that a loader orders and batches.

    An item is what is answered as a whole: an example, or one window of a long one. It has one row of positions, or
    several that are compared with each other (the choices of a question).

    Attributes:
        examples: What the items were made of.
        sizes: Positions of each row of each item, special tokens included ``[n k]``.
    """

    examples: Any
    sizes: np.ndarray

    def __len__(self) -> int:
        """Items."""
        ...

    def batch(self, indices: np.ndarray) -> Example:
        """The items with these numbers, padded to the longest row of them: ``[b t]``, b = items x rows."""
        ...


class Head(nn.Module, ABC):
    """Answers from the states of the last layer."""

    @abstractmethod
    def forward(self, hidden: Float[Tensor, "b t d"], example: Example) -> Tensor:
        """The outputs of a batch."""

    @abstractmethod
    def loss(self, outputs: Tensor, example: Example) -> Tensor:
        """The summed loss of a batch; `count` is its denominator."""

    def count(self, example: Example) -> float:
        """How many answers the loss is summed over."""
        (target,) = example.targets.values()
        return target.count()

    def adopt_pooler(self, weights: dict[str, Tensor]) -> None:
        """Takes over the pooler that pretraining trained; heads that have none leave it."""

    def by_item(self, outputs: Tensor, example: Example) -> Sequence[Tensor]:
        """The outputs of each item; by default the rows of ``outputs``."""
        return outputs.unbind(0)


@dataclass(frozen=True)
class Scored:
    """How well a split was answered.

    Attributes:
        metrics: Every metric of the task, by name.
        kept: What a record keeps of each example, for paired tests and ensembles, each packed by ``kept.pack``:
            ``right`` (0 to 1) and, where answers are classes, ``answer``.
        predictions: Example -> answer as its data set's official file has it; None where there is no such file.
    """

    metrics: dict[str, float]
    kept: dict[str, str] = field(default_factory=dict)
    predictions: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready data."""
        return {name: getattr(self, name) for name in ("metrics", "kept", "predictions")}


class Shape(ABC):
    """One way in which labelled examples are asked and answered. Shapes are frozen dataclasses.

    Attributes:
        measures: Name of each metric that the shape can give -> what it is, in a line. All are better when higher.
        methods: Name of each baseline -> what tables call it.
        rows: Rows of an item.
        classes: How many answers an example may have; 0 where answers are no classes.
    """

    measures: ClassVar[dict[str, str]]
    methods: ClassVar[dict[str, str]] = {"majority": "majority class", "tfidf": "TF-IDF + logistic regression"}
    rows: int = 1
    classes: int = 0

    @abstractmethod
    def read(self, rows: Iterable[Any], task: str) -> Examples:
        """Checks and cleans what a source yields.

        Raises:
            ConfigError: Naming every example that is not as it should be (the first dozen).
        """

    @abstractmethod
    def inputs(self, examples: Any, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning) -> Inputs:
        """Lays examples out as items; ``pieces`` are those of ``examples.texts()``."""

    @abstractmethod
    def head(self, hidden_size: int, settings: FineTuning) -> Head:
        """A fresh head for a backbone of that width; initialised from torch's global generator."""

    @abstractmethod
    def answers(self, outputs: Sequence[np.ndarray], inputs: Any) -> Any:
        """An answer an example, from the outputs of each item in order: classes, tags, texts ..."""

    @abstractmethod
    def score(self, answers: Any, examples: Any, metrics: Sequence[str]) -> Scored:
        """Scores answers, a model's or a baseline's."""

    @abstractmethod
    def baselines(self, train: Any, dev: Any) -> dict[str, Any]:
        """Name -> answers of something that needs no network; the names are those of ``methods``."""

    def items(self, examples: int, pieces: int, settings: FineTuning) -> float:
        """About how many items so many examples make, of so many pieces in all."""
        return examples
