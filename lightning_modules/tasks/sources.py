"""Where the files of a data set lie: below ``ABLATIONS_DATA``, or else as a copy on the Hugging Face hub."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import ConfigError
from ..data.sources import Hub, Origin
from .task import Split


@dataclass(frozen=True)
class Source:
    """The files of a data set, and its copy on the hub if that is the same text.

    Attributes:
        title: What people call it.
        folder: Its folder below ``ABLATIONS_DATA``.
        files: Split -> its files.
        hub: Data set and configuration on the hub; its parts are called train and validation.
    """

    title: str
    folder: str
    files: Mapping[Split, tuple[str, ...]]
    hub: tuple[str, str] | None = None

    @property
    def origin(self) -> Origin:
        """The same for the resolver."""
        files = {split: tuple(f"{self.folder}/{name}" for name in names) for split, names in self.files.items()}
        return Origin(f"The data set {self.title}", files, Hub(*self.hub) if self.hub else None)

    def paths(self, split: Split) -> list[Path]:
        """The files of a split; none when they are not there and the hub may be asked.

        Raises:
            ConfigError: When they are not there and there is no copy on the hub.
        """
        found = self.origin.find(split)
        if not found and self.hub is None:
            raise self.origin.absent(split)
        return found

    def on_hub(self, split: Split) -> Iterable[dict]:
        """The rows of a split as the hub has them.

        Raises:
            ConfigError: When they cannot be read there, naming the ways to get them.
        """
        (rows,) = self.origin.from_hub(split)
        return rows


def numbered(path: Path, form: str) -> Iterator[tuple[str, str]]:
    """The lines of a file without their ends, each with the words an error begins with: ``file, line 3``.

    Args:
        path: A file in UTF-8, with or without a byte-order mark.
        form: What a line of it is called.

    Raises:
        ConfigError: When the file is empty, or a line of it no UTF-8.
    """
    empty = True
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ConfigError([f"{where}: this is no UTF-8 (byte {error.start + 1})."]) from None
            empty &= not line.strip()
            yield where, line.rstrip("\r\n")
    if empty:
        raise ConfigError([f"{path} is empty: it holds no {form}."])


def fields(
    path: Path, columns: Sequence[str], form: str, delimiter: str = "\t", quoted: bool = False
) -> Iterator[tuple[str, dict[str, str]]]:
    """What stands in some columns of a file with a line of headings, and the words an error begins with.

    Args:
        path: The file.
        columns: The headings that are needed; others are passed over.
        form: What a line of it is called.
        delimiter: What separates fields.
        quoted: Whether a field may stand in quotes, as in CSV; or else a quote character stands for itself.

    Raises:
        ConfigError: For a column that is missing, a line with more or fewer fields than headings or with a quote that
            is not closed, and when there is no line but the headings.
    """
    quoting, number = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, 0
    heading: list[str] = []
    for number, (where, line) in enumerate(numbered(path, form)):
        try:
            found = next(csv.reader([line], delimiter=delimiter, quoting=quoting, strict=True), [""])
        except csv.Error as error:
            raise ConfigError([f"{where}: {error}."]) from None
        if not number:
            heading = found
            if absent := [name for name in columns if name not in heading]:
                raise ConfigError([f"{path} has no column {', '.join(absent)}; it has {', '.join(heading)}."])
        elif len(found) != len(heading):
            raise ConfigError([f"{where}: {len(found)} fields instead of {len(heading)}."])
        else:
            row = dict(zip(heading, found, strict=True))
            yield where, {name: row[name] for name in columns}
    if not number:
        raise ConfigError([f"{path} is empty: it holds no {form}."])


def complained(wrong: list[str], most: int = 12) -> None:
    """Refuses examples that are not as they should be.

    Raises:
        ConfigError: Naming the first of them, if there are any.
    """
    if wrong:
        more = [f"{len(wrong) - most} more examples are wrong"] if len(wrong) > most else []
        raise ConfigError([f"{problem}." for problem in wrong[:most] + more])
