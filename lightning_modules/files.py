"""Atomic writing: after a crash or on a full disk a file has either its old or its new content."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a full disk says


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
        if isinstance(error, OSError) and error.errno and error.filename is None:  # writing to an open file names none
            error.filename = str(path)
        raise
    folder = os.open(path.parent, os.O_RDONLY)  # the new name itself must reach the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
