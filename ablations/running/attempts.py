"""Attempts at runs that processes make now, each in a file: who makes it, where, since when.

A process writes the file once it has the run's lock, before any work, and removes it when it has ended the attempt. The
kernel frees the lock at its death, so an attempt whose lock is free is a dead one; whoever takes the run next records
it as killed.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ablations.core import provenance
from ablations.core.disk.locks import FOLDER
from ablations.core.store import Records, write
from ablations.running import signals
from ablations.running.exit_codes import FAILED, NO_MEMORY
from ablations.running.ranks import memory
from ablations.running.ranks.meeting import Meeting
from ablations.schema.record import Outcome, Record
from lightning_modules.files import read


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run.

    Attributes:
        run_id: The run.
        number: Its number among the attempts at this run, from 1.
        grid: The grid for which it is made.
        label: The scale, and what its plan calls the run.
        host: The machine.
        pid: The process.
        since: When it began.
        code: The fingerprint of its code.
    """

    run_id: str
    number: int
    grid: str
    label: str
    host: str
    pid: int
    since: str
    code: str

    @property
    def place(self) -> str:
        """``process 1234 on host``."""
        return f"process {self.pid} on {self.host}"


def begin(records: Records, run_id: str, number: int, since: str, grid: str = "", label: str = "") -> Attempt:
    """Writes down that this process makes an attempt; it holds the run's lock."""
    place = socket.gethostname(), os.getpid()
    attempt = Attempt(run_id, number, grid, label, *place, since, provenance.fingerprint())
    path = _path(records, run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(asdict(attempt)).encode())
    signals.before_leaving[:] = [lambda: end(records, run_id)]
    return attempt


def end(records: Records, run_id: str) -> None:
    """Removes the file of an attempt that has ended, whatever it came to."""
    signals.before_leaving.clear()
    with contextlib.suppress(OSError):  # a folder that was removed, or a file server that answers late
        _path(records, run_id).unlink(missing_ok=True)


def of(records: Records, run_id: str) -> Attempt | None:
    """The attempt at a run that is under way, or was until its process died; None if there is none."""
    return _read(_path(records, run_id), records.folder)


def count(records: Records, run_id: str) -> int:
    """How many attempts at a run there were: those that its record counts, and one that died unrecorded."""
    dead = of(records, run_id)
    return max(recorded(records.get(run_id)), dead.number if dead else 0)


def recorded(record: Record | None) -> int:
    """How many attempts a record counts."""
    counted = record.provenance.get("attempts") if record else 0
    return counted if isinstance(counted, int) else 0


def known(records: Records) -> Iterator[Attempt]:
    """All attempts that are under way or dead, the oldest first."""
    folder = records.folder / FOLDER / "attempts"
    found = (_read(path, records.folder) for path in folder.glob("*.json"))
    yield from sorted(filter(None, found), key=lambda attempt: attempt.since)


def outcome_of_death(code: int, folder: Path) -> tuple[Outcome, str]:
    """The outcome of an attempt whose process ended without a record, and its detail.

    Args:
        code: Its exit code; negative for the signal that it died of.
    """
    if code == FAILED and (rank := Meeting.left(folder)):
        return rank.outcome, str(rank)
    if code == NO_MEMORY:
        return "oom", memory.KILLED
    return (
        ("killed", f"the process died of signal {-code}")
        if code < 0
        else ("failed", f"the process ended with code {code}")
    )


def _path(records: Records, run_id: str) -> Path:
    records.path(run_id)  # an id, and no path
    return records.folder / FOLDER / "attempts" / f"{run_id}.json"


def _read(path: Path, folder: Path) -> Attempt | None:
    """What a file says; None if there is none, or if it is damaged: nothing but a count rests on it."""
    try:
        attempt = Attempt(**json.loads(read(path, within=folder)))
    except (OSError, ValueError, TypeError):
        return None
    return attempt if attempt.run_id == path.stem and type(attempt.number) is int else None
