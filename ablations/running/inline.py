"""The executor that makes runs one by one in this process: for tests, debugging and Windows."""

import logging
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from ablations.running import worker
from ablations.running.executor import Executor
from ablations.running.job import Job
from ablations.running.keeper import Ending, Turns
from ablations.running.launch import Launch
from ablations.running.signals import patient
from ablations.schema.run import Run
from lightning_modules.config import Problem, Settings
from lightning_modules.training.execution import Execution


@contextmanager
def quiet() -> Iterator[None]:
    """Leaves out what Lightning says of each training in this process: the devices it found, its own deprecations."""
    import pytorch_lightning as pl  # which sets the level as it is imported

    logger = logging.getLogger(pl.__name__)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            yield
    finally:
        logger.setLevel(before)


class InlineOptions(Settings):
    """There are none."""


class Inline(Executor):
    """Makes runs in the calling process, with its output. A job has ended when it is submitted."""

    Options: ClassVar[type[Settings]] = InlineOptions
    turn = 0.0
    threads = None

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """See `Executor.problems`."""
        yield from super().problems(execution)
        if execution.devices > 1:
            text = "this executor makes runs in one process each, which no other shares. Use --executor local."
            yield Problem("devices", text)

    def room(self) -> int:
        """See `Executor.room`."""
        return 1

    def submit(self, launch: Launch, turns: Sequence[Turns]) -> Sequence[Ending]:
        """See `Executor.submit`. The first signal ends the step and writes a checkpoint; the second raises at once."""
        ((path,),) = (one.configs for one in turns)
        job = Job.load(path)
        run = Run.read(job.run)
        with quiet(), patient() as interrupted:
            try:
                code = worker.attempt(
                    job, interrupted.is_set, lambda progress: launch.emit("progress", run, progress=progress)
                )
            finally:  # or a library has turned the signal into an exception of its own
                if interrupted.is_set():
                    interrupted.raise_again()
        return [Ending(code)]

    def ending(self, job: Ending) -> Ending:
        """See `Executor.ending`."""
        return job

    def wait(self) -> None:
        """See `Executor.wait`."""
        if not self.active:
            super().wait()

    def send(self, jobs: Sequence[Ending], number: signal.Signals) -> None:
        """See `Executor.send`. A job that was submitted has ended."""
