"""The executor of one machine: a worker process per slot, which makes one run after another.

A fork server with torch and Lightning loaded starts a worker in milliseconds. It loads only those two: each worker
imports our own code itself, and nothing that starts a parallel region may run before a fork. What a worker has opened,
a tokenizer, a token store, a device, serves its next run too. One that died, or whose run failed, gets a successor.
"""

import contextlib
import math
import multiprocessing
import multiprocessing.context
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from typing import ClassVar

from ablations.core.machine import cores, gpus
from ablations.running import estimate
from ablations.running.executor import Executor
from ablations.running.exit_codes import HELD
from ablations.running.keeper import Ending, Turns
from ablations.running.launch import Launch
from ablations.running.signals import BELL, ENDING
from ablations.running.worker_process import Worker, bare_main
from lightning_modules import speed
from lightning_modules.config import ConfigError, Problem, Settings, knob
from lightning_modules.training.execution import Execution

MOST = 4  # runs that share a device
_GIVEN = 0.8  # of a device's memory: the rest is for kernels, and for what the allocator cannot use
_LOOKS = 5  # at devices on which a run trains
_PERIOD = 1.0  # seconds between looks
_FIELDS = "memory.used,memory.total,utilization.gpu"
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Look:
    """What some devices do.

    Attributes:
        used: Bytes in use on the fullest of them.
        total: Bytes that the smallest has.
        work: The share of the time that the busiest works.
    """

    used: float
    total: float
    work: float

    @classmethod
    def at(cls, names: Sequence[str]) -> "Look | None":
        """What devices do now, by the names of ``CUDA_VISIBLE_DEVICES``; None where the driver does not say."""
        command = ["nvidia-smi", f"--id={','.join(names)}", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
            rows = [tuple(map(float, line.split(","))) for line in done.stdout.splitlines() if line.strip()]
            used, total, work = zip(*rows, strict=True)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        return cls(max(used) * _MEGABYTE, min(total) * _MEGABYTE, max(work) / 100)


def fitting(before: Look, during: Sequence[Look], planned: Sequence[float]) -> int:
    """How many runs a device has room for, at least one and at most `MOST`.

    If u bytes of T were in use before and U while one run trained, and plans say p bytes for each run that comes, then
    none takes more than ::

        r = max(p) max(1, (U - u) / min(p))

    and (.8 T - u) / r of them fit. One that works for a share w of the time leaves time for 1 / w, to the nearest.

    Args:
        before: The devices without a run.
        during: The devices with one run each, at several moments.
        planned: Bytes of each run that comes; one that is not known, NaN, shares nothing.
    """
    if not planned or any(map(math.isnan, planned)):
        return 1
    taken = max(look.used for look in during) - before.used
    each = max(planned) * max(1.0, taken / min(planned))
    in_memory = int((_GIVEN * before.total - before.used) / each)
    work = statistics.median(look.work for look in during)
    in_time = round(1 / max(work, 1 / MOST))
    return max(1, min(MOST, in_memory, in_time))


class FirstRuns:
    """Watches devices that have one run each, until it can be said how many they have room for.

    Args:
        names: The devices.
        launch: What makes runs on them.
    """

    def __init__(self, names: Sequence[str], launch: Launch) -> None:
        self.names, self.launch = names, launch
        self.before, self.during = Look.at(names), list[Look]()
        self._next = 0.0

    def room(self) -> int | None:
        """How many runs each device has room for; None before that is known."""
        if self.before is None:
            return 1
        is_training = any(0 < share < 1 for share in self.launch.shares.values())
        if is_training and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PERIOD
            self.during += [look] if (look := Look.at(self.names)) else []
        if len(self.during) < _LOOKS:
            return None
        return fitting(self.before, self.during, estimate.memory(self.launch.plan.cells, self.launch.execution))


# Nothing of the project: the server looks for it in the working directory first, where another copy of it may lie.
_PRELOADED = ["torch", "pytorch_lightning"]
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class LocalOptions(Settings):
    """How the workers of this machine make runs."""

    slots: int | None = knob(None, "The most runs at once. By default all GPUs or cores.", ge=1)
    runs_per_device: int | None = knob(
        None,
        "The most runs that share a GPU, each in a process of its own. By default one, and up to four once a first run "
        "has shown that it leaves memory and time for more.",
        ge=1,
    )
    fresh_process: bool = knob(False, "Whether each run has a process of its own, which makes no other.")


class _Worker(Worker):
    """A worker in a slot."""

    def __init__(self, slot: dict[str, str]) -> None:
        seen = {_VISIBLE: os.environ[_VISIBLE]} if _VISIBLE in os.environ else {}
        with _signals_held():
            super().__init__(_context(), environment=seen | slot)
        self.slot, self.has_run = slot, False

    @property
    def is_free(self) -> bool:
        """Whether it can take a run."""
        return self.goes_on and not self.has_run and self.process.is_alive()


class Local(Executor):
    """A worker per slot, from a fork server; one slot per GPU, or one per processor core without a GPU.

    A slot has several of them where pretrainings are shared by several devices. Several slots have the same GPU where
    runs are too small for one: their processes share its time and memory, and nothing else. A job is a worker's next
    run.
    """

    Options: ClassVar[type[Settings]] = LocalOptions
    options: LocalOptions
    poll = 0.25
    patience = 30.0
    grace = 10.0
    turn = 0.0

    def __init__(self, options: LocalOptions | None = None) -> None:
        super().__init__(options)
        self.devices = list(gpus())
        self.first_runs: FirstRuns | None = None
        self.workers: list[_Worker] = []
        self.launch: Launch | None = None
        self._lay_out(self.options.runs_per_device or 1)

    def _lay_out(self, many: int) -> None:
        slots: list[dict[str, str]] = [{_VISIBLE: name} for name in self.devices] * many or [{}] * cores()
        self.slots = slots[: self.options.slots]
        self.threads = max(1, cores() // len(self.slots)) if self.devices else 1

    @property
    def is_sharing(self) -> bool:
        """Whether runs share a GPU."""
        return len(self.slots) > len(self.devices) > 0

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """See `Executor.problems`."""
        yield from super().problems(execution)
        if (many := self.options.runs_per_device or 1) > 1 and (execution.devices > 1 or not gpus()):
            text = "this machine has no GPU. Use --jobs for runs that share its cores"
            text = "devices that share a pretraining make no other run. Leave it out" if execution.devices > 1 else text
            yield Problem("executor option runs_per_device", f"must be 1, not {many}: {text}")
        if execution.devices > (count := len(names := gpus()) or cores()):
            noun = f"GPU{'s' * (count != 1)}" if names else "processor cores and no GPU"
            yield Problem("devices", f"{execution.devices} are needed, and this machine has {count} {noun}")

    def warm_up(self) -> None:
        """Starts the fork server, which imports torch."""
        if sys.platform != "win32":
            with bare_main(), _signals_held():
                _context()
                forkserver.ensure_running()

    def open(self, launch: Launch) -> None:
        """See `Executor.open`."""
        self.launch = launch
        if sys.platform == "win32":
            raise OSError("the local executor needs Linux or macOS. Use `--executor inline`")
        devices = launch.execution.devices
        groups = [self.slots[first : first + devices] for first in range(0, len(self.slots) - devices + 1, devices)]
        self.slots = [{name: ",".join(slot[name] for slot in group) for name in group[0]} for group in groups]
        is_chosen = self.options.runs_per_device is not None or devices > 1
        most = min(len(launch.todo), self.options.slots or len(launch.todo))
        if self.devices and not is_chosen and most > len(self.devices):
            self.first_runs = FirstRuns(self.devices, launch)

    def room(self) -> int:
        """See `Executor.room`. A worker that makes no further run has its slot, and device, until it has ended."""
        self._reap()
        if self.first_runs is not None and (many := self.first_runs.room()) is not None:
            self.first_runs = None
            self._lay_out(many)
            if (many := -(-len(self.slots) // len(self.devices))) > 1:
                print(f"up to {many} runs share a GPU: a first run leaves memory and time for them", file=sys.stderr)
        if self.is_sharing and self.launch is not None and self.launch.is_crowded:
            self._lay_out(1)
            print("each run has a GPU alone from now on: one that shared it lacked memory", file=sys.stderr)
        return len(self.slots) - sum(not (worker.has_run or worker.is_free) for worker in self.workers)

    def submit(self, launch: Launch, turns: Sequence[Turns]) -> Sequence[_Worker]:
        """See `Executor.submit`."""
        launch.is_sharing |= self.is_sharing
        taken = []
        for one in turns:
            worker = next((worker for worker in self.workers if worker.is_free), None) or self._start()
            worker.has_run = True
            worker.ask(one.configs[0], None)
            taken.append(worker)
        return taken

    def _start(self) -> _Worker:
        used = [worker.slot for worker in self.workers if worker.has_run or worker.process.is_alive()]
        slot = next(slot for slot in self.slots if used.count(slot) < self.slots.count(slot))
        try:
            self.workers.append(_Worker(slot))
        except (EOFError, ConnectionError):
            text = "the process from which workers start was killed, perhaps by the kernel for memory"
            raise ConfigError([f"{text}. Run the command again, with --jobs 1 or --executor inline."]) from None
        return self.workers[-1]

    def ending(self, job: _Worker) -> Ending | None:
        """See `Executor.ending`."""
        exited = job.process.exitcode  # before its answer: it may answer and end
        answer = job.answer()
        if answer is None and exited is None:
            return None
        job.has_run = False
        if self.options.fresh_process and exited is None:
            job.goes_on = False
            job.jobs.close()
        return Ending(answer[0] if answer else exited or HELD)  # one that ended by itself has not begun it

    def _reap(self) -> None:
        """Forgets the workers that have ended, once their jobs have."""
        for worker in [worker for worker in self.workers if not (worker.has_run or worker.process.is_alive())]:
            worker.process.join()
            worker.jobs.close()
            self.workers.remove(worker)

    def wait(self) -> None:
        """See `Executor.wait`."""
        self._reap()
        ends = [worker.process.sentinel for worker in self.workers]
        if ends:
            wait([*ends, *(worker.jobs for worker in self.workers if worker.has_run)], timeout=self.poll)
        else:
            super().wait()

    def send(self, jobs: Sequence[_Worker], number: signal.Signals) -> None:
        """See `Executor.send`."""
        for worker in jobs:
            with contextlib.suppress(ProcessLookupError):
                if worker.process.exitcode is None and worker.process.pid:
                    os.kill(worker.process.pid, number)

    def close(self) -> None:
        """See `Executor.close`."""
        self.send(self.workers, signal.SIGKILL)
        for worker in self.workers:
            worker.process.join()
            worker.jobs.close()
        self.workers.clear()


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
