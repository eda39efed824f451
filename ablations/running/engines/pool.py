"""What executors share that submit jobs to an engine and ask it from time to time how they are.

A job makes several runs in turn, so that ten thousand small runs are not ten thousand jobs.
"""

import json
import os
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, ValidationError

from ablations.core import provenance
from ablations.running.engines.node import Ending, Keeper, Turns
from ablations.running.executor import Executor
from ablations.running.exit_codes import HELD, UNFIT
from ablations.running.launch import Launch
from ablations.running.worker import note
from ablations.schema.run import Run
from lightning_modules.config import ConfigError, Problem, Settings, problems
from lightning_modules.places import cache, data_home, project
from lightning_modules.training.execution import Execution

_POLL = 0.5  # seconds between looks at all jobs
_GRACE = 30.0  # seconds for a run past its deadline to stop by itself
_PASSED_ON = ("HF_HOME", "HF_HUB_OFFLINE")

Name = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]  # account 1234


@dataclass
class _Active:
    """A job that the engine has."""

    runs: dict[str, Run]  # those that it has not left, by id
    turns: Turns
    job: Any  # what the engine knows it by
    read: int = 0  # bytes of its diary
    began: float | None = None  # when its first run did
    stopped: str = ""  # the run past its deadline
    ended: float | None = None  # when the launcher told it to stop, for that

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


class Pool(Executor):
    """Submits runs while there is room, follows their progress in the store, concludes those that have ended.

    Attributes:
        Options: The settings that users may give as ``--executor-option``.
        threads: Threads of torch in each process of a run.
        devices: Processes of a node that share each pretraining; each has the cores and GPUs that are asked for a run.
        nodes: How many of them share each pretraining.
        patience: Seconds that interrupted runs have to write their checkpoints.
        turn: The most planned seconds of the runs of a job.
        queues: Whether jobs wait for a place, so that few long ones are better than many short ones.
        active: The jobs that the engine has.
    """

    Options: ClassVar[type[Settings]]
    threads: int = 1
    patience: float = 60.0
    turn: float = 600.0
    queues: bool = False

    def __init__(self, options: Any) -> None:
        self.options, self.devices, self.nodes = options, 1, 1
        self.active: list[_Active] = []

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> Self:
        """See `Executor.configured`."""
        try:
            return cls(cls.Options.model_validate_json(json.dumps(options)))
        except ValidationError as error:
            found = problems(error, cls.Options, "option")
            raise ConfigError(
                Problem(f"executor option {problem.path}", problem.message) for problem in found
            ) from None

    def problems(self, execution: Execution) -> Iterator[Problem]:
        """See `Executor.problems`. How many devices and nodes there are, the engine knows."""
        return iter(())

    @abstractmethod
    def open(self, launch: Launch) -> None:
        """Connects to the engine and checks that it can make the runs, before any is submitted.

        Raises:
            ConfigError: If it cannot.
        """

    @abstractmethod
    def room(self) -> int:
        """How many jobs the engine should have at once, those in its queue included."""

    @abstractmethod
    def submit(self, keeper: Keeper, turns: Sequence[Turns]) -> Sequence[Any]:
        """Submits jobs, each of which calls the keeper; returns what the engine knows them by.

        Raises:
            ConfigError: If the engine refuses them.
        """

    @abstractmethod
    def ending(self, job: Any) -> Ending | None:
        """How a job ended; None while it waits or runs."""

    @abstractmethod
    def stop(self, jobs: Sequence[Any]) -> None:
        """Tells jobs to write their checkpoints and end; those that wait leave the queue."""

    @abstractmethod
    def kill(self, jobs: Sequence[Any]) -> None:
        """Ends jobs at once."""

    def close(self) -> None:
        """Disconnects from the engine; called once, also if `open` raised."""

    def environment(self) -> dict[str, str]:
        """Variables of every run: folders that it has in common with this process."""
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        data = {"ABLATIONS_DATA": str(home)} if (home := data_home()) else {}
        return {"ABLATIONS_CACHE": str(cache()), **data, **passed}

    def run(self, launch: Launch) -> None:
        """See `Executor.run`. The first signal waits for checkpoints, the second kills."""
        if not launch.todo:
            return
        try:
            self.open(launch)
            while launch.todo or self.active:
                self._fill(launch)
                time.sleep(_POLL)
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
        seconds = min(self.turn, share) if self.nodes == 1 else 0.0
        batch: list[tuple[dict[str, Run], Turns]] = []
        for runs in islice(launch.turns(seconds), max(0, room - len(self.active))):
            paths: dict[Path, Run] = {}
            for run in runs:
                path = launch.prepare(run, self.threads, self.environment(), provenance.fingerprint())
                if path is not None:
                    launch.begin(run)
                    paths[path] = run
            if paths:
                diary = next(iter(paths)).with_name(f"diary-{uuid.uuid4().hex[:8]}.jsonl")
                turns = Turns(tuple(map(str, paths)), str(diary))
                batch.append(({run.id: run for run in paths.values()}, turns))
        if batch:
            keeper = Keeper(str(project()), self.patience, launch.retries, self.nodes)
            jobs = self.submit(keeper, [turns for _, turns in batch])
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
            self.stop([active.job])
        elif active.ended is not None and now - active.ended > _GRACE:
            self.kill([active.job])

    def _end_all(self, patience: float) -> None:
        """Tells every job to stop, and kills those that have not stopped after some seconds."""
        until = time.monotonic() + patience
        try:
            if self.active and patience:
                self.stop([active.job for active in self.active])
            while self.active and time.monotonic() < until:
                self.active = [active for active in self.active if self.ending(active.job) is None]
                time.sleep(_POLL)
        finally:  # a second signal jumps here at once
            if self.active:
                self.kill([active.job for active in self.active])
            self.active.clear()
