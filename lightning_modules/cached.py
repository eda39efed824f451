"""Derived files in the cache: each has its digest next to it, and is made again if it is not as it was written.

A stray write, a bad copy or a dying disk changes a file and keeps its size. What a run computes from such a file is a
wrong number under the right id, so nothing is read before its digest has been compared: 0.1 s per 100 MB, once per
process. A file whose digest moved along with it is found too: a comment below the digest, which `sha256sum --check`
skips, names the place of the file. Earlier digests name no place and hold anywhere.

`folder` makes the folders of the cache, and marks the cache with ``CACHEDIR.TAG``. A folder that ``ABLATIONS_CACHE``
names and that holds files of others is no cache: nothing is written there and nothing removed.
"""

import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

import numpy as np

from lightning_modules.config import identity
from lightning_modules.files import is_full, lock, open_plain, read, read_text, version, write_atomically
from lightning_modules.places import cache

T = TypeVar("T")
_noted: list[set[Path]] = []  # what `noting` collects, the outermost first
_LARGEST_DIGEST = 1 << 14  # bytes of a digest with its comment
_PLACE = "# of "  # begins the line with the place of a file
RUNS, RESULTS = "runs", "results.txt"  # the part for work folders of runs, and the note of their results folder
PARTS = (  # folders of the cache; whoever makes another one adds its name
    "checked", "compiled", "curves", "features", "fingerprints", "footprints", "pieces", "probe-controls", "probes",
    RUNS, "shown", "sources", "stores", "stretches", "task-baselines", "tasks", "tokenizers", "unlabelled",
    "validation-parts", "word-vectors", "zero-shot",
)  # fmt: skip
_NAMED = r"\.?([\w-]+-)?([0-9a-f]{24}|[0-9a-f]{16})(\..+)?"  # what lies in a part: its name has a digest
_WORK = rf"[0-9a-f]{{8}}(/([0-9a-f]{{16}}|\.?{re.escape(RESULTS)}(\..+)?))?"  # what lies in the part for runs
_MADE = re.compile(rf"{RUNS}(/{_WORK})?|({'|'.join(part for part in PARTS if part != RUNS)})(/{_NAMED})?")
_OWN_FILES = {"meta.json", "tokenizer.json", "run.json", "log.txt", "progress.json", "last.ckpt"}  # in folders there
_OF_DISKS = {"lost+found"}  # on the top of a file system
TAG = "CACHEDIR.TAG"  # as on https://bford.info/cachedir
_CODE = {".py", ".yaml", ".csv", ".json"}  # files of a package that decide what it computes
_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"
_OWNER = b"# This is the cache of ablations, whose files can be made again; `ablations clean --all` removes them."


class CacheError(OSError):
    """The cache cannot be written: where, why, and what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


def kept(path: Path, make: Callable[[BinaryIO], object], read: Callable[[Path], T]) -> T:
    """What a file of the cache holds.

    Args:
        path: The file; its name says what it is made from.
        make: Writes the content to an open file; called if the file is missing, altered or without a digest.

    Raises:
        CacheError: If it cannot be written.
    """
    if not is_sound(path):
        with locked(path):
            if not is_sound(path):  # or another process has made it meanwhile
                announce(path, "is not as it was written" if _beside(path).exists() else "has no digest")
                write(path, make)
    return read(path)


def write(path: Path, make: Callable[[BinaryIO], object], within: Path | None = None) -> None:
    """Writes a file and its digest, each atomically; between the two the file counts as altered.

    Only one process may write a path at a time.

    Args:
        within: See `place`.

    Raises:
        CacheError: If it cannot be written.
    """
    folder(path.parent)
    with reporting(path):
        for target in (path, _beside(path)):
            if target.is_dir():
                vacate(target)
        write_atomically(path, make)
        lines = f"{digest(path)}  {path.name}\n{_PLACE}{place(path, within)}\n"  # as `sha256sum --check` reads them
        write_atomically(_beside(path), lambda file: file.write(lines.encode()))


def put_array(file: BinaryIO, values: np.ndarray) -> None:
    """Writes an array in numpy's format; unlike `numpy.save` on an open file it says when the disk is full."""
    packed = io.BytesIO()
    np.save(packed, values)
    file.write(packed.getbuffer())


def put_json(file: BinaryIO, content: object) -> None:
    """Writes content as JSON."""
    file.write(json.dumps(content).encode())


def get_json(path: Path) -> Any:
    """Reads what `put_json` wrote."""
    return json.loads(path.read_bytes())


def kept_json(path: Path, make: Callable[[], object]) -> Any:
    """As `kept`, of content that JSON can hold; ``make`` returns it."""
    return kept(path, lambda file: put_json(file, make()), get_json)


