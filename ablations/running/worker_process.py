"""The entry point of a run's process: sets up signals and its end with the launcher.

Before that it imports only the standard library: other imports may take seconds on a busy machine, and the launcher
may die meanwhile.
"""

import signal
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from ablations.running.exit_codes import UNFIT
from ablations.running.signals import follow_parent

_STOPPING = {getattr(signal, name) for name in ("SIGTERM", "SIGUSR2") if hasattr(signal, name)}


def main(config_path: str, tell: Connection | None = None, nodes: str = "") -> None:
    """Entry point of a worker process: does the job of a file and exits with a code of `exit_codes`.

    Args:
        config_path: A file from `ablations.running.job.Job.save`.
        tell: Where the reason goes if the code cannot be imported, as on a node without torch; the exit code is then
            `UNFIT`. Without it the error is raised.
        nodes: The folder of `ablations.running.ranks.further.calling`, where further nodes wait.
    """
    stop = _take_over_signals()
    follow_parent()
    try:
        from ablations.running import worker
    except ImportError as error:
        if tell is None:
            raise
        tell.send(f"{type(error).__name__}: {error}")
        sys.exit(UNFIT)

    sys.exit(worker.work(config_path, stop.is_set, Path(nodes) if nodes else None))


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
