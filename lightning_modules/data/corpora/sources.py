"""Where data come from, by one rule for every reader: files below ``ABLATIONS_DATA``, or else the Hugging Face hub.

Files that `copy` has put into the cache serve where ``ABLATIONS_DATA`` lacks them: a machine without data sets needs
no more than such a cache.

>>> origin = Origin("The data set CoLA", {"dev": ("glue/CoLA/dev.tsv",)}, Hub("nyu-mll/glue", "cola"))
>>> paths = origin.find("dev")  # [] if they do not exist: then origin.from_hub("dev")  # doctest: +SKIP
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightning_modules import cached
from lightning_modules.config import ConfigError, identity
from lightning_modules.files import open_plain
from lightning_modules.places import cache, data_home, data_homes, note_elsewhere, study, unusable_data_home

Split = Literal["train", "heldout"]


@dataclass(frozen=True)
class Hub:
    """A data set of the Hugging Face hub.

    Attributes:
        dataset: Its name, ``owner/name``; an old name without owner is looked up on the hub only.
        config: Its configuration.
        splits: Part -> name of its split on the hub, or several names to join; by default the part's own name.
    """

    dataset: str
    config: str | None = None
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"dev": ("validation",)}, kw_only=True)

    def __str__(self) -> str:
        return f"{self.dataset} ({self.config})" if self.config else self.dataset

    def place(self) -> tuple[str, ...]:
        """The arguments of ``datasets.load_dataset``: a folder ``<dataset>`` of ``ABLATIONS_DATA``, else the hub.

        Such a folder is a copy of the hub's repository, or has one folder of files per configuration.
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
    """Where a data set comes from.

    Attributes:
        what: Subject of the first sentence of an error, for example "The data set CoLA".
        files: Part, for example "train" -> its files relative to ``ABLATIONS_DATA``, all of which are needed. A name
            may have wildcards; the first match counts.
        hub: The same data on the hub; None if the hub lacks them or has another text.
        otherwise: An alternative when the data are missing, as a sentence.
        form: What the files must be like, to follow their names.
    """

    what: str
    files: Mapping[str, tuple[str, ...]]
    hub: Hub | None = None
    otherwise: str = "The task 'bigram_shift' works offline."
    form: str = "as published"

    def find(self, part: str) -> list[Path]:
        """The files of a part in order; empty unless all of them exist."""
        paths = [found(name) for name in self.files[part]]
        return [path for path in paths if path] if None not in paths else []

    def copy(self) -> list[Path]:
        """Copies the files of all parts into the cache, those that exist; returns the copies.

        Raises:
            CacheError: If the cache cannot be written.
        """
        copies = []
        for name in self.every_file:
            if found := next(((home, path) for home in data_homes() if (path := _first(home, name))), None):
                home, path = found
                _copy(path, _copied(name) / path.relative_to(home))
            if copy := _first(_copied(name), name):
                copies += _files(copy)
        return copies

    def needed(self, part: str) -> list[Path]:
        """The files of a part without a copy on the hub.

        Raises:
            ConfigError: When they are missing (the message says how to get them).
        """
        if paths := self.find(part):
            return paths
        raise self.absent(part)

    def from_hub(self, part: str, **options: Any) -> list[Iterable[dict[str, Any]]]:
        """The rows of a part from the hub, one iterable per split of the hub (mostly one).

        Args:
            part: A key of ``files``.
            **options: Options of ``datasets.load_dataset``, for example ``streaming=True``.

        Raises:
            ConfigError: When the data are missing (the message says how to get them).
        """
        if self.hub is None:
            raise self.absent(part)
        try:
            return [loaded(*self.hub.place(), split=name, **options) for name in self.hub.splits.get(part, (part,))]
        except Unavailable as reason:
            raise self.absent(part, str(reason)) from None

    def sizes_on_hub(self) -> dict[str, int]:
        """Split -> number of rows by the hub's metadata; downloads no data.

        Raises:
            ConfigError: When the hub cannot be reached.
        """
        if self.hub is None:
            raise self.absent()
        try:
            splits = _called("load_dataset_builder", *self.hub.place()).info.splits or {}
        except Unavailable as reason:
            raise self.absent("", str(reason)) from None
        return {name: split.num_examples for name, split in splits.items()}

    def absent(self, part: str = "", hub_says: str = "") -> ConfigError:
        """The error for missing data: where they were searched, how to get them, and an alternative.

        Args:
            part: A key of ``files``; by default all.
            hub_says: The failure of the hub, if it was tried.
        """
        home, files = data_home(), self.files[part] if part else self.every_file
        missing = [str(home / name) for name in files if not _first(home, name)] if home else []
        is_one = len(missing) == 1
        why = unusable_data_home() or f"{' and '.join(missing)} {'is' if is_one else 'are'} missing"
        if inside := study():
            why = f"{inside / 'data'} lacks it, and {why}"
        text = f"{self.what} was not found: {why}. {self.advice}"
        if hub_says:
            text += f", or read it from the Hugging Face hub: {self.hub} {hub_says}"
        return ConfigError([f"{text}. {self.otherwise}"])

    @property
    def advice(self) -> str:
        """How to get the data, as a sentence without full stop."""
        return f"Set ABLATIONS_DATA to a folder that holds {', '.join(self.every_file)} {self.form}"

    @property
    def every_file(self) -> tuple[str, ...]:
        """The names of the files of all parts, each once."""
        return tuple(dict.fromkeys(name for names in self.files.values() for name in names))


