"""The executor that makes runs one after the other in this process: for tests, for debugging, for Windows."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ablations.running import exit_codes, worker
from ablations.running.launch import Executor, Launch
from ablations.schema.record import Record

_LOOK_AGAIN = 0.5  # seconds between looks at a run that another launcher makes


class Inline(Executor):
    """Runs in the calling process. Output goes where the process's own does."""

    def run(self, launch: Launch) -> None:
        """See `Executor.run`. Ctrl-C once finishes the step, writes a checkpoint and raises; twice raises at once."""
        with patient_interrupt() as interrupted:
            while launch.todo:
                run = next((run for run in list(launch.todo) if launch.ready(run)), None)
                if run is None:
                    continue  # those that waited in vain have left the list
                launch.todo.remove(run)
                found = launch.records.examine(run.id)
                if isinstance(found, Record) and found.final:
                    launch.settle(run, found, here=False)
                    continue
                launch.begin(run)

                def tell(progress: dict[str, float], run=run) -> None:
                    launch.emit("progress", run, progress=progress)

                code = worker.attempt(launch.job(run, None, {}), interrupted.is_set, tell)
                if interrupted.is_set():
                    raise KeyboardInterrupt
                if code == exit_codes.HELD:
                    launch.emit("waiting", run)
                    time.sleep(_LOOK_AGAIN)
                launch.conclude(run, code)


@contextmanager
def patient_interrupt() -> Iterator[threading.Event]:
    """Turns the first Ctrl-C into a request, so that the step in progress ends and a checkpoint is written."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    usual = signal.getsignal(signal.SIGINT)

    def handle(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, usual)
