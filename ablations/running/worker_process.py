"""A worker, the process that makes runs one after another: its entry point, its signals, its end with the launcher.

Before that it imports only the standard library: other imports may take seconds on a busy machine, and the launcher
may die meanwhile.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ablations.running.exit_codes import UNFIT
from ablations.running.signals import follow_parent

_GROWTH = 2 << 30  # bytes that a worker may have more than after its first run; 150 small runs add 3 MB
_LOOK = 0.25  # seconds between looks whether it is requested to stop, while it has no run
_STOPPING = {getattr(signal, name) for name in ("SIGTERM", "SIGUSR2") if hasattr(signal, name)}


class Worker:
    """A worker, as whoever gives it runs sees it.

    Args:
        context: How its process starts.
        nodes: See `main`.
        environment: See `main`.

    Attributes:
        process: Its process.
        jobs: Where it receives runs and questions, and answers.
        goes_on: Whether it takes another run.
    """

    def __init__(self, context: BaseContext, nodes: str = "", environment: Mapping[str, str] | None = None) -> None:
        self.jobs, there = multiprocessing.Pipe()
        self.process: BaseProcess = context.Process(target=main, args=(there, nodes, environment), name="worker")  # pyright: ignore[reportAttributeAccessIssue]  # of all contexts
        with bare_main():
            self.process.start()
        there.close()
        self.goes_on = True

    def ask(self, asked: str | bytes, known: Any) -> None:
        """Gives it a run, or a question: see `main`."""
        with contextlib.suppress(OSError):  # it has just died, as its exit code will say
            self.jobs.send((asked, known))

    def answer(self) -> tuple[Any, str] | None:
        """What its run came to, or its answer, and what else is known; None while there is none, or if it died."""
        try:
            if not self.jobs.poll():
                return None
            found, said, self.goes_on = self.jobs.recv()
        except (EOFError, OSError):
            return None
        return found, said


def main(jobs: Connection, nodes: str = "", environment: Mapping[str, str] | None = None) -> None:
    """Entry point of a worker: makes the run of each job that it receives, until there are no more.

    It ends after a run that failed, whose traces in the process nobody knows. It also ends when its memory has grown,
    and when it is requested to stop.

    Args:
        jobs: Where it receives files of `ablations.running.job.Job.save`, each with how the last attempt at the run
            died (see `ablations.running.worker.attempt`). It answers with a code of `exit_codes`, what else is known,
            and whether it takes another. If the code cannot be imported, as on a node without torch, it answers `UNFIT`
            and the reason. Given what `ablations.running.phases.told` returned, and files of jobs that are seen,
            it answers with those that follow.
        nodes: The folder of `ablations.running.ranks.further.calling`, where further nodes wait.
        environment: Variables of this worker, such as its devices.
    """
    stop = _take_over_signals()
    follow_parent()
    os.environ.update(environment or {})
    try:
        from ablations.running import worker
        from ablations.running.between import free, resident
    except ImportError as error:
        jobs.send((UNFIT, f"{type(error).__name__}: {error}", False))
        return

    gc.freeze()  # what is imported is never freed: a search for free memory looks at the run's objects alone
    goes_on, most = True, 0
    while goes_on and (received := _received(jobs, stop)) is not None:
        asked, known = received
        if isinstance(asked, bytes):
            from ablations.running.phases import further  # pandas takes a second

            jobs.send((further(asked, known), "", True))
            continue
        code, is_sound = worker.work(asked, stop.is_set, Path(nodes) if nodes else None, known)
        free()
        most = most or resident() + _GROWTH
        goes_on = is_sound and not stop.is_set() and resident() <= most
        jobs.send((code, "", goes_on))


def _received(jobs: Connection, stop: threading.Event) -> tuple[Any, Any] | None:
    """The next job or question. None if there is none, or if this process is requested to stop."""
    while not stop.is_set():
        try:
            if jobs.poll(_LOOK):
                return jobs.recv()
        except (EOFError, OSError):
            return None
    return None


def _take_over_signals() -> threading.Event:
    """SIGTERM writes a checkpoint and stops; what a terminal sends to all its processes is left to the launcher.

    So does SIGUSR2, which Slurm sends to all processes of a job before its time ends. Both are blocked and awaited in a
    thread rather than handled: Lightning's own handler would end a training in the middle of an evaluation without a
    checkpoint.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)

    def listen() -> None:
        signal.sigwait(_STOPPING)
        stop.set()

    threading.Thread(target=listen, name="listen for signals", daemon=True).start()
    return stop


@contextmanager
def bare_main() -> Iterator[None]:
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
