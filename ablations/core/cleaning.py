"""What `ablations clean` removes of the cache, and what it leaves: what is in use, and what others put there."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from ablations.core.disk.locks import FOLDER as LOCKS
from ablations.core.store import Records, StoreError
from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.files import read
from lightning_modules.places import cache

_LARGEST = 1_000_000  # bytes of a note or of a job


@dataclass(frozen=True)
class Cleaning:
    """What goes, or is gone, and what stays.

    Attributes:
        going: File or folder of the cache -> its bytes.
        left: Path -> why it stays.
    """

    going: dict[Path, int]
    left: dict[Path, str] = field(default_factory=dict)


def of_finished(records: Records) -> Cleaning:
    """The work folders of the finished runs of a store, and of the published one behind unpublished results.

    Raises:
        CacheError: If there are some, and the cache is not the project's.
    """
    finished = {part.work_folder(path.stem): part for part in records.parts for path in part.files()}
    found = [path for path in cached.contents()[0] if path in finished]
    if found:
        cached.check()
    return _sized(found, {path: reason for path in found if (reason := _in_use(path, finished[path]))})


def of_all(records: Records) -> Cleaning:
    """Everything that the project made in the cache.

    While a run trains or a file is made, only the work folders of other runs go: all the rest may be read.

    Args:
        records: A store. The stores of other work folders are known from the notes there.

    Raises:
        CacheError: If the cache is not the project's.
    """
    cached.check()
    made, others = cached.contents()
    left = dict.fromkeys(others, "ablations did not make it")
    work = [path for path in made if path.parent.parent == cache() / cached.RUNS]
    stores = {home: _store(home, records) for home in {path.parent for path in work}}
    runs = [path for path in work if cached.RESULTS not in path.name]
    in_use = {path: reason for path in runs if (reason := _in_use(path, stores[path.parent]))}
    in_use |= _held(path for path in made if path not in work)
    in_use |= _held(store.folder / LOCKS for store in stores.values() if store)  # a launcher between two runs
    if in_use:
        user, *_ = in_use
        parts = {cache() / path.relative_to(cache()).parts[0] for path in made} - {cache() / cached.RUNS}
        return _sized(runs, left | in_use | dict.fromkeys(sorted(parts), f"{user} may need it"))
    return _sized(made, left)


def _sized(paths: Iterable[Path], left: dict[Path, str]) -> Cleaning:
    return Cleaning({path: sum(_sizes(path)) for path in paths if path not in left}, left)


def remove(going: Iterable[Path]) -> dict[Path, str]:
    """Removes files and folders of the cache, of links only the link, and folders that become empty.

    Returns:
        What could not be removed -> why.
    """
    left = {}
    for path in going:
        try:
            cached.vacate(path)
        except OSError as error:
            if os.path.lexists(path):  # or another process has removed it
                left[path] = f"{error.filename or path}: {error.strerror or error}. Let its owner remove it."
        for folder in path.parents[: len(path.relative_to(cache()).parts) - 1]:
            with contextlib.suppress(OSError):  # it holds more
                folder.rmdir()
    return left


def _in_use(path: Path, store: Records | None) -> str:
    """Why the work folder of a run of a store stays; empty if it does not."""
    if store is None:
        return "it may train now: no note names its results folder (--results-dir does)"
    try:
        return "a process trains it now" if store.is_locked(path.name) else ""
    except StoreError as error:
        return f"it may train now: {error.strerror}"


def _store(home: Path, records: Records) -> Records | None:
    """The store whose runs work in a folder of the cache; None if nothing there names it."""
    stores = (store for store in (*records.parts, *_named(home)) if identity(str(store.folder))[:8] == home.name)
    return next(stores, None)


def _named(home: Path) -> Iterator[Records]:
    """The store in the note of a folder of work folders, and those in jobs, as earlier versions left them."""
    with contextlib.suppress(OSError, ValueError):
        yield Records(read(home / cached.RESULTS, _LARGEST, within=home).decode())
    for path in home.glob("*/run.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            yield Records(json.loads(read(path, _LARGEST, within=home))["results_dir"])


def _held(paths: Iterable[Path]) -> dict[Path, str]:
    """What other processes make at or below some paths, by the locks that they hold -> what is said of it."""
    found = {}
    for path in paths:
        for lock in (file for file in _files(path) if file.suffix == ".lock"):
            try:
                FileLock(lock).acquire(timeout=0).lock.release()
            except Timeout:
                found[lock.with_suffix("")] = "a process makes it now"
            except OSError as error:
                found[lock] = f"it may be held: {error.strerror or error}"
    return found


def _files(path: Path) -> Iterator[Path]:
    """A file, or the files of a folder; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        yield path
    for folder, _, names in os.walk(path) if not path.is_symlink() else ():
        yield from (Path(folder, name) for name in names)


def _sizes(path: Path) -> Iterator[int]:
    for file in _files(path):
        with contextlib.suppress(OSError):  # gone meanwhile
            yield file.lstat().st_size
