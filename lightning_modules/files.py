"""Reading files of others, and writing files atomically: after a crash a file has its old content or its new one.

A file that somebody else could put in its place may be a pipe that never ends, a device, or a link to anywhere.
`open_plain` and what follows it here are the one way to read such a file; what they do not read is a `Refused`.
"""

import contextlib
import errno
import functools
import inspect
import io
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from filelock import FileLock

T = TypeVar("T")
LARGEST = 64 << 20  # bytes of a file that is read whole, where its kind has no smaller bound
_WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # each is unknown to some systems
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk, or what a user may write on it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Refused(OSError):
    """A file that is not read: it is no plain file, holds more than allowed, or is linked out of its folder."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def open_plain(path: Path, within: Path | None = None) -> io.BufferedReader:
    """Opens a plain file for reading; never waits for a pipe, never opens a device.

    Args:
        path: The file, or a link to one.
        within: The folder that links may not lead out of; by default they may lead anywhere.

    Raises:
        Refused: If it is a folder, a pipe, a socket or a device, or is linked out of the folder.
        OSError: If it cannot be opened.
    """
    place = os.fspath(path)
    if within and _is_by_link(place, os.fspath(within)):
        place = os.path.realpath(path, strict=True)
        if not is_inside(path, within):
            raise Refused(errno.EPERM, f"is a link out of {within}. Put the file itself there", str(path))
    _check_plain(path, os.stat(place))  # opening alone can set a device in motion
    descriptor = os.open(place, os.O_RDONLY | _WITHOUT_WAITING | (_NO_LINK if within else 0))
    try:
        _check_plain(path, os.fstat(descriptor))  # it may have been replaced meanwhile
    except Refused:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read(path: Path, most: int = LARGEST, within: Path | None = None) -> bytes:
    """The content of a plain file, bounded by what is read and not by the size that the file is said to have.

    Args:
        most: Bytes that it may hold.
        within: As in `open_plain`.

    Raises:
        Refused: As `open_plain`, and if it holds more.
        OSError: If it cannot be read.
    """
    with open_plain(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, most) + 1) or b""  # room for all that is requested. None: it would wait
        if len(content) > size:  # it has grown
            content += file.read(max(0, most + 1 - len(content))) or b""
    if len(content) > most:
        raise Refused(errno.EOVERFLOW, f"holds more than {most:,} bytes, the most that is read", str(path))
    return content


def read_text(path: Path, most: int = LARGEST, within: Path | None = None, encoding: str = "utf-8") -> str:
    r"""As `read`, decoded; a line ends with \n, in place of \r\n too. A lone \r ends none.

    Raises:
        UnicodeDecodeError: If it is no text of this encoding.
    """
    return read(path, most, within).decode(encoding).replace("\r\n", "\n")


def open_end(path: Path) -> io.FileIO:
    """Opens a plain file for adding to its end, or makes it; what else lies there is removed, of a link only the link.

    Raises:
        OSError: If it cannot be opened or made.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINK | _WITHOUT_WAITING
    return os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)


def lock(path: Path) -> FileLock:
    """A lock between processes, not yet acquired. The kernel releases it when its holder dies.

    Raises:
        Refused: If something other than a plain file is in the place of its file.
    """
    with contextlib.suppress(FileNotFoundError):
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            raise Refused(errno.ELOOP, "is a link where a lock should be. Remove it", str(path))
        _check_plain(path, state)
    return FileLock(path)


def home_of(folder: Path) -> Path:
    """The folder that links in a checkpoint's folder may not lead out of.

    The cache of the Hugging Face hub keeps ``<model>/snapshots/<revision>`` of links into ``<model>/blobs``: there it
    is the model's.
    """
    for place in folder.resolve().parents:
        if place.name == "snapshots" and (place.parent / "blobs").is_dir():
            return place.parent
    return folder


def is_inside(path: Path, folder: Path) -> bool:
    """Whether no link leads from a path below a folder out of the folder, which may itself be reached by a link."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _is_by_link(path: str, folder: str) -> bool:
    """Whether a path goes through links below a folder, or may: most do not, and are not resolved from the root."""
    if not path.startswith(f"{folder}{os.sep}") or os.pardir in path:
        return True
    while path != folder:
        if os.path.islink(path):
            return True
        path = os.path.dirname(path)
    return False


def _check_plain(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        what = "a folder" if stat.S_ISDIR(state.st_mode) else "a pipe, a socket or a device"
        raise Refused(errno.EINVAL, f"is {what} where a file should be. Move it away", str(path))


def version(path: Path) -> tuple[int, int, int]:
    """What shows, without reading it, that a file has changed: size, time of the content, time of the last change.

    The last two in nanoseconds. A copy or an editor may keep size and time of the content, but not the third.
    """
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns


def once_per_version(read: Callable[[Path], T]) -> Callable[..., T]:
    """Caches what a function reads of a file, or of the files of a folder, while their `version` stays the same.

    Args:
        read: Has a default for the path.
    """
    kept = functools.lru_cache(maxsize=16)(lambda path, _versions: read(path))
    (usual,) = inspect.signature(read).parameters.values()

    @functools.wraps(read)
    def known(path: Path = usual.default) -> T:
        files = sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []
        return kept(path, tuple((file, *version(file)) for file in files))

    return known


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls ``write(file)`` on a new file in the same folder, then replaces ``path`` by it in one step.

    The new file has a random name and must not exist, so a link that lies in wait is not followed. What killed
    processes left of this path is removed first: only one process may write a path at a time.

    Raises:
        OSError: From writing, with the file's name; the new file is removed and ``path`` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error if isinstance(error, OSError) else error.__context__
        if isinstance(reason, OSError) and reason.errno:
            if reason.filename in (None, str(temporary)):  # writing to an open file names none
                reason.filename = str(path)
            if reason is not error and is_full(reason):  # `torch.save` raises an error of its own while handling it
                raise reason from error
        raise
    folder = os.open(path.parent, os.O_RDONLY)  # the new name itself must reach the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sweep(path: Path) -> None:
    """Removes what earlier writers of a path left; of a link only the link."""
    left = re.compile(rf"\.{re.escape(path.name)}(\.[0-9a-f]{{8}})?\.tmp")
    for name in filter(left.fullmatch, os.listdir(path.parent)):
        with contextlib.suppress(OSError):
            path.with_name(name).unlink()
