"""Texts with labels in their official formats below ``ABLATIONS_DATA``, or else from the Hugging Face hub."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from lightning_modules.config import ConfigError
from lightning_modules.data.corpora import sources
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.tasks.reading.lines import MOST_NAMED, Line, objects, refused, table
from lightning_modules.tasks.shapes.texts import Row
from lightning_modules.tasks.task import Split

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hub(sources.Hub):
    """A data set of the hub and the names of its columns; its parts are called train and validation."""

    first: str = "text"
    second: str | None = None
    label: str = "label"


@dataclass(frozen=True)
class Files:
    """Tab-separated files, or JSON lines if their names end in ``.jsonl``; read by calling with a split.

    A quote character stands for itself. A column is named by its heading or key, or by its number (from 0) in files
    without a line of headings. Faulty lines are yielded as such and refused by the shape, with their numbers; the only
    lines left out are those that ``unlabelled`` and ``broken`` allow, and a message of the log counts and names them.

    Attributes:
        folder: The folder as the data set calls it.
        label: Column of the label.
        first: Column of the text.
        second: Column of the second text.
        train: File of the training examples, or several.
        dev: File of the dev examples, or several.
        within: The folder of ``ABLATIONS_DATA`` that holds ``folder``.
        parts: What part of the dev examples each dev file is; see `Row`.
        identifier: Heading of a column whose values must differ from line to line of a file.
        unlabelled: Labels of examples without a gold label, which are left out.
        broken: How many lines of a file may have too few fields and are left out.
        hub: The same data on the hub.
        otherwise: What works without, in a sentence.
    """

    folder: str
    label: str | int
    first: str | int
    second: str | int | None = None
    train: str | tuple[str, ...] = "train.tsv"
    dev: str | tuple[str, ...] = "dev.tsv"
    within: str = "glue"
    parts: tuple[str, ...] = ("",)
    identifier: str | None = None
    unlabelled: tuple[str, ...] = ()
    broken: int = 0
    hub: Hub | None = None
    otherwise: str = Origin.otherwise

    @cached_property
    def origin(self) -> Origin:
        """Where its files are."""
        names = {"train": self.train, "dev": self.dev}
        files = {
            split: tuple(f"{self.within}/{self.folder}/{name}".lstrip("/") for name in _several(given))
            for split, given in names.items()
        }
        return Origin(f"The data set {self.folder}", files, self.hub, self.otherwise)

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a split, from the folder if it is there.

        Raises:
            ConfigError: When the data are nowhere, naming the ways to get them, or when a file is not as expected.
        """
        parts = self.parts if split == "dev" else ("",)
        if paths := self.origin.find(split):
            many = zip(paths, parts * len(paths), strict=False)
            return chain.from_iterable(self._read(path, part) for path, part in many)
        return self._named(split, parts)

    def _read(self, path: Path, part: str) -> Iterator[Row]:
        texts = [self.first] if self.second is None else [self.first, self.second]
        extra = [self.identifier] if self.identifier else []
        is_json = path.suffix == ".jsonl"
        lines = objects(path, texts, self.label) if is_json else table(path, [*texts, *extra, self.label])
        seen: dict[str, int] = {}
        for line in self._kept(path, lines):
            place = f"{path}, line {line.number}"
            if line.fault:
                yield Row("", None, "", part, place, line.fault)
                continue
            identifier = line.fields[len(texts)] if extra else str(line.number)
            earlier = seen.setdefault(identifier, line.number)
            fault = f"has the {self.identifier} {identifier} of line {earlier}" if earlier != line.number else ""
            second = line.fields[1] if self.second is not None else None
            yield Row(line.fields[0], second, line.fields[-1], part, place, fault)

    def _kept(self, path: Path, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines but those that may be left out, which are counted and named once the file has been read."""
        broken, unlabelled = [], []
        for line in lines:
            if line.short and self.broken:
                broken.append(line)
            elif not line.fault and line.fields[-1] in self.unlabelled:
                unlabelled.append(line)
            else:
                yield line
        if len(broken) > self.broken:
            raise refused([f"{path}, line {line.number}: {line.fault}" for line in broken], "lines are wrong")
        for left_out, why in ((broken, "with too few fields"), (unlabelled, "without a gold label")):
            if left_out:
                shown = ", ".join(str(line.number) for line in left_out[:MOST_NAMED])
                more = ", ..." if len(left_out) > MOST_NAMED else ""
                _log.warning("%s: %d lines %s are left out: %s%s", path, len(left_out), why, shown, more)

    def _named(self, split: Split, parts: tuple[str, ...]) -> Iterator[Row]:
        hub, left_out = self.hub, 0
        for rows, part in zip(self.origin.from_hub(split), parts, strict=False):
            for number, row in enumerate(rows, 1):
                place, wanted = f"{hub}, row {number}", [hub.first, hub.label, *([hub.second] if hub.second else [])]
                if absent := [name for name in wanted if name not in row]:
                    raise ConfigError([f"{hub} has no column {', '.join(absent)}; it has {', '.join(row)}."])
                if str(row[hub.label]) in self.unlabelled:
                    left_out += 1
                    continue
                second = row[hub.second] if hub.second else None
                fault = "" if isinstance(row[hub.first], str) else "has no text"
                yield Row(row[hub.first] or "", second, str(row[hub.label]), part, place, fault)
        if left_out:
            _log.warning("%s: %d rows without a gold label are left out", hub, left_out)


@dataclass(frozen=True)
class EachItsOwn:
    """Training and dev examples that two readers know how to read.

    Attributes:
        train: Reads the training examples.
        dev: Reads the dev examples.
    """

    train: Files
    dev: Files

    @cached_property
    def origin(self) -> Origin:
        """Where the files of both are."""
        here = self.dev.origin
        return Origin(here.what, {"train": self.train.origin.files["train"], "dev": here.files["dev"]}, here.hub)

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a split."""
        return (self.train if split == "train" else self.dev)(split)


def _several(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given
