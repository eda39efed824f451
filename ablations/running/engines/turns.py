"""The queue of a launch, from which jobs of an engine take run after run: a file that outlives its launcher.

It imports only the standard library: a node may lack the rest. The first line holds what all jobs share, each further
one a run: its id, its parents, its attempts before, its planned seconds, and the settings of its `job.Job`. Several jobs
take from one queue at once, since a run's lock decides who makes it. Nothing is written to it.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LOOK_AGAIN = 2.0  # seconds until a run is looked at again that others make, or whose parents they make
_IDLE = 30.0  # seconds without anything to take after which a job ends
_FINAL = ("done", "diverged", "invalid")
_PASSING = ("failed", "killed", "oom")


@dataclass
class _Turn:
    """A run in the queue."""

    id: str
    parents: tuple[str, ...]
    attempts: int  # before this launch
    seconds: float  # as planned
    start: int  # of its job in the file
    again: float = 0.0  # when it is looked at again


def save(path: Path, shared: dict[str, Any], runs: Iterator[tuple[str, tuple[str, ...], int, float, dict[str, Any]]]) -> None:
    """Writes a queue.

    Args:
        path: Where; others see it whole or not at all.
        shared: ``results_dir``, ``retries``, and settings of all jobs under ``job``.
        runs: Id, parents, attempts before, planned seconds and own settings of the job of each, in their order.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f".{path.name}.{os.getpid()}")
    with own.open("x") as file:
        file.write(f"{json.dumps(shared)}\n")
        for run_id, parents, attempts, seconds, job in runs:
            file.write(f"{run_id} {','.join(parents)} {attempts} {seconds:.1f} {json.dumps(job)}\n")
    os.replace(own, path)


class Turns:
    """What a job takes from a queue, one run after another.

    Args:
        path: A file of `save`.
        until: A moment of the monotonic clock: no run is taken whose planned time ends later. None for no limit.
    """

    def __init__(self, path: Path, until: float | None = None) -> None:
        self._path, self._until = path, until
        self._left: list[_Turn] = []
        with path.open("rb") as file:
            self._shared = json.loads(file.readline())
            start = file.tell()
            for line in file:
                run_id, parents, attempts, seconds, _ = line.split(b" ", 4)
                names = tuple(filter(None, parents.decode().split(",")))
                head = len(line) - len(line.split(b" ", 4)[4])
                turn = _Turn(run_id.decode(), names, int(attempts), float(seconds), start + head)
                self._left.append(turn)
                start += len(line)
        self._records = Path(self._shared["results_dir"]) / "records"

    def __iter__(self) -> Iterator[Path]:
        """The files of the jobs that can begin now, each written when it is asked for; waits a little for others.

        A run that has its final record is passed over, as is one with too many attempts. One that was taken comes
        again until it has a record that stays, or as many attempts as are allowed.
        """
        idle = time.monotonic()
        while self._left and time.monotonic() - idle < _IDLE:
            for turn in list(self._left):
                if turn.again > time.monotonic():
                    continue
                turn.again = time.monotonic() + _LOOK_AGAIN
                if not self._is_open(turn):
                    self._left.remove(turn)
                elif self._is_ready(turn):
                    began = time.monotonic()
                    yield self._written(turn)
                    if time.monotonic() - began > 1.0 or not self._is_open(turn):
                        idle = time.monotonic()
                    break
            else:
                time.sleep(min(0.5, _LOOK_AGAIN))

    def _record(self, run_id: str) -> tuple[str, int]:
        """The outcome of a run, empty if it has none, and how many attempts its record counts."""
        try:
            record = json.loads((self._records / run_id[:2] / f"{run_id}.json").read_bytes())
            return record["outcome"], record["provenance"].get("attempts", 0)
        except (OSError, ValueError, LookupError, AttributeError):
            return "", 0

    def _is_open(self, turn: _Turn) -> bool:
        outcome, attempts = self._record(turn.id)
        if outcome in _FINAL or (self._until and time.monotonic() + turn.seconds > self._until):
            return False
        if any(self._record(parent)[0] in ("diverged", "invalid") for parent in turn.parents):
            return False
        made = attempts - turn.attempts
        return made <= 0 or (outcome in _PASSING and made <= self._shared["retries"])

    def _is_ready(self, turn: _Turn) -> bool:
        return all(self._record(parent)[0] == "done" for parent in turn.parents)

    def _written(self, turn: _Turn) -> Path:
        with self._path.open("rb") as file:
            file.seek(turn.start)
            job = {**self._shared["job"], **json.loads(file.readline())}
        path = Path(job["work_dir"]) / "run.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f".{path.name}.{os.getpid()}")
        own.write_text(json.dumps(job))
        os.replace(own, path)
        return path
