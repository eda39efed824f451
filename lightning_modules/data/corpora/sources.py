"""Where data are had, one rule for every reader: files below ``ABLATIONS_DATA``, or else the Hugging Face hub.

>>> origin = Origin("The data set CoLA", {"dev": ("glue/CoLA/dev.tsv",)}, Hub("nyu-mll/glue", "cola"))
>>> paths = origin.find("dev")  # [] if they are not there: then origin.from_hub("dev")  # doctest: +SKIP
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_modules.config import ConfigError
from lightning_modules.places import data_home


@dataclass(frozen=True)
class Hub:
    """A data set of the Hugging Face hub.

    Attributes:
        dataset: Its name, ``owner/name``; an old one without an owner is only asked of the hub.
        config: Which of its configurations.
        splits: Part -> what the hub calls it, several if they are joined; a part that is not named has its own name.
    """

    dataset: str
    config: str | None = None
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"dev": ("validation",)}, kw_only=True)

    def __str__(self) -> str:
        return f"{self.dataset} ({self.config})" if self.config else self.dataset

    def place(self) -> tuple[str, ...]:
        """What ``datasets.load_dataset`` is given: a folder ``<dataset>`` of ``ABLATIONS_DATA`` before the hub.

        Such a folder is a copy of the hub's repository, or holds a folder of files for each configuration.
        """
        home = data_home()
        folder = home / self.dataset if home and "/" in self.dataset else None
        names = (self.config,) if self.config else ()
        if folder is None or not folder.is_dir():
            return self.dataset, *names
        if self.config and not (folder / "README.md").is_file() and (folder / self.config).is_dir():
            return (str(folder / self.config),)
        return str(folder), *names


@dataclass(frozen=True)
class Origin:
    """The places where a data set can be had.

    Attributes:
        what: The subject of an error's first sentence, such as "The data set CoLA".
        files: Part, such as "train" -> its files relative to ``ABLATIONS_DATA``, all of which are needed. A name may
            hold wildcards; the first match counts.
        hub: The same on the hub; None where it has none, or another text.
        otherwise: What works without, in a sentence.
    """

    what: str
    files: Mapping[str, tuple[str, ...]]
    hub: Hub | None = None
    otherwise: str = "The task 'bigram_shift' works offline."

    def find(self, part: str) -> list[Path]:
        """The files of a part in their order; empty unless all of them are there."""
        home = data_home()
        found = [_first(home, name) for name in self.files[part]] if home else [None]
        return [path for path in found if path] if None not in found else []

    def needed(self, part: str) -> list[Path]:
        """The files of a part that the hub has no copy of.

        Raises:
            ConfigError: When they are not there, naming the ways to get them.
        """
        if found := self.find(part):
            return found
        raise self.absent(part)

    def from_hub(self, part: str, **options: Any) -> list[Iterable[dict[str, Any]]]:
        """The rows of a part from the hub, by the splits that it is made of there, mostly one.

        Args:
            part: A key of ``files``.
            **options: For ``datasets.load_dataset``, such as ``streaming=True``.

        Raises:
            ConfigError: When the data are nowhere, naming every way to get them.
        """
        if self.hub is None:
            raise self.absent(part)
        try:
            return [loaded(*self.hub.place(), split=name, **options) for name in self.hub.splits.get(part, (part,))]
        except Unavailable as reason:
            raise self.absent(part, str(reason)) from None

    def sizes_on_hub(self) -> dict[str, int]:
        """Split -> how many rows the hub says it has; downloads no data.

        Raises:
            ConfigError: When the hub cannot be asked.
        """
        if self.hub is None:
            raise self.absent()
        try:
            splits = _asked("load_dataset_builder", *self.hub.place()).info.splits or {}
        except Unavailable as reason:
            raise self.absent("", str(reason)) from None
        return {name: split.num_examples for name, split in splits.items()}

    def absent(self, part: str = "", hub_says: str = "") -> ConfigError:
        """The error for data that are nowhere: where they were looked for, the ways to get them, what works without.

        Args:
            part: A key of ``files``; by default all.
            hub_says: What came of asking the hub, where it was asked.
        """
        home, here = data_home(), self.files[part] if part else self.every_file
        missing = [str(home / name) for name in here if not _first(home, name)] if home else []
        why = (
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            if home
            else "ABLATIONS_DATA is not set"
        )
        text = f"{self.what} was not found: {why}. {self.advice}"
        if hub_says:
            text += f", or read it from the Hugging Face hub: {self.hub} {hub_says}"
        return ConfigError([f"{text}. {self.otherwise}"])

    @property
    def advice(self) -> str:
        """How to get the data, in a sentence without its stop."""
        return f"Set ABLATIONS_DATA to a folder that holds {', '.join(self.every_file)} as published"

    @property
    def every_file(self) -> tuple[str, ...]:
        """The names of the files of all parts, each once."""
        return tuple(dict.fromkeys(name for names in self.files.values() for name in names))


def _first(home: Path, name: str) -> Path | None:
    """The file of that name, or the first match in alphabetical order."""
    if any(mark in name for mark in "*?["):
        return next(iter(sorted(home.glob(name))), None)
    return home / name if (home / name).exists() else None


class Unavailable(Exception):
    """Why a data set of the hub cannot be had, to be said after its name."""


def loaded(*place: str | None, **options: Any) -> Any:
    """``datasets.load_dataset``, whose dozen kinds of errors become one.

    Raises:
        Unavailable: When the package is missing, or the data set cannot be read: offline, unknown, gated ...
    """
    return _asked("load_dataset", *place, **options)


def _asked(function: str, *place: str | None, **options: Any) -> Any:
    try:
        import datasets
    except ImportError:
        raise Unavailable("needs the package datasets: `pip install -e .[hub]`") from None
    try:
        return getattr(datasets, function)(*place, **options)
    except Exception as error:
        lines = str(error).splitlines()
        raise Unavailable(f"could not be read ({type(error).__name__}: {lines[0] if lines else ''})") from None
