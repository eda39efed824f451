"""Splits of our own, where the official one is not at hand or its dev part is a test set."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks.datasets.files import Files
from lightning_modules.tasks.shapes.texts import Row
from lightning_modules.tasks.task import Split


@dataclass(frozen=True)
class Held:
    """Splits what one reader reads as its training examples: the digest of an example's first text decides.

    Examples with the same first text, such as the hypotheses of one premise, go to the same side. Both sides are in the
    order of digests, so neither the split nor the order depends on how the source orders its examples.

    Attributes:
        reader: Reads all the examples.
        share: About how much of them is held out.
    """

    reader: Files
    share: float

    @property
    def origin(self) -> Origin:
        """Where the files are: both sides come from the same ones."""
        origin = self.reader.origin
        return Origin(origin.what, dict.fromkeys(("train", "dev"), origin.files["train"]), origin.hub)

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a side; those that cannot be read are on both, so that each names them."""
        found = []
        for row in self.reader("train"):
            if row.fault:
                yield row
            elif (self._fraction(row.first) < self.share) == (split == "dev"):
                found.append(row)
        yield from sorted(found, key=lambda row: [_digest(text or "") for text in row[:3]])

    @staticmethod
    def _fraction(text: str) -> float:
        """A number from 0 to 1 that looks random and follows from the text."""
        return int(_digest(text)[:12], 16) / 16**12


def nearest(name: str, what: str) -> str:
    """What an official data set that is not at hand says of the task that stands nearest.

    Args:
        name: The task of an own split.
        what: How it differs, a clause that begins with "which" or "whose".
    """
    return f"The nearest task is '{name}', {what}: no score of it compares with published ones. {Origin.otherwise}"


def _digest(text: str) -> str:
    """SHA-256 of a text whose words are separated by single spaces."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
