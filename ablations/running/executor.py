"""What an executor is, and the loop in which all of them make the runs of a launch.

An executor decides where runs are made: it takes jobs, says how they end, and stops them. A job makes one run or
several in turn, so that ten thousand small runs are not ten thousand jobs.
"""

import json
import os
import signal
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, ValidationError

from ablations.running.exit_codes import HELD, UNFIT
from ablations.running.keeper import Ending, Turns
from ablations.running.launch import Launch
from ablations.running.worker import note
from ablations.schema.run import Run
from lightning_modules.config import ConfigError, Problem, Settings, problems
from lightning_modules.places import cache, data_home
from lightning_modules.training.execution import Execution

_PASSED_ON = ("HF_HOME", "HF_HUB_OFFLINE")

Name = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]  # account 1234


@dataclass
class _Active:
    """A job that the executor has."""

    runs: dict[str, Run]  # those that it has not left, by id
    turns: Turns
    job: Any  # what the executor knows it by
    read: int = 0  # bytes of its diary
    began: float | None = None  # when its first run did
    stopped: str = ""  # the run past its deadline
    ended: float | None = None  # when the launcher requested it to stop, for that

    @property
    def run(self) -> Run | None:
        """The run that it makes, or makes next."""
        return next(iter(self.runs.values()), None)

    def news(self) -> Iterator[tuple[Run, int, str, bool]]:
        """What its diary says since the last look: a run that it has, a code, what else is known, whether again."""
        try:
            with open(self.turns.diary, "rb") as diary:
                diary.seek(self.read)
                lines = diary.read().splitlines(keepends=True)
        except OSError:
            return  # nothing has ended yet, or a file server answers late
        for line in lines:
            if not line.endswith(b"\n"):
                return
            self.read += len(line)
            run_id, *said = json.loads(line)
            if run := self.runs.get(run_id):
                yield run, *said


