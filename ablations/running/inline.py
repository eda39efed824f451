"""The executor that makes runs one by one in this process: for tests, debugging and Windows."""

import time
from typing import Any

from ablations.running import exit_codes, worker
from ablations.running.executor import Executor
from ablations.running.launch import Launch
from ablations.running.signals import patient
from ablations.schema.record import Record

_LOOK_AGAIN = 0.5  # seconds between checks of a run that another launcher makes


class Inline(Executor):
    """Makes runs in the calling process, with its output."""

    def run(self, launch: Launch) -> None:
        """See `Executor.run`. The first signal finishes the step and writes a checkpoint; the second raises at once."""
        with patient() as interrupted:
            while launch.todo:
                launch.drop_orphans()
                run = next((run for run in launch.todo if launch.ready(run)), None)
                if run is None:
                    continue  # those that were left were orphans
                launch.todo.remove(run)
                record = launch.records.examine(run.id)
                if isinstance(record, Record) and record.final:
                    launch.settle(run, record, here=False)
                    continue
                launch.begin(run)

                def tell(progress: dict[str, Any], run=run) -> None:
                    launch.emit("progress", run, progress=progress)

                try:
                    code = worker.attempt(launch.job(run, None, {}), interrupted.is_set, tell)
                finally:  # or a library has turned the signal into an exception of its own
                    if interrupted.is_set():
                        interrupted.raise_again()
                if code == exit_codes.HELD:
                    launch.emit("waiting", run)
                    time.sleep(_LOOK_AGAIN)
                launch.conclude(run, code)