def kept_array(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """As `kept`, of an array, which is mapped into memory; ``make`` returns it."""
    return kept(path, lambda file: put_array(file, make()), lambda path: np.asarray(np.load(path, mmap_mode="r")))


def remember(path: Path, key: str, content: object) -> None:
    """Keeps content that JSON can hold in place of what was kept there; where the cache cannot be written, nothing.

    Args:
        path: The place, one for each thing that is kept, whatever its key.
        key: Identifies all that the content follows from.
    """
    with contextlib.suppress(CacheError), locked(path):
        write(path, lambda file: put_json(file, {"key": key, "content": content}))


def recalled(path: Path, key: str) -> Any:
    """What `remember` kept at a place, if the key is the same and the file as it was written; else None."""
    if not is_sound(path):
        return None
    found = get_json(path)
    return found["content"] if found["key"] == key else None


@functools.cache
def code(*packages: Path) -> str:
    """Identifies the code and data of packages, Python and what is installed, by the versions of files and folders."""
    files = [path for package in packages for path in package.rglob("*") if path.suffix in _CODE]
    places = [*sorted(files), Path(sysconfig.get_path("purelib"))]
    return identity([sys.version, *([str(path), *version(path)] for path in places)])


def remove(path: Path) -> None:
    """Removes a file and its digest, if they are there."""
    path.unlink(missing_ok=True)
    _beside(path).unlink(missing_ok=True)


def is_sound(path: Path, within: Path | None = None) -> bool:
    """Whether a file has a digest, is as it was written, and was written for this place.

    Args:
        within: The folder that links may not lead out of; by default they may lead anywhere.
    """
    try:
        said, *comments = read_text(_beside(path), _LARGEST_DIGEST, within).splitlines()
        places = [comment.removeprefix(_PLACE) for comment in comments if comment.startswith(_PLACE)]
        return said.split()[:1] == [digest(path, within)] and all(is_at(path, name) for name in places)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def noting() -> Iterator[set[Path]]:
    """Collects the files whose digest this process compares meanwhile: all that it reads from the cache, and others."""
    noted: set[Path] = set()
    _noted.append(noted)
    try:
        yield noted
    finally:
        _noted.pop()


def with_digests(paths: Iterable[Path]) -> list[Path]:
    """Files of the cache with what says that they are sound: their digests, or the ``meta.json`` of a token store."""
    inside = {path for path in paths if path.is_relative_to(cache()) and path.is_file()}
    said = {proof for path in inside for proof in (_beside(path), path.with_name("meta.json")) if proof.is_file()}
    return sorted(inside | said)


def place(path: Path, within: Path | None = None) -> str:
    """The place of a file or folder by name, which holds the key of what is there.

    Args:
        within: The folder that the name starts from; by default the cache. Elsewhere the place is the last name alone.
    """
    home = within or cache()
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else path.name


def is_at(path: Path, name: str) -> bool:
    """Whether a path ends with the name of a place; the folders above may have moved."""
    parts = PurePosixPath(name).parts
    return path.parts[-len(parts) :] == parts


def digest(path: Path, within: Path | None = None) -> str:
    """SHA-256 of a file, computed once per process unless its place or its `version` changes.

    Args:
        within: See `is_sound`.

    Raises:
        OSError: If it cannot be read or is no plain file.
    """
    state = path.stat()
    for noted in _noted:
        noted.add(path)
    return _digest(path, within, state.st_dev, state.st_ino, *version(path))


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, within: Path | None, *_: int) -> str:
    with open_plain(path, within) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a path of the cache, whose folder is made.

    Raises:
        CacheError: If the folder cannot be made or written.
        Refused: If something other than a plain file is in the place of the lock.
    """
    folder(path.parent)
    held = lock(path.with_name(f"{path.name}.lock"))
    with reporting(path):
        held.acquire()
    try:
        yield
    finally:
        held.release()


def work_home(results: Path) -> Path:
    """The folder of the work folders of a results folder's runs."""
    return cache() / RUNS / identity(str(results))[:8]


def folder(path: Path) -> Path:
    """Makes a folder; in the cache, a file in place of a folder whose name is a digest makes room.

    Raises:
        CacheError: If a folder of the cache cannot be made, or the cache is not the project's.
    """
    with reporting(path):
        if not path.is_relative_to(cache()):
            path.mkdir(parents=True, exist_ok=True)
            return path
        _mark()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            named = path.relative_to(cache()).parts[1:]  # the first says what the folder holds and may be a user's file
            within = path.parents[len(named) - 1] if named else path
            for name in named:
                within = within / name
                if not within.is_dir():
                    vacate(within)
            path.mkdir(parents=True, exist_ok=True)
    return path


