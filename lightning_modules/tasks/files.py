"""Data sets in their official formats below ``ABLATIONS_DATA``, or else from the Hugging Face hub."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..config import ConfigError
from ..places import data_home
from .task import Split
from .texts import Row

_HOME = "glue"  # the folder of ABLATIONS_DATA that holds the data sets


@dataclass(frozen=True)
class Hub:
    """A data set of the hub and the names of its columns; its parts are called train and validation."""

    dataset: str
    config: str
    first: str
    second: str | None = None
    label: str = "label"


@dataclass(frozen=True)
class Files:
    """Tab-separated files, one a split, read by calling with a split.

    A quote character stands for itself. A column is named by its heading, or by its number (from 0) in files
    without a line of headings.

    Attributes:
        folder: The folder as GLUE calls it.
        label: Column of the label.
        first: Column of the text.
        second: Column of the second text.
        train: File of the training examples.
        dev: File of the dev examples.
        hub: The same data on the hub.
    """

    folder: str
    label: str | int
    first: str | int
    second: str | int | None = None
    train: str = "train.tsv"
    dev: str = "dev.tsv"
    hub: Hub | None = None

    def __call__(self, split: Split) -> Iterator[Row]:
        """The examples of a split, from the folder if it is there.

        Raises:
            ConfigError: When the data are nowhere, naming the ways to get them, or when a file is not as expected.
        """
        home, name = data_home(), self.train if split == "train" else self.dev
        path = home / _HOME / self.folder / name if home else None
        if path and path.is_file():
            return self._read(path)
        return self._from_hub(split, f"{path} is missing" if path else "ABLATIONS_DATA is not set")

    def _read(self, path: Path) -> Iterator[Row]:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            lines = (line.rstrip("\r\n").split("\t") for line in file)
            asked = [column for column in (self.first, self.second, self.label) if column is not None]
            columns, start = asked, 1
            if isinstance(self.first, str):
                heading, start = next(lines, []), 2
                if absent := [name for name in asked if name not in heading]:
                    raise ConfigError([f"{path} has no column {', '.join(absent)}; it has {', '.join(heading)}."])
                columns = [heading.index(name) for name in asked]
            for number, fields in enumerate(lines, start):
                if len(fields) <= max(columns):
                    raise ConfigError([f"{path}, line {number}: {len(fields)} fields instead of {max(columns) + 1}."])
                first, *second, label = (fields[column] for column in columns)
                yield Row(first, second[0] if second else None, label)

    def _from_hub(self, split: Split, why: str) -> Iterator[Row]:
        names = f"{_HOME}/{self.folder}/{self.train} and {self.dev}"
        ways = (
            f"The data set {self.folder} is not at hand: {why}. Set ABLATIONS_DATA to a folder that holds {names} in "
            "the official format"
        )
        other = "The task 'bigram_shift' works offline."
        if self.hub is None:
            raise ConfigError([f"{ways}. {other}"])
        try:
            import datasets
        except ImportError:
            raise ConfigError(
                [f"{ways}, or read it from the Hugging Face hub, with `pip install -e .[hub]`. {other}"]
            ) from None
        part = "train" if split == "train" else "validation"
        try:
            rows = datasets.load_dataset(self.hub.dataset, self.hub.config, split=part)
        except Exception as error:  # the library raises a dozen kinds: offline, unknown, gated ...
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            place = f"{self.hub.dataset} ({self.hub.config})"
            raise ConfigError(
                [f"{ways}, or connect to the Hugging Face hub: {place} could not be read there ({reason}). {other}"]
            ) from None
        return self._named(rows)

    def _named(self, rows: list[dict]) -> Iterator[Row]:
        second = self.hub.second
        for row in rows:
            yield Row(row[self.hub.first], row[second] if second else None, str(row[self.hub.label]))
