"""Where the files of a data set lie: below ``ABLATIONS_DATA``, or else as a copy on the Hugging Face hub."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import ConfigError
from ..places import data_home
from .task import Split

_OFFLINE = "The task 'bigram_shift' works offline."


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

    def paths(self, split: Split) -> list[Path]:
        """The files of a split; none when they are not there and the hub may be asked.

        Raises:
            ConfigError: When they are not there and there is no copy on the hub.
        """
        home = data_home()
        found = [home / self.folder / name for name in self.files[split]] if home else []
        absent = [path for path in found if not path.is_file()]
        if found and not absent:
            return found
        if self.hub is None:
            raise ConfigError([f"{self._ways(absent)}. {_OFFLINE}"])
        return []

    def on_hub(self, split: Split) -> Iterable[dict]:
        """The rows of a split as the hub has them.

        Raises:
            ConfigError: When they cannot be read there, naming the ways to get them.
        """
        home = data_home()
        ways = self._ways([home / self.folder / name for name in self.files[split]] if home else [])
        try:
            import datasets
        except ImportError:
            raise ConfigError(
                [f"{ways}, or read it from the Hugging Face hub, with `pip install -e .[hub]`. {_OFFLINE}"]
            ) from None
        try:
            return datasets.load_dataset(*self.hub, split="train" if split == "train" else "validation")
        except Exception as error:  # the library raises a dozen kinds: offline, unknown, gated ...
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise ConfigError(
                [
                    f"{ways}, or connect to the Hugging Face hub: {self.hub[0]} ({self.hub[1]}) could not be read "
                    f"there ({reason}). {_OFFLINE}"
                ]
            ) from None

    def _ways(self, absent: list[Path]) -> str:
        why = f"{absent[0]} is missing" if absent else "ABLATIONS_DATA is not set"
        names = ", ".join(f"{self.folder}/{name}" for split in ("train", "dev") for name in self.files[split])
        return (
            f"The data set {self.title} is not at hand: {why}. Set ABLATIONS_DATA to a folder that holds {names} in "
            "the official format"
        )


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