def _mark() -> None:
    if _is_marked():
        return
    check()
    cache().mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # another process is quicker, or others may write below this folder alone
        write_atomically(cache() / TAG, lambda file: file.write(b"\n".join((_SIGNATURE, _OWNER, b""))))
        (cache() / TAG).chmod(0o644)  # for those who share the cache, whatever the umask


def _is_marked() -> bool:
    """Whether the cache has the mark of this project; other programs mark theirs by a file of the same name."""
    try:
        lines = read(cache() / TAG, 4096, within=cache()).splitlines()
    except OSError:
        return False
    return lines[:1] == [_SIGNATURE] and _OWNER in lines


def check() -> None:
    """Refuses a cache that is not the project's: ``ABLATIONS_CACHE`` names it, and it holds files of others.

    The project's are a marked folder, an empty or missing one, and one with only what earlier versions kept.

    Raises:
        CacheError: With what is there, and what to do.
    """
    if not os.environ.get("ABLATIONS_CACHE") or _is_marked():
        return
    kept, others = contents()
    if foreign := sorted({*others, *(path for path in kept if not _is_proven(path))}):
        first, more = foreign[0].relative_to(cache()), len(foreign) - 1
        what = f"{first}{' (a link)' if foreign[0].is_symlink() else ''}{f' and {more:,} more' if more else ''}"
        advice = f"Set it to an empty or new folder, such as {cache() / 'ablations'}"
        message = f"ABLATIONS_CACHE names {cache()}, which is no cache of ablations: it holds {what}. {advice}"
        raise CacheError(errno.ENOTEMPTY, message, str(cache()))


def _is_proven(path: Path) -> bool:
    """Whether the content of a place of the project's shows that the project made it; its name alone may be chance."""
    if path.is_symlink():
        return False  # the project makes none
    if path.is_dir():
        found = [file.name for file in path.rglob("*") if not file.is_dir()]
        return not found or any(name in _OWN_FILES or name.endswith((".sha256", ".lock")) for name in found)
    return path.name.endswith((".sha256", ".lock")) or path.name == RESULTS or _beside(path).exists()


def contents() -> tuple[list[Path], list[Path]]:
    """What the project made in the cache, file by file and folder by folder, and what it did not make.

    Links are not followed. One at a place of the project's counts as made by it, and so does a folder there that
    another user has closed: nobody else can write or remove it.
    """
    made: list[Path] = []
    others: list[Path] = []
    for part in (path for path in _below(cache(), 1) if path.name not in _OF_DISKS):
        is_mark = _is_marked() if part.name == TAG else part.name.startswith(f".{TAG}.")  # or one that is being written
        levels = 2 if part.name == RUNS else int(part.name in PARTS)
        for path in _below(part, levels) if not is_mark else ():
            name = path.relative_to(cache())
            is_whole = len(name.parts) > levels or path.is_symlink() or path.is_dir()  # else a file bars the way
            (made if is_whole and _MADE.fullmatch(name.as_posix()) else others).append(path)
    return made, others


def _below(folder: Path, levels: int) -> Iterator[Path]:
    """What lies some levels below a folder, ordered; a link, a file and what another user has closed end the way."""
    if levels and folder.is_dir() and not folder.is_symlink() and os.access(folder, os.R_OK | os.X_OK):
        for path in sorted(folder.iterdir()):
            yield from _below(path, levels - 1)
    elif levels == 0 or folder != cache():
        yield folder


def vacate(path: Path) -> None:
    """Removes what is at a place of the cache. Of a link it removes only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turns failures to write a path of the cache into errors that say what to do; others pass.

    Raises:
        CacheError: From an error at the path, below the cache or above it.
    """
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        place = Path(error.filename or path)
        if not place.is_relative_to(cache()) and not cache().is_relative_to(place):
            raise  # a file of the user's that the content is made from
        what = "Free some space there, or set" if is_full(error) else "Set"
        reason = f"the cache cannot be written at {place}: {error.strerror or error}"
        message = f"{reason}. {what} ABLATIONS_CACHE to another folder"
        raise CacheError(error.errno, message, str(place)) from error


def announce(path: Path, why: str) -> None:
    """Says on standard error that something in the cache is made again, if there is something."""
    if path.exists() or path.is_symlink():
        name = path.relative_to(cache()) if path.is_relative_to(cache()) else path.name
        print(f"{name} in the cache {why}: it is made again", file=sys.stderr, flush=True)
