"""Made parallel text: a row of words, and the same ones copied, reversed, or other ones.

``made-pairs:copied,length=16`` has sources of sixteen words, each any of `made.WORDS`, and the same words as their
targets. Between a word and its copy are sixteen others, so a model without attention remembers as many. With
``reversed`` a target has them in the reverse order, which spares the last of them most of the way (Sutskever et al.
2014, section 3.3). With ``unrelated``, the control, a target has words of its own.

Nothing is downloaded; the text is a function of the name alone. Names with the same length have the same sources.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data.corpora.made import WORDS
from lightning_modules.data.corpora.sources import Split
from lightning_modules.draws import Draws

RECIPE = 1  # raise when the same name would give another text
PREFIX = "made-pairs"
TARGETS = ("copied", "reversed", "unrelated")
_SIZES = {"length": (1, 256), "pairs": (64, 1 << 20)}  # smallest and largest
_HELDOUT_EVERY = 16  # as many pairs for one that is held out
_HELDOUT = 1 << 40  # number of the first of these
_BATCH = 4096  # pairs made at once


@dataclass(frozen=True)
class MadePairs:
    """What a name says.

    Attributes:
        target: What a target is made of.
        length: Words of each side.
        pairs: Pairs for training; a sixteenth as many are held out.
    """

    target: str
    length: int = 8
    pairs: int = 8192

    @classmethod
    def of(cls, name: str) -> Self:
        """The text of a name without ``made-pairs:``.

        Raises:
            ConfigError: For a target or a number that there is not.
        """
        target, *parts = name.split(",")
        if target not in TARGETS:
            near = did_you_mean(target, TARGETS)
            raise _wrong(name, f"there is no target '{target}'.{near} Allowed: {', '.join(TARGETS)}.")
        numbers: dict[str, int] = {}
        for part in parts:
            key, _, value = part.partition("=")
            if key not in _SIZES or key in numbers:
                again = "is named twice" if key in numbers else f"is no number of it.{did_you_mean(key, _SIZES)}"
                raise _wrong(name, f"'{key}' {again} Allowed: length=<words>, pairs=<number>.")
            low, high = _SIZES[key]
            if not value.isdecimal() or not low <= int(value) <= high:
                raise _wrong(name, f"'{part}' needs a whole number from {low} to {high}, for example {key}={low}.")
            numbers[key] = int(value)
        return cls(target, **numbers)

    def documents(self, split: Split) -> Iterator[list[str]]:
        """The pairs of a split, each a source and its target."""
        heldout = split == "heldout"
        count = self.pairs // _HELDOUT_EVERY if heldout else self.pairs
        words = np.array(WORDS)
        for start in range(0, count, _BATCH):
            numbers = np.arange(start, min(start + _BATCH, count)) + (_HELDOUT if heldout else 0)
            draws = Draws(0, numbers, numbers, np.zeros_like(numbers), stream="made pairs")
            sources = words[draws.integers("source", self.length, len(WORDS))]
            if self.target == "unrelated":
                targets = words[draws.integers("target", self.length, len(WORDS))]
            else:
                targets = sources[:, ::-1] if self.target == "reversed" else sources
            for source, target in zip(sources, targets, strict=True):
                yield [" ".join(source), " ".join(target)]


def _wrong(name: str, text: str) -> ConfigError:
    return ConfigError([f"the made text '{PREFIX}:{name}': {text}"])
