"""The executor of one machine: a fresh process a run, as many at once as there are slots.

Processes come from a fork server that has torch and Lightning loaded, so that one starts in milliseconds. Only
those two are loaded there: our own code is read anew by each process, and nothing that starts a parallel region
may run before a fork.
"""

import json
import multiprocessing
import os
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ablations.core.machine import cores
from ablations.core.provenance import gpus
from ablations.running import worker
from ablations.running.launch import Executor, Launch
from ablations.running.process import main
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules import speed

_PRELOADED = ["torch", "pytorch_lightning"]
_POLL = 0.25  # seconds between looks at progress and at other launchers' runs
_PATIENCE = 30.0  # seconds that interrupted runs have to write their checkpoints
_GRACE = 10.0  # seconds that a run past its deadline has to end by itself
_PASSED_ON = ("ABLATIONS_CACHE", "ABLATIONS_DATA", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE")


@dataclass
class _Going:
    """A run that goes on in a process."""

    run: Run
    slot: dict[str, str]
    process: BaseProcess
    started: float
    progress: Path
    seen: float = 0.0  # modification time of the last progress told
    ended: float | None = None  # when the launcher asked it to end


class Local(Executor):
    """One process a run, from a fork server; one slot a GPU, or one a processor core where there is none."""

    def __init__(self, slots: int | None = None) -> None:
        devices = list(gpus())
        self.slots: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": device} for device in devices]
        if not devices:
            self.slots = [{}] * cores()
        self.slots = self.slots[:slots]
        self.threads = max(1, cores() // len(self.slots)) if devices else 1
        self.going: list[_Going] = []

    def run(self, launch: Launch) -> None:
        """See `Executor.run`. Ctrl-C once waits for checkpoints, twice kills."""
        if sys.platform == "win32":
            raise OSError("the local executor needs Linux or macOS; use --executor inline")
        try:
            self._run(launch)
        except KeyboardInterrupt:
            self._end_all(_PATIENCE)
            raise
        finally:
            self._end_all(0.0)

    def _run(self, launch: Launch) -> None:
        held: dict[str, float] = {}  # run that another launcher makes -> when to look again
        while launch.todo or self.going:
            self._fill(launch, held)
            if not self.going:
                time.sleep(_POLL)
            else:
                wait([going.process.sentinel for going in self.going], timeout=_POLL)
            for going in list(self.going):
                self._look_at(launch, going)

    def _fill(self, launch: Launch, held: dict[str, float]) -> None:
        """Starts runs in the free slots; runs that another launcher makes are looked at again later."""
        for run in list(launch.todo):
            free = self._free()
            if free is None:
                return
            if held.get(run.id, 0.0) > time.monotonic() or not launch.ready(run):
                continue
            found = launch.records.examine(run.id)
            if isinstance(found, Record) and found.final:
                launch.todo.remove(run)
                launch.settle(run, found, here=False)
            elif launch.records.is_locked(run.id):
                if run.id not in held:
                    launch.emit("waiting", run)
                held[run.id] = time.monotonic() + 2 * _POLL
            else:
                launch.todo.remove(run)
                self._start(launch, run, free)

    def _free(self) -> dict[str, str] | None:
        if len(self.going) == len(self.slots):
            return None
        taken = [going.slot for going in self.going]
        return next(slot for slot in self.slots if slot not in taken or not slot)

    def _start(self, launch: Launch, run: Run, slot: dict[str, str]) -> None:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        job = launch.job(run, self.threads, {**passed, **slot})
        progress = Path(job.work_dir) / worker.PROGRESS
        progress.unlink(missing_ok=True)
        process = _context().Process(target=main, args=(str(job.save()),), name=f"run {run.id}")
        with _bare_main():
            process.start()
        self.going.append(_Going(run, slot, process, time.monotonic(), progress))
        launch.begin(run)

    def _look_at(self, launch: Launch, going: _Going) -> None:
        code = going.process.exitcode
        if code is not None:
            going.process.join()
            self.going.remove(going)
            launch.conclude(going.run, code, asked="timeout" if going.ended else None)
            return
        age = time.monotonic() - going.started
        if launch.deadline and age > launch.deadline:
            if going.ended is None:
                going.ended = time.monotonic()
                going.process.terminate()
            elif time.monotonic() - going.ended > _GRACE:
                going.process.kill()
        self._tell(launch, going)

    def _tell(self, launch: Launch, going: _Going) -> None:
        try:
            changed = going.progress.stat().st_mtime
            if changed > going.seen:
                going.seen = changed
                launch.emit("progress", going.run, progress=json.loads(going.progress.read_text()))
        except (FileNotFoundError, ValueError):
            return  # not begun yet

    def _end_all(self, patience: float) -> None:
        """Asks every process to end, and kills those that have not after some seconds."""
        until = time.monotonic() + patience
        try:
            for going in self.going if patience else ():
                going.process.terminate()
            for going in self.going:
                going.process.join(max(0.0, until - time.monotonic()))
        finally:  # a second Ctrl-C comes here at once
            for going in self.going:
                if going.process.exitcode is None:
                    going.process.kill()
                going.process.join()
            self.going.clear()


def _context() -> multiprocessing.context.ForkServerContext:
    speed.environment()  # the server imports torch, and every process inherits what it read
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


@contextmanager
def _bare_main() -> Iterator[None]:
    """Hides the caller's script while a process starts.

    multiprocessing would import it again in every process, to unpickle what it defines. Nothing of it is ever sent,
    and running a user's script once more for each run (it may have no ``__main__`` guard) would be harmful.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
