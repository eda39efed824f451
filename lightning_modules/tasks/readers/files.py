"""Labelled texts: official files below ``ABLATIONS_DATA``, or else the Hugging Face hub."""

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
    """A data set of the hub and the names of its columns; its splits are train and validation."""

    first: str = "text"
    second: str | None = None
    label: str = "label"


@dataclass(frozen=True)
class Files:
    """A reader of tab-separated files, or of JSON lines if their names end in ``.jsonl``; call it with a split.

    Quote characters are ordinary text. A column is named by its heading or key, or by its number (from 0) in files
    without headings. Malformed lines are yielded with their fault, and the shape reports them with their numbers. Only
    lines that ``unlabelled`` and ``broken`` allow are skipped; a log message counts and names them.

    Attributes:
        folder: The folder's name in the data set.
        label: Column of the label.
        first: Column of the text.
        second: Column of the second text.
        train: File or files of the training examples.
        dev: File or files of the dev examples.
        within: The folder of ``ABLATIONS_DATA`` that holds ``folder``.
        parts: The part of the dev examples that each dev file holds; see `Row`.
        identifier: Heading of a column whose values must be unique in a file.
        unlabelled: Labels that mean "no gold label"; such examples are skipped.
        broken: How many lines of a file may have too few fields; they are skipped.
        hub: The same data on the hub.
        otherwise: An alternative when the data are missing, as a sentence.
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
        """Where the files come from."""
        names = {"train": self.train, "dev": self.dev}
        files = {
            split: tuple(f"{self.within}/{self.folder}/{name}".lstrip("/") for name in _as_tuple(value))
            for split, value in names.items()
        }
        return Origin(f"The data set {self.folder}", files, self.hub, self.otherwise)

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a split, from files if they exist.

        Raises:
            ConfigError: When the data are missing (the message says how to get them) or a file is malformed.
        """
        parts = self.parts if split == "dev" else ("",)
        if paths := self.origin.find(split):
            pairs = zip(paths, parts * len(paths), strict=False)
            return chain.from_iterable(self._read(path, part) for path, part in pairs)
        return self._from_hub(split, parts)

    def _read(self, path: Path, part: str) -> Iterator[Row]:
        texts = [self.first] if self.second is None else [self.first, self.second]
        extra = [self.identifier] if self.identifier else []
        is_json = path.suffix == ".jsonl"
        keys = list(map(str, texts))
        lines = objects(path, keys, str(self.label)) if is_json else table(path, [*texts, *extra, self.label])
        seen: dict[str, int] = {}
        for line in self._kept(path, lines):
            place = f"{path}, line {line.number}"
            if line.fault:
                yield Row("", None, "", part, place, line.fault)
                continue
            identifier = line.fields[len(texts)] if extra else str(line.number)
            earlier = seen.setdefault(identifier, line.number)
            fault = f"repeats the {self.identifier} {identifier} of line {earlier}" if earlier != line.number else ""
            second = line.fields[1] if self.second is not None else None
            yield Row(line.fields[0], second, line.fields[-1], part, place, fault)

    def _kept(self, path: Path, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without those that may be skipped, which are counted and named after the file has been read."""
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
        for skipped, why in ((broken, "with too few fields"), (unlabelled, "without a gold label")):
            if skipped:
                shown = ", ".join(str(line.number) for line in skipped[:MOST_NAMED])
                more = ", ..." if len(skipped) > MOST_NAMED else ""
                _log.warning("%s: skipped %d lines %s: %s%s", path, len(skipped), why, shown, more)

    def _from_hub(self, split: Split, parts: tuple[str, ...]) -> Iterator[Row]:
        hub, skipped = self.hub, 0
        if hub is None:
            raise self.origin.absent(split)
        for rows, part in zip(self.origin.from_hub(split), parts, strict=False):
            for number, row in enumerate(rows, 1):
                place, columns = f"{hub}, row {number}", [hub.first, hub.label, *([hub.second] if hub.second else [])]
                if absent := [name for name in columns if name not in row]:
                    raise ConfigError([f"{hub} has no column {', '.join(absent)}. It has {', '.join(row)}."])
                if str(row[hub.label]) in self.unlabelled:
                    skipped += 1
                    continue
                second = row[hub.second] if hub.second else None
                fault = "" if isinstance(row[hub.first], str) else "has no text"
                yield Row(row[hub.first] or "", second, str(row[hub.label]), part, place, fault)
        if skipped:
            _log.warning("%s: skipped %d rows without a gold label", hub, skipped)


def _as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
