"""The entry point of a run's process: sets up signals and its end with the launcher.

Before that it imports only the standard library: other imports may take seconds on a busy machine, and the launcher
may die meanwhile.
"""

import signal
import sys
import threading

from ablations.running.signals import follow_parent


def main(config_path: str) -> None:
    """Entry point of a worker process: does the job of a file and exits with a code of `exit_codes`.

    Args:
        config_path: A file from `ablations.running.worker.Job.save`.
    """
    stop = _take_over_signals()
    follow_parent()
    from ablations.running import worker

    sys.exit(worker.work(config_path, stop.is_set))


def _take_over_signals() -> threading.Event:
    """SIGTERM writes a checkpoint and stops; what a terminal sends to all its processes is left to the launcher.

    SIGTERM is blocked and awaited in a thread rather than handled: Lightning's own handler would end a training in the
    middle of an evaluation without a checkpoint.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def listen() -> None:
        signal.sigwait({signal.SIGTERM})
        stop.set()

    threading.Thread(target=listen, name="listen for SIGTERM", daemon=True).start()
    return stop
