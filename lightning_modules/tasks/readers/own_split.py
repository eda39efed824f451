"""Splits of our own, for data whose official split is unavailable or has a test set in place of a dev set."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from lightning_modules.data.corpora.sources import Origin
from lightning_modules.draws import fraction, text_digest
from lightning_modules.tasks.readers.files import Files
from lightning_modules.tasks.shapes.texts import Row
from lightning_modules.tasks.task import Split


@dataclass(frozen=True)
class Held:
    """Splits the training examples of a reader by the digest of an example's first text.

    Examples with the same first text, such as the hypotheses of one premise, go to the same side. Both sides are
    ordered by digest, so neither the split nor the order depends on the order of the source.

    Attributes:
        share: Approximate share that is held out.
    """

    reader: Files
    share: float

    @property
    def origin(self) -> Origin:
        """Where the files come from; both sides use the same ones."""
        origin = self.reader.origin
        return Origin(origin.what, dict.fromkeys(("train", "dev"), origin.files["train"]), origin.hub)

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a side; malformed ones are on both, so that each side reports them."""
        rows = []
        for row in self.reader("train"):
            if row.fault:
                yield row
            elif (fraction(row.first) < self.share) == (split == "dev"):
                rows.append(row)
        yield from sorted(rows, key=lambda row: [text_digest(text or "") for text in row[:3]])


@dataclass(frozen=True)
class EachItsOwn:
    """Training and dev examples with a reader each."""

    train: Files | Held
    dev: Files

    @cached_property
    def origin(self) -> Origin:
        """Where the files of both come from."""
        dev = self.dev.origin
        return Origin(dev.what, {"train": self.train.origin.files["train"], "dev": dev.files["dev"]}, dev.hub)

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a split."""
        return (self.train if split == "train" else self.dev)(split)


@dataclass(frozen=True)
class _Selected:
    """Reads some of the examples of a reader.

    Attributes:
        reader: Reads training and dev examples.
    """

    reader: Files

    @property
    def origin(self) -> Origin:
        """Where the files come from."""
        return self.reader.origin


class DevAndTest(_Selected):
    """Dev and test examples together to evaluate; training examples with the words of one of these are left out.

    Words are compared by letters and digits, without case, those of a pair in either order.
    """

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a split; malformed ones are in it, so that it reports them."""
        if split == "dev":
            yield from self.reader("dev")
            return
        held_out = {_words(row) for row in self.reader("dev")}
        yield from (row for row in self.reader("train") if row.fault or _words(row) not in held_out)


@dataclass(frozen=True)
class Sampled(_Selected):
    """A fixed sample of the dev examples, ordered by the digest of their first text.

    Examples with the words of a training example, or of one that is in the sample, are left out.
    """

    count: int

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a split; malformed ones are in it, so that it reports them."""
        if split == "train":
            yield from self.reader("train")
            return
        known, rows = {_words(row) for row in self.reader("train")}, []
        for row in self.reader("dev"):
            if row.fault:
                yield row
            elif (words := _words(row)) not in known:
                known.add(words)
                rows.append(row)
        yield from sorted(rows, key=lambda row: text_digest(row.first))[: self.count]


def nearest(name: str, what: str) -> str:
    """The hint of a missing official data set about the most similar task that is available.

    Args:
        name: The task with the own split.
        what: How it differs, as a clause that begins with "which" or "whose".
    """
    return (
        f"The most similar task is '{name}', {what}. Its scores do not compare with published ones. {Origin.otherwise}"
    )


def _words(row: Row) -> frozenset[str]:
    """What the texts of an example say, whatever their spelling and order."""
    return frozenset("".join(filter(str.isalnum, text.casefold())) for text in (row.first, row.second or ""))
