"""Atomic writing: after a crash or on a full disk a file has either its old or its new content."""

import contextlib
import errno
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk, or what a user may write on it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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

    The temporary name is fixed, so the leftover of a killed process is overwritten by the next. Only one process may
    write a path at a time.

    Raises:
        OSError: From writing, with the file's name; the new file is removed and ``path`` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error if isinstance(error, OSError) else error.__context__
        if isinstance(reason, OSError) and reason.errno:
            reason.filename = reason.filename or str(path)  # writing to an open file names none
            if reason is not error and is_full(reason):  # `torch.save` raises an error of its own while handling it
                raise reason from error
        raise
    folder = os.open(path.parent, os.O_RDONLY)  # the new name itself must reach the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
