"""The executor that makes runs one by one in this process: for tests, debugging and Windows."""

import time

from ablations.running import worker
from ablations.running.executor import Executor
from ablations.running.launch import Launch
from ablations.running.signals import Interruption, patient
from ablations.schema.run import Run

_LOOK_AGAIN = 0.5  # seconds between looks at runs that other launchers make


class Inline(Executor):
    """Makes runs in the calling process, with its output."""

    def run(self, launch: Launch) -> None:
        """See `Executor.run`. The first signal finishes the step and writes a checkpoint; the second raises at once."""
        with patient() as interrupted:
            while launch.todo:
                run = next(launch.takeable(), None)
                if run is not None:
                    _make(launch, run, interrupted)
                elif launch.todo:
                    time.sleep(_LOOK_AGAIN)
                    if interrupted.is_set():
                        interrupted.raise_again()


def _make(launch: Launch, run: Run, interrupted: Interruption) -> None:
    job = launch.job(run, None, {})
    launch.begin(run)
    try:
        code = worker.attempt(
            job,
            interrupted.is_set,
            lambda progress: launch.emit("progress", run, progress=progress),
        )
    finally:  # or a library has turned the signal into an exception of its own
        if interrupted.is_set():
            interrupted.raise_again()
    launch.conclude(run, code)
