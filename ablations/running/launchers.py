"""The launchers that work on a results folder now, each with its code, so that no two make the same runs differently.

A launcher is ``.locks/launchers/<16 hex>.json`` next to a lock that it holds as long as it lives. Whoever finds the
lock free removes both. With a file ``<16 hex>.stop`` next to them it writes checkpoints and ends, on whatever machine
it is.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ablations.core import provenance
from ablations.core.disk import locks
from ablations.core.store import Records, write
from lightning_modules.config import ConfigError
from lightning_modules.files import is_full, read

_FOLDER = "launchers"  # among the locks
_STOP = ".stop"  # ending of the file that stops a launcher
_LOOK = 1.0  # seconds between looks for it


@contextmanager
def registered(records: Records, runs: Iterable[str], grid: str = "", scale: str = "") -> Iterator[None]:
    """Counts this process among the launchers of a results folder while it makes some runs.

    It gets SIGTERM when it is to stop, see `stop`.

    Args:
        runs: The ids of the runs. Without any, nothing is written.

    Raises:
        ConfigError: If a living launcher is to make one of these runs with other code: who, since when, what to do.
        Refused: If something other than a plain file is in the place of a lock.
    """
    wanted = sorted(runs)
    if not wanted:
        yield
        return
    name = f"{_FOLDER}/{uuid.uuid4().hex[:16]}"
    note, lock = records.folder / locks.FOLDER / f"{name}.json", locks.named(records.folder, name)
    with locks.named(records.folder, _FOLDER):
        _refuse_other_code(_living(records.folder), set(wanted))
        lock.acquire()
        said = {"host": socket.gethostname(), "pid": os.getpid(), "since": provenance.now(), "runs": wanted}
        said |= {"grid": grid, "scale": scale}
        try:
            write(note, json.dumps({**said, **provenance.code(), "code": provenance.fingerprint()}).encode())
        except OSError as error:
            if not is_full(error):
                raise  # of a full disk the runs report
    over = threading.Event()
    threading.Thread(target=_obey, args=(note.with_suffix(_STOP), over), name="obey", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        _remove(note, lock)


def _obey(stop: Path, over: threading.Event) -> None:
    while not over.wait(_LOOK):
        if stop.exists():
            os.kill(os.getpid(), signal.SIGTERM)
            return


@dataclass(frozen=True)
class Launcher:
    """A launcher that works on a results folder now.

    Attributes:
        host: Its machine.
        pid: Its process.
        since: When it began.
        grid: The grid whose runs it makes.
        scale: Its scale.
        runs: How many it was to make.
        note: Its file.
    """

    host: str
    pid: int
    since: str
    grid: str
    scale: str
    runs: int
    note: Path


def living(records: Records) -> list[Launcher]:
    """The launchers that work on a results folder now, the oldest first."""
    found = []
    for note, told in _living(records.folder):
        named = {key: told.get(key, "") for key in ("host", "pid", "since", "grid", "scale")}
        found.append(Launcher(**named, runs=len(told["runs"]), note=note))
    return sorted(found, key=lambda launcher: launcher.since)


def stop(launcher: Launcher) -> None:
    """Lets a launcher write the checkpoints of its runs and end, within a second or so."""
    launcher.note.with_suffix(_STOP).touch()


def _living(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The files of living launchers and what they say; those of dead ones are removed."""
    for note in sorted((results / locks.FOLDER / _FOLDER).glob("*.json")):
        lock = locks.named(results, f"{_FOLDER}/{note.stem}")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with contextlib.suppress(OSError, ValueError):  # it ends just now
                yield note, json.loads(read(note, within=results))
        else:
            _remove(note, lock)


def _remove(note: Path, lock: FileLock) -> None:
    with contextlib.suppress(OSError):
        note.unlink(missing_ok=True)
        note.with_suffix(_STOP).unlink(missing_ok=True)
        os.unlink(lock.lock_file)
    lock.release()


def _refuse_other_code(others: Iterable[tuple[Path, dict[str, Any]]], wanted: set[str]) -> None:
    for _, other in others:
        same = wanted.intersection(other["runs"])
        if same and other["code"] != provenance.fingerprint():
            here, there = (code.get("commit") or "no commit" for code in (provenance.code(), other))
            raise ConfigError(
                [
                    f"process {other['pid']} on {other['host']} makes {len(same)} of these runs since "
                    f"{other['since']}, with other code ({there[:12]}, {other['code']}, here "
                    f"{here[:12]}, {provenance.fingerprint()}). "
                    "Wait for it, end it, or use another results folder."
                ]
            )
