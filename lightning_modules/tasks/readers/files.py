"""Labelled texts: official files below ``ABLATIONS_DATA``, or else the Hugging Face hub."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

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
        found = [(path, self._lines(path)) for path in self.origin.find(split)]
        found = found or [(self.hub, self._hub_lines(rows)) for rows in self.origin.from_hub(split)]
        pairs = zip(found, parts * len(found), strict=False)
        return chain.from_iterable(self._read(source, lines, part) for (source, lines), part in pairs)

    def _lines(self, path: Path) -> Iterator[Line]:
        texts = [self.first, *(() if self.second is None else (self.second,))]
        if path.suffix == ".jsonl":
            return objects(path, list(map(str, texts)), str(self.label))
        return table(path, [*texts, *([self.identifier] if self.identifier else ()), self.label])

    def _hub_lines(self, rows: Iterable[dict[str, Any]]) -> Iterator[Line]:
        assert self.hub is not None
        texts = [self.hub.first, *([self.hub.second] if self.hub.second else ())]
        for number, row in enumerate(rows, 1):
            if absent := [name for name in (*texts, self.hub.label) if name not in row]:
                raise ConfigError([f"{self.hub} has no column {', '.join(absent)}. It has {', '.join(row)}."])
            fields = [*(row[name] for name in texts), *([number] if self.identifier else ()), str(row[self.hub.label])]
            yield Line(number, fields, "" if isinstance(fields[0], str) else "has no text")

    def _read(self, source: object, lines: Iterable[Line], part: str) -> Iterator[Row]:
        seen: dict[Any, int] = {}
        for line in self._kept(source, lines):
            place = f"{source}, {'row' if source is self.hub else 'line'} {line.number}"
            if line.fault:
                yield Row("", None, "", part, place, line.fault)
                continue
            identifier = line.fields[-2] if self.identifier else line.number
            earlier = seen.setdefault(identifier, line.number)
            fault = f"repeats the {self.identifier} {identifier} of line {earlier}" if earlier != line.number else ""
            second = line.fields[1] if self.second is not None else None
            yield Row(line.fields[0], second, line.fields[-1], part, place, fault)

    def _kept(self, source: object, lines: Iterable[Line]) -> Iterator[Line]:
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
            raise refused([f"{source}, line {line.number}: {line.fault}" for line in broken], "lines are wrong")
        for skipped, why in ((broken, "with too few fields"), (unlabelled, "without a gold label")):
            if skipped:
                shown = ", ".join(str(line.number) for line in skipped[:MOST_NAMED])
                more = ", ..." if len(skipped) > MOST_NAMED else ""
                _log.warning("%s: skipped %d lines %s: %s%s", source, len(skipped), why, shown, more)


def _as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
