"""The training and test part of a probe, and their file in the cache."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from lightning_modules import cached
from lightning_modules.config import ConfigError, identity
from lightning_modules.places import cache
from lightning_modules.tasks.shapes.texts import TextExamples

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
