"""The executor of one machine: a new process per run, one at a time per slot.

A fork server with torch and Lightning loaded starts a process in milliseconds. It loads only those two: each process
imports our own code anew, and nothing that starts a parallel region may run before a fork.
"""

import json
import multiprocessing
import multiprocessing.context
import os
import signal
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ablations.core.machine import cores
from ablations.core.provenance import gpus
from ablations.running import exit_codes, worker
from ablations.running.launch import Executor, Launch
from ablations.running.ranks import devices
from ablations.running.signals import ENDING
from ablations.running.worker_process import main
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules import speed
from lightning_modules.files import is_full

_PRELOADED = ["torch", "pytorch_lightning"]
_POLL = 0.25  # seconds between checks of progress and of other launchers' runs
_PATIENCE = 30.0  # seconds for interrupted runs to write their checkpoints
_GRACE = 10.0  # seconds for a run past its deadline to stop by itself
_PASSED_ON = ("ABLATIONS_CACHE", "ABLATIONS_DATA", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE")


@dataclass
class _Active:
    """A run that a process makes."""

    run: Run
    slot: dict[str, str]
    process: BaseProcess
    started: float
    progress: Path
    seen: float = 0.0  # modification time of the last reported progress
    ended: float | None = None  # when the launcher told it to stop


class Local(Executor):
    """One process per run, from a fork server; one slot per GPU, or one per processor core without a GPU.

    A slot has several of them where pretrainings are shared by several devices.
    """

    shares = True

    def __init__(self, slots: int | None = None) -> None:
        names = list(gpus())
        self.slots: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": name} for name in names]
        if not names:
            self.slots = [{}] * cores()
        self.slots = self.slots[:slots]
        self.threads = max(1, cores() // len(self.slots)) if names else 1
        self.active: list[_Active] = []

    def run(self, launch: Launch) -> None:
        """See `Executor.run`. The first signal waits for checkpoints, the second kills."""
        if sys.platform == "win32":
            raise OSError("the local executor needs Linux or macOS; use `--executor inline`")
        self.slots = devices.shared(self.slots, launch.execution.devices)
        try:
            self._run(launch)
        except (KeyboardInterrupt, SystemExit):
            self._end_all(_PATIENCE)
            raise
        finally:
            self._end_all(0.0)

    def _run(self, launch: Launch) -> None:
        held: dict[str, float] = {}  # run that another launcher makes -> when to check again
        while launch.todo or self.active:
            self._fill(launch, held)
            if not self.active:
                time.sleep(_POLL)
            else:
                wait([active.process.sentinel for active in self.active], timeout=_POLL)
            for active in list(self.active):
                self._check(launch, active)

    def _fill(self, launch: Launch, held: dict[str, float]) -> None:
        """Starts runs in the free slots; checks runs that another launcher makes again later."""
        for run in list(launch.todo):
            free = self._free()
            if free is None:
                return
            if held.get(run.id, 0.0) > time.monotonic() or not launch.ready(run):
                continue
            record = launch.records.examine(run.id)
            if isinstance(record, Record) and record.final:
                launch.todo.remove(run)
                launch.settle(run, record, here=False)
            elif launch.records.is_locked(run.id):
                if run.id not in held:
                    launch.emit("waiting", run)
                held[run.id] = time.monotonic() + 2 * _POLL
            else:
                launch.todo.remove(run)
                self._start(launch, run, free)

    def _free(self) -> dict[str, str] | None:
        if len(self.active) == len(self.slots):
            return None
        taken = [active.slot for active in self.active]
        return next(slot for slot in self.slots if slot not in taken or not slot)

    def _start(self, launch: Launch, run: Run, slot: dict[str, str]) -> None:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        job = launch.job(run, self.threads, {**passed, **slot})
        progress = Path(job.work_dir) / worker.PROGRESS
        progress.unlink(missing_ok=True)
        try:
            path = job.save()
        except OSError as error:
            if not is_full(error):
                raise
            launch.conclude(run, exit_codes.DISK_FULL)
            return
        process = _context().Process(target=main, args=(str(path),), name=f"run {run.id}")
        with _bare_main(), _signals_held():
            process.start()
        self.active.append(_Active(run, slot, process, time.monotonic(), progress))
        launch.begin(run)

    def _check(self, launch: Launch, active: _Active) -> None:
        code = active.process.exitcode
        if code is not None:
            active.process.join()
            self.active.remove(active)
            launch.conclude(active.run, code, forced="timeout" if active.ended else None)
            return
        age = time.monotonic() - active.started
        if launch.deadline and age > launch.deadline:
            if active.ended is None:
                active.ended = time.monotonic()
                active.process.terminate()
            elif time.monotonic() - active.ended > _GRACE:
                active.process.kill()
        self._report(launch, active)

    def _report(self, launch: Launch, active: _Active) -> None:
        try:
            changed = active.progress.stat().st_mtime
            if changed != active.seen:  # a clock may be set back
                active.seen = changed
                launch.emit("progress", active.run, progress=json.loads(active.progress.read_text()))
        except (FileNotFoundError, ValueError):
            return  # it has not begun yet

    def _end_all(self, patience: float) -> None:
        """Tells every process to stop, and kills those that have not stopped after some seconds."""
        until = time.monotonic() + patience
        try:
            for active in self.active if patience else ():
                active.process.terminate()
            for active in self.active:
                active.process.join(max(0.0, until - time.monotonic()))
        finally:  # a second signal jumps here at once
            for active in self.active:
                if active.process.exitcode is None:
                    active.process.kill()
                active.process.join()
            self.active.clear()


def _context() -> multiprocessing.context.ForkServerContext:
    speed.environment()  # the server imports torch, and every process inherits its settings
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


@contextmanager
def _signals_held() -> Iterator[None]:
    """Blocks the signals that end an execution while the fork server may start, which inherits that for its life.

    Schedulers and closing terminals send them to all processes of a group. Without the fork server the launcher would
    take its runs for dead before they have written their checkpoints.
    """
    resource_tracker.ensure_running()  # starting it unblocks SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _bare_main() -> Iterator[None]:
    """Hides the caller's script while a process starts.

    multiprocessing would import it again in every process, to unpickle what it defines. We never send anything it
    defines, and running a user's script once per run (it may have no ``__main__`` guard) would do harm.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
