"""Writing files so that whatever happens, kill or full disk, there is the old content or the new."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls ``write(file)`` on a new file in the same folder, then puts it in the place of ``path`` in one step.

    The temporary name is fixed, so what a killed process leaves is overwritten by the next. One process writes a
    file at a time.

    Raises:
        OSError: From writing; the new file is removed first and ``path`` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)  # the new name itself must reach the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
