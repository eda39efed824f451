"""The executor that makes runs one by one in this process: for tests, debugging and Windows."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ablations.running import exit_codes, worker
from ablations.running.launch import Executor, Launch
from ablations.schema.record import Record

_LOOK_AGAIN = 0.5  # seconds between checks of a run that another launcher makes


class Inline(Executor):
    """Makes runs in the calling process, with its output."""

    def run(self, launch: Launch) -> None:
        """See `Executor.run`. The first Ctrl-C finishes the step and writes a checkpoint; the second raises at once."""
        with patient_interrupt() as interrupted:
            while launch.todo:
                run = next((run for run in list(launch.todo) if launch.ready(run)), None)
                if run is None:
                    continue  # `ready` has removed runs whose parents failed
                launch.todo.remove(run)
                record = launch.records.examine(run.id)
                if isinstance(record, Record) and record.final:
                    launch.settle(run, record, here=False)
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
    """Turns the first Ctrl-C into an event, so that the current step ends and a checkpoint is written."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    usual = signal.getsignal(signal.SIGINT)

    def handle(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, usual)
