"""The executor of one machine: a worker process per slot, which makes one run after another.

A fork server with torch and Lightning loaded starts a worker in milliseconds. It loads only those two: each worker
imports our own code itself, and nothing that starts a parallel region may run before a fork. What a worker has opened,
a tokenizer, a token store, a device, serves its next run too. One that died, or whose run failed, gets a successor.
"""

import contextlib
import multiprocessing
import multiprocessing.context
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ablations.core.machine import cores, gpus
from ablations.running.executor import Executor
from ablations.running.exit_codes import HELD
from ablations.running.launch import Launch
from ablations.running.ranks import devices
from ablations.running.signals import BELL, ENDING
from ablations.running.worker_process import bare_main, main
from ablations.schema.run import Run
from lightning_modules import speed
from lightning_modules.config import ConfigError, Problem
from lightning_modules.training.execution import Execution

# Nothing of the project: the server looks for it in the working directory first, where another copy of it may lie.
_PRELOADED = ["torch", "pytorch_lightning"]
_POLL = 0.25  # seconds between checks of progress
_PATIENCE = 30.0  # seconds for interrupted runs to write their checkpoints
_GRACE = 10.0  # seconds for a run past its deadline to stop by itself
_PASSED_ON = ("ABLATIONS_CACHE", "ABLATIONS_DATA", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE")


@dataclass
class _Worker:
    """A process that makes runs in a slot."""

    slot: dict[str, str]
    process: BaseProcess
    jobs: Connection
    run: Run | None = None  # that it makes now
    started: float = 0.0  # when that began
    ended: float | None = None  # when the launcher told it to stop
    goes_on: bool = True  # whether it takes another run

    @property
    def is_free(self) -> bool:
        """Whether it can take a run."""
        return self.run is None and self.goes_on and self.process.is_alive()


class Local(Executor):
    """A worker per slot, from a fork server; one slot per GPU, or one per processor core without a GPU.

    A slot has several of them where pretrainings are shared by several devices.

    Args:
        slots: The largest number of runs at once; by default all GPUs or cores.
        fresh_process: Whether each run has a process of its own, which makes no other.
    """

    def __init__(self, slots: int | None = None, fresh_process: bool = False) -> None:
        names = list(gpus())
        self.slots: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": name} for name in names]
        if not names:
            self.slots = [{}] * cores()
        self.slots = self.slots[:slots]
        self.threads = max(1, cores() // len(self.slots)) if names else 1
        self.fresh_process = fresh_process
        self.workers: list[_Worker] = []

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> "Local":
        """See `Executor.configured`."""
        slots, fresh = options.get("slots"), options.get("fresh_process", False)
        wrong = [
            Problem(f"executor option {name}", "this executor has the options slots and fresh_process")
            for name in options
            if name not in ("slots", "fresh_process")
        ]
        if "slots" in options and (type(slots) is not int or slots < 1):
            wrong.append(Problem("executor option slots", f"must be a whole number from 1, not {slots!r}"))
        if type(fresh) is not bool:
            wrong.append(Problem("executor option fresh_process", f"must be true or false, not {fresh!r}"))
        if wrong:
            raise ConfigError(wrong)
        return cls(slots, fresh)

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
            raise OSError("the local executor needs Linux or macOS. Use `--executor inline`")
        self.slots = devices.shared(self.slots, launch.execution.devices)
        try:
            self._run(launch)
        except (KeyboardInterrupt, SystemExit):
            self._end_all(_PATIENCE)
            raise
        finally:
            self._end_all(0.0)

    def _run(self, launch: Launch) -> None:
        while launch.todo or any(worker.run for worker in self.workers):
            self._fill(launch)
            ends = [worker.process.sentinel for worker in self.workers]
            ends += [worker.jobs for worker in self.workers if worker.run]
            if any(worker.run for worker in self.workers):
                wait(ends, timeout=_POLL)
            else:
                time.sleep(_POLL)
            for worker in list(self.workers):
                self._check(launch, worker)

    def _fill(self, launch: Launch) -> None:
        """Gives the free slots runs."""
        ready = launch.takeable()
        while (slot := self._free()) is not None and (run := next(ready, None)) is not None:
            path = launch.prepare(run, self.threads, _passed_on() | slot)
            if path is None:
                continue
            worker = next((worker for worker in self.workers if worker.is_free and worker.slot == slot), None)
            worker = worker or self._start(slot)
            worker.run, worker.started = run, time.monotonic()
            launch.begin(run)
            with contextlib.suppress(OSError):  # it has just died, as its exit code will say
                worker.jobs.send((str(path), None))

    def _free(self) -> dict[str, str] | None:
        busy = [worker.slot for worker in self.workers if not worker.is_free]
        if len(busy) == len(self.slots):
            return None
        return next(slot for slot in self.slots if slot not in busy or not slot)

    def _start(self, slot: dict[str, str]) -> _Worker:
        here, there = multiprocessing.Pipe()
        process = _context().Process(target=main, args=(there,), name="worker")
        with bare_main(), _signals_held():
            process.start()
        there.close()
        self.workers.append(worker := _Worker(slot, process, here))
        return worker

    def _check(self, launch: Launch, worker: _Worker) -> None:
        run, exited = worker.run, worker.process.exitcode
        if run and (code := _answer(worker)) is not None:
            worker.run = None
            launch.conclude(run, code, forced="timeout" if worker.ended else None)
            if self.fresh_process:
                worker.goes_on = False
                worker.jobs.close()
        elif exited is not None:
            worker.process.join()
            self.workers.remove(worker)
            if run:  # one that ended by itself has not begun it
                launch.conclude(run, exited or HELD, forced="timeout" if worker.ended else None)
        elif run:
            self._hold_to_deadline(launch, worker)
            launch.follow(run)

    def _hold_to_deadline(self, launch: Launch, worker: _Worker) -> None:
        now = time.monotonic()
        if not launch.deadline or now - worker.started <= launch.deadline:
            return
        if worker.ended is None:
            worker.ended = now
            worker.process.terminate()
        elif now - worker.ended > _GRACE:
            worker.process.kill()

    def _end_all(self, patience: float) -> None:
        """Tells every worker to stop, and kills those that have not stopped after some seconds."""
        until = time.monotonic() + patience
        try:
            for worker in self.workers if patience else ():
                worker.process.terminate()
            for worker in self.workers:
                worker.process.join(max(0.0, until - time.monotonic()))
        finally:  # a second signal jumps here at once
            for worker in self.workers:
                if worker.process.exitcode is None:
                    worker.process.kill()
                worker.process.join()
                worker.jobs.close()
            self.workers.clear()


def _answer(worker: _Worker) -> int | None:
    """The code that a worker's run came to; None while it makes it, or if it died."""
    try:
        if not worker.jobs.poll():
            return None
        code, _, worker.goes_on = worker.jobs.recv()
    except (EOFError, OSError):
        return None
    return code


def _passed_on() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


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
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*ENDING, *BELL])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
