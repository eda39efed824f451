"""What a further node of a job does: it starts its ranks of each training that the job's first node calls it to.

The first node makes a folder in which it calls, and touches a file in it as long as it lives.
"""

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablations.running.exit_codes import FAILED, RECORDED
from ablations.running.ranks.process import leave_signals
from ablations.running.signals import follow_parent

NODES = "nodes-"  # of the names of such folders
_ALIVE, _OVER = "alive", "over"  # files in the folder
_TOUCH = 10.0  # seconds between touches
_SILENT = 120.0  # seconds without one after which the first node is dead
_BEGIN = 600.0  # seconds for it to begin
_LOOK = 0.5  # seconds


@contextmanager
def calling(folder: Path) -> Iterator[None]:
    """Keeps the folder alive in which this node, the first, calls the others; afterwards they end.

    It stays for those who come late; those of earlier attempts go.
    """
    for old in folder.parent.glob(f"{NODES}*"):
        if (old / _OVER).exists():
            shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    over = threading.Event()

    def touch() -> None:
        while not over.wait(_TOUCH):
            with contextlib.suppress(OSError):
                (folder / _ALIVE).touch()

    (folder / _ALIVE).touch()
    threading.Thread(target=touch, name="touch", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(OSError):  # what the run came to is not to be lost for it
            (folder / _OVER).touch()


def main(config_path: str, folder: str, node: int) -> None:
    """Entry point of a process: takes part until the first node has ended.

    Args:
        config_path: The file of the job, from `ablations.running.job.Job.save`.
        folder: The folder of `calling`.
        node: The number of this node, from 1.
    """
    leave_signals()
    follow_parent()
    sys.exit(_serve(Path(config_path), _First(Path(folder)), node))


class _First:
    """The first node, as far as its folder shows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._touched, self._since = folder, 0.0, time.monotonic()
        self._known = set[Path]()

    def new_calls(self) -> Iterator[Path]:
        """The folders of meetings that it has called to since."""
        for told in self._folder.glob("*/told.json"):
            if told not in self._known:
                self._known.add(told)
                yield told.parent

    def is_over(self) -> bool:
        """Whether it has ended; its next attempt may have removed the folder."""
        return (self._folder / _OVER).exists() or (self._touched > 0 and not self._folder.exists())

    def is_silent(self) -> bool:
        """Whether nothing was heard of it for too long, by this machine's clock: nodes' clocks differ."""
        with contextlib.suppress(OSError):
            if (touched := (self._folder / _ALIVE).stat().st_mtime) != self._touched:
                self._touched, self._since = touched, time.monotonic()
        return time.monotonic() - self._since > (_SILENT if self._touched else _BEGIN)


def _serve(config: Path, first: _First, node: int) -> int:
    from ablations.running.job import Job
    from ablations.running.outcomes import log_to

    os.environ.update(Job.load(config).environment or {})
    log = config.parent / f"log-node-{node}.txt"
    log_to(log)
    while not first.is_silent():
        for meeting in first.new_calls():
            _take_part(meeting, node, log, first)
        if first.is_over():
            return RECORDED
        time.sleep(_LOOK)
    print(f"node {node}: nothing is heard of the first node", file=sys.stderr, flush=True)
    return FAILED


def _take_part(folder: Path, node: int, log: Path, first: _First) -> None:
    """Starts this node's ranks, and stays until they have ended, the meeting, or the first node."""
    from ablations.running.ranks.group import Group
    from ablations.running.ranks.meeting import Meeting

    meeting = Meeting(folder)
    try:
        devices = meeting.told()["execution"]["devices"]
    except OSError:
        return  # it is over already
    group = Group(meeting, range(node * devices, (node + 1) * devices), str(log))
    try:
        while not group.are_over() and folder.exists() and not (first.is_over() or first.is_silent()):
            time.sleep(_LOOK)
            group.note_deaths()
    finally:
        group.end(_LOOK)
