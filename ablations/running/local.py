"""The executor of one machine: a new process per run, one at a time per slot.

A fork server with torch and Lightning loaded starts a process in milliseconds. It loads only those two: each process
imports our own code anew, and nothing that starts a parallel region may run before a fork.
"""

import multiprocessing
import multiprocessing.context
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from ablations.core.machine import cores, gpus
from ablations.running.executor import Executor
from ablations.running.launch import Launch
from ablations.running.ranks import devices
from ablations.running.signals import ENDING
from ablations.running.worker_process import bare_main, main
from ablations.schema.run import Run
from lightning_modules import speed
from lightning_modules.config import Problem
from lightning_modules.training.execution import Execution

# Nothing of the project: the server looks for it in the working directory first, where another copy of it may lie.
_PRELOADED = ["torch", "pytorch_lightning"]
_POLL = 0.25  # seconds between checks of progress
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
    ended: float | None = None  # when the launcher told it to stop


class Local(Executor):
    """One process per run, from a fork server; one slot per GPU, or one per processor core without a GPU.

    A slot has several of them where pretrainings are shared by several devices.
    """

    def __init__(self, slots: int | None = None) -> None:
        names = list(gpus())
        self.slots: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": name} for name in names]
        if not names:
            self.slots = [{}] * cores()
        self.slots = self.slots[:slots]
        self.threads = max(1, cores() // len(self.slots)) if names else 1
        self.active: list[_Active] = []

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """See `Executor.problems`."""
        yield from devices.one_node(execution)
        yield from devices.too_many(execution)

    def warm_up(self) -> None:
        """Starts the fork server, which imports torch."""
        if sys.platform != "win32":
            with bare_main(), _signals_held():
                _context()
                forkserver.ensure_running()

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
        while launch.todo or self.active:
            self._fill(launch)
            if not self.active:
                time.sleep(_POLL)
            else:
                wait([active.process.sentinel for active in self.active], timeout=_POLL)
            for active in list(self.active):
                self._check(launch, active)

    def _fill(self, launch: Launch) -> None:
        """Starts runs in the free slots."""
        ready = launch.takeable()
        while (free := self._free()) is not None and (run := next(ready, None)) is not None:
            self._start(launch, run, free)

    def _free(self) -> dict[str, str] | None:
        if len(self.active) == len(self.slots):
            return None
        taken = [active.slot for active in self.active]
        return next(slot for slot in self.slots if slot not in taken or not slot)

    def _start(self, launch: Launch, run: Run, slot: dict[str, str]) -> None:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        path = launch.prepare(run, self.threads, {**passed, **slot})
        if path is None:
            return
        process = _context().Process(target=main, args=(str(path),), name=f"run {run.id}")
        with bare_main(), _signals_held():
            process.start()
        self.active.append(_Active(run, slot, process, time.monotonic()))
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
        launch.follow(active.run)

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
