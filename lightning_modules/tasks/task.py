"""Tasks: labelled data sets of some shape, with a training and a dev split."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks.shapes.shape import Scored, Shape

Split = Literal["train", "dev"]
SPLITS: tuple[Split, Split] = ("train", "dev")


@dataclass(frozen=True)
class Task:
    """A labelled data set. Models train on its training examples and are scored on its dev examples.

    Attributes:
        name: Its name in grids; metrics are called ``<name>.<metric>``.
        title: Published name and question, in one line.
        source: Publication.
        shape: Form of its examples and answers.
        metrics: Metrics of the shape, the one that papers report first; by default the usual ones.
        rows: Split -> examples as in the source, always in the same order.
        licence: Terms of use, in a few words.
        own_split: How its splits differ from the official ones, which makes scores incomparable with published ones;
            empty for official splits.
        official: Sizes of the published splits, train and dev; None for a split of our own.
        settings: Fine-tuning settings that its examples need, such as the maximum length; grids may override them.
        files: Where its data come from; by default ``rows.origin``, or None for a task made from a corpus.
        languages: The language of its training texts and that of its dev texts, for models that have embeddings of
            languages; empty where none is stated.

    Raises:
        ConfigError: For a metric that its shape has not, such as F1 of three classes, with those that fit.
    """

    name: str
    title: str
    source: str
    shape: Shape
    metrics: tuple[str, ...] = ()
    rows: Callable[[Split], Iterator[Any]] = lambda split: iter(())
    licence: str = ""
    own_split: str = ""
    official: tuple[int, int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Origin | None = None
    languages: tuple[str, str] | tuple[()] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", self.metrics or self.shape.usual)
        if unknown := [metric for metric in self.metrics if metric not in self.shape.measures]:
            of_all, count = self.shape.of_all, len(self.shape.labels)
            of = " of numbers" if self.shape.numbers else f" of {count} labels" * bool(count)
            raise ConfigError([f"'{self.name}' has no metric '{unknown[0]}'{of}.{did_you_mean(unknown[0], of_all)}"])

    @property
    def main(self) -> str:
        """The metric that comparisons use."""
        return self.metrics[0]

    @property
    def origin(self) -> Origin | None:
        """Where its data come from; None for a task made from a corpus."""
        return self.files or getattr(self.rows, "origin", None)

    def examples(self, split: Split) -> Any:
        """The examples of a split, checked and cleaned.

        Raises:
            ConfigError: When the data are missing or malformed.
        """
        return self.shape.read(self.rows(split), self.name)

    def score(self, answers: Any, examples: Any) -> Scored:
        """Every metric of answers in the form of `Shape.answers`, and whether all of them are equal."""
        return replace(self.shape.score(answers, examples, self.metrics), all_equal=self.shape.all_equal(answers))
