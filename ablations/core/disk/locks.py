"""The locks of a results folder, and whether they work: between processes, after a death, and on what a network shares.

A lock that holds inside one process only, or on one machine only, would let two launchers make the same runs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from filelock import FileLock, Timeout

from ablations.core.disk.publishing import check_inside, unwritten
from lightning_modules.config import ConfigError
from lightning_modules.files import lock

FOLDER = ".locks"  # in a results folder
_LIMIT = 30.0  # seconds for another process to answer
_MOUNTS = Path("/proc/self/mounts")
# Kinds of file systems that several machines share, and the mount options with which each machine locks for itself.
_LOCAL = {
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("local_lock=all", "local_lock=flock"),
    "lustre": ("localflock",),
    "cifs": ("nobrl",),
    "smb3": ("nobrl",),
}
_UNLOCKED = ("fuse.sshfs",)  # kinds whose locks never reach the other machines
_ADVICE = "Choose another folder with --results-dir, and bring its records with `ablations sync`."

# Another process: tries a lock, which its parent holds or has released, and dies with what it got.
_TRY = """
import os, sys
from importlib import import_module
from filelock import Timeout
module, name, path = sys.argv[1:]
try:
    getattr(import_module(module), name)(path).acquire(timeout=0)
    got = 10
except Timeout:
    got = 11
os._exit(got)
"""
_TAKEN, _REFUSED = 10, 11  # exit codes
_sound: set[int] = set()  # devices whose locks work


class Lock(Protocol):
    """What a lock can do, as of filelock's."""

    def __init__(self, path: str, /) -> None: ...

    def acquire(self, timeout: float) -> object:
        """Takes it, or raises `filelock.Timeout` after so many seconds."""

    def release(self) -> object:
        """Frees it."""


class Mount(NamedTuple):
    """A mounted file system: what it is of, its kind, the options."""

    source: str
    kind: str
    options: tuple[str, ...]


def named(results: Path, name: str) -> FileLock:
    """The lock of a name in a results folder, not yet acquired.

    Raises:
        Refused: If something other than a plain file is in the place of its file.
        StoreError: If its folder cannot be made, or is linked out of the results.
    """
    path = results / FOLDER / f"{name}.lock"
    check_inside(path.parent, results)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(error, path.parent, "locks of runs") from error
    return lock(path)


def check(folder: Path) -> None:
    """Refuses a folder of locks whose file system cannot lock.

    It is checked once for each file system and process. It starts two processes, one after the other.

    Args:
        folder: An existing folder that can be written.

    Raises:
        ConfigError: With what does not work, and what to do.
    """
    device = os.stat(folder).st_dev
    if device in _sound:
        return
    mount = mounted(folder, _MOUNTS.read_text(errors="replace") if _MOUNTS.exists() else "")
    fault = shared_without_locks(mount) if mount else ""
    if fault := fault or between_processes(folder):
        raise ConfigError([f"locks do not work in {folder}: {fault}. {_ADVICE}"])
    _sound.add(device)


def mounted(folder: Path, table: str) -> Mount | None:
    """The file system that a folder lies on; None if the table does not say.

    Args:
        table: Lines as in ``/proc/self/mounts``.
    """
    place, found = Path(os.path.realpath(folder)), None
    longest = -1
    for line in table.splitlines():
        source, point, kind, options, *_ = [*map(_unescaped, line.split()), "", "", "", ""]
        if point and place.is_relative_to(point) and len(point) >= longest:  # a later mount covers an earlier one
            longest, found = len(point), Mount(source, kind, tuple(options.split(",")))
    return found


def shared_without_locks(mount: Mount) -> str:
    """Why locks on a file system that a network shares hold on this machine alone; empty if they do not."""
    cause = next((option for option in _LOCAL.get(mount.kind, ()) if option in mount.options), "")
    if cause:
        return f"{mount.source} is mounted with `{cause}`, so a lock holds here alone. Mount it without that"
    if mount.kind in _UNLOCKED:
        return f"{mount.source} is mounted by {mount.kind}, so a lock holds on this machine alone"
    return ""


def between_processes(folder: Path, kind: type[Lock] = FileLock) -> str:
    """What is wrong with locks between the processes of this machine; empty if nothing is.

    Args:
        folder: Where to try it; nothing is left there.
        kind: The class of locks; the other process imports it by its name.

    Raises:
        ConfigError: If no other process can be started.
    """
    path = folder / f"check-{os.getpid()}.lock"
    held = kind(str(path))
    try:
        held.acquire(timeout=0)
        if type(held) is not kind:  # filelock's way out, which other machines and later versions treat in other ways
            return "the file system has no locks"
        while_held = _other(kind, path)
        held.release()
        if while_held == _TAKEN:
            return "a second process got a lock that the first one held"
        after = _other(kind, path)  # and dies with the lock
        if {while_held, after} != {_REFUSED, _TAKEN}:
            return "a second process could not try a lock"
        held.acquire(timeout=1.0)
    except Timeout:
        return "a lock stays when the process that holds it has died"
    except OSError as error:
        return f"no lock can be taken ({error.strerror or error})"
    finally:
        held.release()
        path.unlink(missing_ok=True)
    return ""


def _other(kind: type[Lock], path: Path) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _TRY, kind.__module__, kind.__qualname__, str(path)]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"another process waited for it for {_LIMIT:g} s") from None
    except OSError as error:  # which says nothing of locks
        reason = f"{sys.executable}: {error.strerror or error}"
        advice = "Let its owner give you permission to run it, or install Python and this project for yourself."
        raise ConfigError([f"no process of Python can be started ({reason}). {advice}"]) from None
    return ended.returncode


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
