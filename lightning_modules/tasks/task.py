"""What a task is: a data set of some shape in two splits, and how answers to it are scored."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks.shapes.shape import Scored, Shape

Split = Literal["train", "dev"]


@dataclass(frozen=True)
class Task:
    """A labelled data set. Training examples are trained on and dev examples evaluated; test sets are left alone.

    Attributes:
        name: What grids call it; metrics are called ``<name>.<metric>``.
        title: Its published name and what is asked, in a line.
        source: Where it was published.
        shape: How it is asked and answered.
        metrics: Measures of the shape, the one papers report first.
        rows: Split -> its examples as the source has them, always in the same order.
        licence: Its terms, in a few words.
        own_split: How its splits differ from the official ones, so that scores do not compare with published ones;
            empty for official splits.
        official: How many examples the published splits have, train and dev; None for a split of our own.
        settings: Fine-tuning settings that its shape needs, such as a greatest length; grids may set others.
        files: Where its data are had; by default where ``rows.origin`` says, or nowhere: it is made from a corpus.
    """

    name: str
    title: str
    source: str
    shape: Shape
    metrics: tuple[str, ...]
    rows: Callable[[Split], Iterator[Any]]
    licence: str = ""
    own_split: str = ""
    official: tuple[int, int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Origin | None = None

    @property
    def main(self) -> str:
        """The metric that is compared."""
        return self.metrics[0]

    @property
    def origin(self) -> Origin | None:
        """Where its data are had; None for a task that is made from a corpus."""
        return self.files or getattr(self.rows, "origin", None)

    def examples(self, split: Split) -> Any:
        """The examples of a split, checked and cleaned.

        Raises:
            ConfigError: When the data are not at hand or are not what they should be.
        """
        return self.shape.read(self.rows(split), self.name)

    def score(self, answers: Any, examples: Any) -> Scored:
        """Every metric of some answers, in the form that `Shape.answers` gives."""
        return self.shape.score(answers, examples, self.metrics)
