"""What a probe is; its training and test part, and their file in the cache."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from lightning_modules import cached
from lightning_modules.config import ConfigError, identity
from lightning_modules.data.settings import Data
from lightning_modules.places import cache
from lightning_modules.tasks.shapes.texts import TextExamples, Texts

_TWO = Texts(labels=("0", "1"))
_TOO_FEW = "too few"  # the key of the problems in the file of a probe without examples


class TooFewExamples(ConfigError):
    """The held-out text is too small for a probe that is made from it."""


class Parts(NamedTuple):
    """The examples of a probe.

    Attributes:
        train: What the regression is fitted on.
        test: What it answers.
        train_words: Which word of each training example is read ``[n]``; None where the whole text is.
        test_words: The same for the test examples.
    """

    train: TextExamples
    test: TextExamples
    train_words: np.ndarray | None = None
    test_words: np.ndarray | None = None


@dataclass(frozen=True)
class Probe(ABC):
    """A question about texts, with labelled examples.

    Attributes:
        name: Its name in settings; its metrics are called ``probes.<name>``.
        title: Its question, in a line.
        metric: The metric of its answers, a key of ``tasks.scores.metrics.METRICS``.
        shape: One text or two, and the classes; none in regression.
        by_layer: Whether each layer that is read has a score of its own, besides that of the layer that is chosen.
    """

    name: str
    title: str
    metric: str = "accuracy"
    shape: Texts = _TWO
    by_layer: bool = False

    @abstractmethod
    def fingerprint(self) -> str:
        """What its examples follow from, besides the text of a run's corpora. Pinned ones are not opened."""

    @abstractmethod
    def examples(self, data: Data) -> Parts:
        """Its examples; corpora give those that are made from text.

        Raises:
            ConfigError: When data are missing, malformed or not the pinned ones.
            TooFewExamples: When the text of the corpora leaves too few.
        """


def kept(name: str, key: object, make: Callable[[], Parts]) -> Parts:
    """The examples of a probe from the cache, or made now.

    Args:
        key: What the examples follow from, ready for JSON.

    Raises:
        TooFewExamples: When the text gives too few, now or when the file was made.
    """
    path = cache() / "probes" / f"{name}-{identity(key)[:24]}.json"
    return cached.kept(path, lambda file: _put(file, make), _get)


def _put(file: BinaryIO, make: Callable[[], Parts]) -> None:
    try:
        parts = make()
    except TooFewExamples as too_few:
        cached.put_json(file, {_TOO_FEW: [str(problem) for problem in too_few.problems]})
        return
    words = [None if places is None else places.tolist() for places in (parts.train_words, parts.test_words)]
    examples = [[part.first, part.second, part.labels.tolist()] for part in (parts.train, parts.test)]
    cached.put_json(file, [examples, words])


def _get(path: Path) -> Parts:
    found = cached.get_json(path)
    if isinstance(found, dict):
        raise TooFewExamples(found[_TOO_FEW])
    examples, words = found
    train, test = (TextExamples(first, second, np.array(labels)) for first, second, labels in examples)
    return Parts(train, test, *(None if places is None else np.array(places) for places in words))
