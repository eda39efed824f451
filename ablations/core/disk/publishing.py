"""Writing files of results: replaced in one step, or created only where there is none."""

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_modules.files import is_full, is_inside, write_atomically

_TRIES = 100  # others may take away what was prepared, each try makes it again
_PATIENCE = 5.0  # seconds for another writer in the same folder, who may be stopped
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)


class StoreError(OSError):
    """A file of results could not be written or reached; what was there is intact."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def check_inside(folder: Path, results: Path) -> None:
    """Refuses to write into a folder below the results that is linked out of them; they may be linked themselves.

    Raises:
        StoreError: If one does.
    """
    if not is_inside(folder, results):
        message = (
            f"is linked out of {results}, and nothing is written there. Put the folder itself in place of the link."
        )
        raise StoreError(errno.ELOOP, message, str(folder))


def write(path: Path, content: bytes) -> None:
    """Replaces a file atomically: the old content stays until the new content is on the disk.

    Raises:
        StoreError: With the file and the bytes it needs; the file is unchanged.
    """
    try:
        write_atomically(path, lambda file: file.write(content))
    except OSError as error:
        raise unwritten(error, path, f"{len(content):,} bytes") from error


def publish(path: Path, content: bytes, stands: Callable[[Path], bool]) -> bool:
    """Creates a file, whole and on the disk, unless a valid one is there: of several writers exactly one wins.

    The caller's lock is not needed for that. The content is written under a name of this call's own and then linked to
    its place, which fails where there is a file. What is there and is not valid is moved aside first and looked at once
    more. It is put back if it has become valid. While it is away a third writer may find the place free, so writers of
    a folder take turns (`turn`). On a file system without hard links the two locks alone protect.

    Args:
        stands: Whether a file, if it is there, is to be kept.

    Returns:
        Whether this call created it. False if the one that was there is kept.

    Raises:
        StoreError: With the file and the bytes it needs; a file that stood there is unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with turn(path.parent):
            _sweep(path, stands)
            for _ in range(_TRIES):
                if (created := _attempt(path, content, stands)) is not None:
                    return created
    except OSError as error:
        raise unwritten(error, path, f"{len(content):,} bytes") from error
    raise StoreError(errno.EBUSY, "other processes replace it all the time. End them and try again.", str(path))


@contextmanager
def turn(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Lets the writers of a folder go one after the other, by a lock of the folder itself, which leaves no file.

    Where folders cannot be locked, and after ``patience`` seconds behind a writer that is stopped, it goes on without.
    """
    import fcntl  # not on Windows, where records are only read

    place, until = os.open(folder, os.O_RDONLY), time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(0.005)
            except OSError:
                break
        yield
    finally:
        os.close(place)


def unwritten(error: OSError, path: Path, what: str) -> StoreError:
    """The error for a path that could not be replaced: where, why, what to do."""
    advice = "Free some space and try again." if is_full(error) else "Make it writable or take another folder."
    message = f"{error.strerror or error}: {what} could not be written. The file is unchanged. {advice}"
    return StoreError(error.errno or errno.EIO, message, str(path))


def _attempt(path: Path, content: bytes, stands: Callable[[Path], bool]) -> bool | None:
    """One try to publish: whether it created the file, None if it has to be tried again."""
    if os.path.lexists(path) and stands(path):
        return False
    own = _beside(path, "tmp")
    try:
        with own.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not _linked(own, path):
            if not stands(path):
                _set_aside(path, stands)
            return None
    except FileNotFoundError:  # another writer of this file took ours for that of a dead one
        return None
    finally:
        with contextlib.suppress(OSError):
            own.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)  # the new name itself must reach the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _linked(own: Path, path: Path) -> bool:
    """Gives a file a second name, unless there is a file of that name."""
    try:
        os.link(own, path)
    except FileExistsError:
        with contextlib.suppress(OSError):  # gone meanwhile, or a link to nothing or to itself
            return os.path.samefile(own, path)  # a file server may do it and lose its answer
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            return False
        os.replace(own, path)
    return True


def _set_aside(path: Path, stands: Callable[[Path], bool]) -> None:
    aside = _beside(path, "old")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        _settle(aside, path, stands)


def _settle(aside: Path, path: Path, stands: Callable[[Path], bool]) -> None:
    """Ends the stay of a file that was moved aside. It goes back if it is valid, which its mover did not see."""
    if stands(aside):
        _linked(aside, path)
    aside.unlink(missing_ok=True)


def _sweep(path: Path, stands: Callable[[Path], bool]) -> None:
    """Clears away what earlier writers of a file left when they died."""
    for left in path.parent.glob(f".{path.name}.*"):
        if left.suffix == ".old":
            _settle(left, path, stands)
        else:
            left.unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.{suffix}")