def found(name: str) -> Path | None:
    """The file of a name or pattern below `data_homes`, or its copy in the cache; None if there is none."""
    for home in data_homes():
        if path := _first(home, name):
            return path
    path = _first(_copied(name), name)
    return path if path and _is_sound(path) else None


def _copied(name: str) -> Path:
    """The folder in the cache with the copy of a file, which has the file's own path there."""
    return cache() / "sources" / identity(name)[:24]


def _copy(source: Path, target: Path) -> None:
    for path in _files(source):
        place = target / path.relative_to(source)
        if not (cached.is_sound(place) and cached.digest(place) == cached.digest(path)):
            with cached.locked(place), open_plain(path) as file:
                cached.write(place, lambda copy: shutil.copyfileobj(file, copy))


def _is_sound(path: Path) -> bool:
    """Whether a copy, or everything in a copied folder, is as it was written."""
    return all(map(cached.is_sound, _files(path)))


def _files(path: Path) -> list[Path]:
    """A file, or all files below a folder without those that the cache adds."""
    below = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [file for file in below if file.is_file() and file.suffix not in (".sha256", ".lock")]


def _first(home: Path, name: str) -> Path | None:
    """The file of that name, or of a pattern the first match in alphabetical order."""
    if any(mark in name for mark in "*?["):
        return next(iter(sorted(home.glob(name))), None)
    return home / name if (home / name).exists() else None


class Unavailable(Exception):
    """Why a data set of the hub is unavailable, worded to follow its name."""


def loaded(*place: str | None, **options: Any) -> Any:
    """``datasets.load_dataset`` with one kind of error.

    Raises:
        Unavailable: When the package is missing, or the data set is offline, unknown, gated ...
    """
    return _called("load_dataset", *place, **options)


def _called(function: str, *place: str | None, **options: Any) -> Any:
    try:
        import datasets  # pyright: ignore[reportMissingImports]  # an extra
    except ImportError:
        raise Unavailable("needs the package datasets: `pip install -e .[hub]`") from None
    note_elsewhere(f"the hub: {place[0]}")
    try:
        return getattr(datasets, function)(*place, **options)
    except Exception as error:
        lines = str(error).splitlines()
        raise Unavailable(f"could not be read ({type(error).__name__}: {lines[0] if lines else ''})") from None
