"""The training and test part of a probe, and their file in the cache."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.places import cache
from lightning_modules.tasks.shapes.texts import TextExamples


class Parts(NamedTuple):
    """The examples of a probe.

    Attributes:
        train: What the regression is fitted on.
        test: What it answers.
    """

    train: TextExamples
    test: TextExamples


def kept(name: str, key: object, make: Callable[[], Parts]) -> Parts:
    """The examples of a probe from the cache, or made now.

    Args:
        name: The probe.
        key: What the examples follow from, ready for JSON.
        make: Makes them.
    """
    path = cache() / "probes" / f"{name}-{identity(key)[:24]}.json"
    return cached.kept(path, lambda file: _put(file, make()), _get)


def _put(file: BinaryIO, parts: Parts) -> None:
    cached.put_json(file, [[part.first, part.second, part.labels.tolist()] for part in parts])


def _get(path: Path) -> Parts:
    train, test = (TextExamples(first, second, np.array(labels)) for first, second, labels in cached.get_json(path))
    return Parts(train, test)
