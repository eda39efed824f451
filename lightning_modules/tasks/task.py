"""What a task is: labelled sentences or pairs of sentences in two splits, and how answers to it are scored."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..config import ConfigError
from .metrics import METRICS

Split = Literal["train", "dev"]


class Row(NamedTuple):
    """One example as its source spells it."""

    first: str
    second: str | None
    label: str


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples of a split.

    Attributes:
        first: Texts, their words separated by single spaces ``[n]``.
        second: The second texts of a task of pairs ``[n]``, None for a task of single texts.
        labels: Class numbers, or real numbers in regression ``[n]``.
    """

    first: list[str]
    second: list[str] | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class Task:
    """A labelled data set: each example one text (``single``) or two (``pair``), each label a class or a number.

    Training examples are trained on and dev examples evaluated; test sets are left alone.

    Attributes:
        name: What grids call it; metrics are called ``<name>.<metric>``.
        title: Its published name and what is asked, in a line.
        source: Where it was published.
        shape: One text or two.
        metrics: Keys of ``METRICS``, the one papers report first. Higher is better in all of them.
        rows: Split -> its examples, always in the same order.
        labels: Names of the classes in the order of their numbers; none in regression.
    """

    name: str
    title: str
    source: str
    shape: Literal["single", "pair"]
    metrics: tuple[str, ...]
    rows: Callable[[Split], Iterator[Row]]
    labels: tuple[str, ...] = ()

    @property
    def main(self) -> str:
        """The metric that is compared."""
        return self.metrics[0]

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for an example: one a class, or the one that is predicted."""
        return max(1, len(self.labels))

    def examples(self, split: Split) -> Examples:
        """The examples of a split, cleaned as the text of pretraining is: single spaces between words.

        Raises:
            ConfigError: When the data are not at hand or are not what they should be.
        """
        rows = list(self.rows(split))
        first = [" ".join(row.first.split()) for row in rows]
        second = [" ".join((row.second or "").split()) for row in rows] if self.shape == "pair" else None
        labels = [self._label(row.label, number) for number, row in enumerate(rows)]
        return Examples(first, second, np.array(labels, dtype=np.int64 if self.labels else np.float64))

    def _label(self, text: str, number: int) -> float:
        """A label from the name or the number of its class, or from a number in regression."""
        if text in self.labels:
            return self.labels.index(text)
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if np.isfinite(value) and (not self.labels or value in range(len(self.labels))):
            return value
        allowed = f"one of {', '.join(self.labels)}, or its number" if self.labels else "a number"
        raise ConfigError([f"example {number} of '{self.name}' has the label {text!r}, which is not {allowed}."])

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Every metric of a model's outputs.

        Args:
            outputs: Logits ``[n classes]``, or predictions ``[n 1]`` in regression.
            labels: As in `Examples` ``[n]``.
        """
        answers = outputs.argmax(1) if self.labels else outputs[:, 0]
        return self.measure(answers, labels)

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Every metric of some answers: class numbers, or real numbers in regression ``[n]``."""
        return {name: METRICS[name].of(labels, answers) for name in self.metrics}