class Executor(ABC):
    """A way to make runs. What it has made is in the store alone, so it may die at any moment.

    Attributes:
        Options: The settings that users may give as ``--executor-option``.
        poll: Seconds between looks at all jobs.
        patience: Seconds that interrupted runs have to write their checkpoints.
        grace: Seconds for a run past its deadline to stop by itself.
        turn: The most planned seconds of the runs of a job; with 0 each job makes one run.
        queues: Whether jobs wait for a place, so that few long ones are better than many short ones.
        threads: Threads of torch in each process of a run; None for its own choice.
        active: The jobs that it has.
    """

    Options: ClassVar[type[Settings]]
    poll: ClassVar[float] = 0.5
    patience: float = 60.0
    grace: float = 30.0
    turn: float = 600.0
    queues: bool = False
    threads: int | None = 1

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options
        self.active: list[_Active] = []

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> Self:
        """The executor with options from a user.

        Raises:
            ConfigError: For options that it does not have.
        """
        try:
            return cls(cls.Options.model_validate_json(json.dumps(options)))
        except ValidationError as error:
            found = problems(error, cls.Options, "option")
            raise ConfigError(
                Problem(f"executor option {problem.path}", problem.message) for problem in found
            ) from None

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """What is in the way of executing runs like this, reported before any begins."""
        if execution.nodes > 1:
            text = f"{execution.nodes} machines share a run under --executor slurm alone. Here use --devices."
            yield Problem("num-nodes", text)

    def check_machine(self) -> None:  # noqa: B027, most need nothing
        """Checks that this machine has what the executor needs, before text is prepared for runs.

        Raises:
            ConfigError: For what is missing, with a way to get it.
        """

    def warm_up(self) -> None:  # noqa: B027, most have nothing
        """Begins what takes seconds and can run during the preparation of text. It does not wait for it."""

    def at_once(self) -> int | str:
        """How many runs it makes at a time, or in words that this is up to a cluster."""
        return self.room()

    def open(self, launch: Launch) -> None:  # noqa: B027, some have nothing
        """Connects to where the runs are made and checks that they can be, before any is submitted.

        Raises:
            ConfigError: If they cannot.
        """

    @abstractmethod
    def room(self) -> int:
        """How many jobs it should have at once, those that wait included."""

    @abstractmethod
    def submit(self, launch: Launch, turns: Sequence[Turns]) -> Sequence[Any]:
        """Begins jobs, or queues them; returns what it knows them by.

        Raises:
            ConfigError: If an engine refuses them.
        """

    @abstractmethod
    def ending(self, job: Any) -> Ending | None:
        """How a job ended; None while it waits or runs."""

    def wait(self) -> None:
        """Returns after `poll` seconds, or before if a job ends."""
        time.sleep(self.poll)

    @abstractmethod
    def send(self, jobs: Sequence[Any], number: signal.Signals) -> None:
        """Sends jobs SIGTERM, at which they write checkpoints and end or leave the queue, or SIGKILL."""

    def close(self) -> None:  # noqa: B027, some have nothing
        """Disconnects from where the runs were made; called once, also if `open` raised."""

    def environment(self) -> dict[str, str]:
        """Variables of every run: folders that it has in common with this process."""
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        data = {"ABLATIONS_DATA": str(home)} if (home := data_home()) else {}
        return {"ABLATIONS_CACHE": str(cache()), **data, **passed}

    def run(self, launch: Launch) -> None:
        """Makes every run of ``launch.todo`` and reports to ``launch`` how each ends.

        The first signal waits for checkpoints, the second kills.

        Raises:
            ConfigError: If the runs cannot be made there.
            KeyboardInterrupt: After Ctrl-C, once the active runs have written checkpoints.
            SystemExit: After SIGTERM or SIGHUP, likewise.
        """
        if not launch.todo:
            return
        try:
            self.open(launch)
            while launch.todo or self.active:
                self._fill(launch)
                self.wait()
                for active in list(self.active):
                    self._check(launch, active)
        except BaseException:  # an error of ours, or of a file server, costs no run its work since the last checkpoint
            self._end_all(self.patience)
            raise
        finally:
            self._end_all(0.0)
            self.close()

    def _fill(self, launch: Launch) -> None:
        """Submits what can begin, together: engines have arrays of jobs."""
        room = self.room()
        share = self.turn if self.queues else sum(map(launch.planned_seconds, launch.todo)) / max(1, room)
        seconds = min(self.turn, share) if launch.execution.nodes == 1 else 0.0
        batch: list[tuple[dict[str, Run], Turns]] = []
        for runs in islice(launch.turns(seconds), max(0, room - len(self.active))):
            paths: dict[Path, Run] = {}
            for run in runs:
                path = launch.prepare(run, self.threads, self.environment())
                if path is not None:
                    launch.begin(run)
                    paths[path] = run
            if paths:
                diary = next(iter(paths)).with_name(f"diary-{uuid.uuid4().hex[:8]}.jsonl")
                turns = Turns(tuple(map(str, paths)), str(diary))
                batch.append(({run.id: run for run in paths.values()}, turns))
        if batch:
            jobs = self.submit(launch, [turns for _, turns in batch])
            self.active += [_Active(*made, job) for made, job in zip(batch, jobs, strict=True)]

    def _check(self, launch: Launch, active: _Active) -> None:
        ending = self.ending(active.job)
        for run, code, detail, again in active.news():
            active.began = None
            if again:
                launch.begin(run)
            else:
                del active.runs[run.id]
                launch.conclude(run, code, detail=detail)
        run = active.run
        if ending is None:
            if run:
                launch.follow(run)
                self._hold_to_deadline(launch, active, run)
            return
        self.active.remove(active)
        Path(active.turns.diary).unlink(missing_ok=True)
        if ending.code == UNFIT:
            raise ConfigError([ending.detail])
        if run is None:
            return
        if ending.said:
            note(launch.records.work_folder(run.id), ending.said)
        forced = "timeout" if active.stopped == run.id or ending.timed_out else None
        launch.conclude(run, ending.code, forced, ending.detail)
        for other in list(active.runs.values())[1:]:
            launch.conclude(other, HELD)

    def _hold_to_deadline(self, launch: Launch, active: _Active, run: Run) -> None:
        """Stops a run past its deadline, which counts from the moment the run takes its lock, not in a queue."""
        if not launch.deadline:
            return
        now = time.monotonic()
        if active.began is None:
            active.began = now if launch.records.is_locked(run.id) else None
        elif active.ended is None and now - active.began > launch.deadline:
            active.stopped, active.ended = run.id, now
            self.send([active.job], signal.SIGTERM)
        elif active.ended is not None and now - active.ended > self.grace:
            self.send([active.job], signal.SIGKILL)

    def _end_all(self, patience: float) -> None:
        """Requests every job to stop, and kills those that have not stopped after some seconds."""
        until = time.monotonic() + patience
        try:
            if self.active and patience:
                self.send([active.job for active in self.active], signal.SIGTERM)
            while self.active and time.monotonic() < until:
                self.active = [active for active in self.active if self.ending(active.job) is None]
                if self.active:
                    self.wait()
        finally:  # a second signal jumps here at once
            if self.active:
                self.send([active.job for active in self.active], signal.SIGKILL)
            self.active.clear()
