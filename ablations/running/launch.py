"""What every executor shares: the work list, events for a watcher, records of crashed workers."""

import contextlib
import json
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from filelock import Timeout

from ablations.core import provenance
from ablations.core.store import Damage, Records
from ablations.planning import cost as costing
from ablations.planning.plan import Plan
from ablations.running import attempts as attempt_files
from ablations.running import exit_codes, worker
from ablations.running.job import FILE, Job
from ablations.running.ranks import memory
from ablations.running.summary import Failure, Summary
from ablations.schema.record import PASSING, Outcome, Record
from ablations.schema.run import Run
from lightning_modules import cached
from lightning_modules.files import is_full, read
from lightning_modules.places import cache
from lightning_modules.training.execution import ALONE, Execution

_LOOK_AGAIN = 0.5  # seconds between looks at a run that another launcher makes
_TELLING_SHARE, _TELLING_SECONDS = 0.05, 120.0  # of all work, and of time, after which the pace shows what is left


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Attributes:
        kind: ``started``, ``progress``, ``finished`` (it has ended) or ``waiting`` (another launcher makes it).
        run_id: The run.
        label: Its cell and seed.
        done: Settled runs of the plan.
        total: Runs of the plan.
        running: Active runs.
        seconds_left: Estimate for the whole plan; None before there is one.
        outcome: How it ended, if it is finished.
        progress: step, steps, loss and tokens_per_second, if there are any.
    """

    kind: Literal["started", "progress", "finished", "waiting"]
    run_id: str
    label: str
    done: int
    total: int
    running: int = 0
    seconds_left: float | None = None
    outcome: str = ""
    progress: dict[str, Any] | None = None


OnEvent = Callable[[Event], None]


class Launch:
    """One execution of a plan: settled runs, active runs, the time left.

    Args:
        plan: The plan.
        records: Its store.
        retries: Further attempts at a run that failed or was killed, by the kernel for memory too.
        deadline: Seconds after which a run is stopped as ``timeout``; None for no limit.
        on_event: Receives every event, in this thread.
        execution: How pretrainings are executed.
        until: A moment of the monotonic clock: no run begins whose estimate ends later, unless it takes longer than
            all the time from now on. None for no limit.
        again: What the plan overrides (`planning.plan.Request`) and its ``slice``, by which jobs that outlive this
            process make it again. None where none does.

    Attributes:
        is_sharing: Whether runs have the memory of a device in common.
        is_crowded: Whether one of these lacked memory.
    """

    def __init__(
        self,
        plan: Plan,
        records: Records,
        retries: int,
        deadline: float | None,
        on_event: OnEvent,
        execution: Execution = ALONE,
        until: float | None = None,
        again: Mapping[str, Any] | None = None,
    ) -> None:
        self.until, self.again = until, again
        self.plan, self.records, self.retries, self.deadline = plan, records, retries, deadline
        self.on_event, self.execution = on_event, execution
        self.summary = Summary()
        self.todo: dict[str, Run] = {run.id: run for run in plan.pending}
        self._place = {run.id: place for place, run in enumerate(plan.pending)}
        self._children: dict[str, list[Run]] = {}
        for run in plan.pending:
            for parent in run.parents:
                self._children.setdefault(parent, []).append(run)
        self.left: dict[str, Run] = {}  # by id, those that are not begun, since the time is too short for them
        self.settled = len(plan.runs) - len(self.todo)
        self.attempts: Counter[str] = Counter()
        self.shares: dict[str, float] = {}  # active run -> the share that is trained
        self.repeated: dict[str, float] = {}  # finished run that is trained again for its weights -> the share that is
        self._waiting: dict[str, str] = {}  # active run -> the one whose weights it waits for
        self.trained = 0.0  # planned seconds of runs finished here
        self.started = time.monotonic()
        self.first = 0.0  # when the first run began
        self.put_back: Counter[str] = Counter()
        self.is_sharing = self.is_crowded = False
        self._kills: dict[str, int] = {}  # run -> how often the kernel had killed for memory when it began
        self._planned: dict[str, float] = {}  # run -> its planned seconds: each event asks for those of all
        self._done: set[str] = set()  # parents that are known to be done
        self._held: dict[str, float] = {}  # run that another launcher makes -> when to look again
        self._seen: dict[str, float] = {}  # active run -> modification time of the last reported progress

    def takeable(self) -> Iterator[Run]:
        """Takes the runs that can begin now from the work list, in the order of the plan, each when it is needed.

        It settles those that others have finished. Those that others make are looked at again later, as are those whose
        parent is being trained again for its weights: more processes would only wait for it.
        """
        self.todo = {run_id: self.todo[run_id] for run_id in sorted(self.todo, key=self._place.__getitem__)}
        self.drop_orphans()
        for run in list(self.todo.values()):
            if run.id not in self.todo or self._held.get(run.id, 0.0) > time.monotonic() or not self.ready(run):
                continue
            record = self.records.examine(run.id)
            if isinstance(record, Record) and record.final:
                del self.todo[run.id]
                self.settle(run, record, here=False)
            elif any(self.records.is_locked(name) for name in (run.id, *run.parents)):
                if run.id not in self._held:
                    self.emit("waiting", run)
                self._held[run.id] = time.monotonic() + _LOOK_AGAIN
            elif not self._fits(run):
                self._leave(run)
            else:
                del self.todo[run.id]
                yield run

    def _fits(self, run: Run) -> bool:
        """Whether a run ends in the time that is left, or takes longer than all of it: such a run is made in parts."""
        if self.until is None:
            return True
        left, seconds = self.until - time.monotonic(), self.seconds_to_make(run)
        return seconds <= left or (left > 0 and seconds > self.until - self.started)

    def turns(self, seconds: float) -> Iterator[list[Run]]:
        """Takes the runs that can begin now, in lists of about so many planned seconds, each when it is needed.

        Behind a run follow those that start from it, as far as they fit.
        """
        turns: list[Run] = []
        filled, is_full = 0.0, False
        for first in self.takeable():
            family = [first]
            while family and not is_full:
                turns.append(run := family.pop(0))
                took = self.planned_seconds(run.id)
                filled += took
                is_full = filled + took / 2 >= seconds  # if the next is like this one
                self.todo.pop(run.id, None)
                family += [child for child in self._children.get(run.id, ()) if child.id in self.todo]
            if is_full:
                yield turns
                turns, filled, is_full = [], 0.0, False
        if turns:
            yield turns

    def prepare(self, run: Run, threads: int | None, environment: dict[str, str]) -> Path | None:
        """Writes the job of a run for a worker; None, and the run is given up, if the disk is full."""
        folder = self.records.make_work_folder(run.id)
        for name in (FILE, worker.PROGRESS, worker.LOG):
            if (folder / name).is_dir():
                cached.vacate(folder / name)
        (folder / worker.PROGRESS).unlink(missing_ok=True)
        job = Job(
            run=run.to_dict(),
            results_dir=str(self.records.folder),
            work_dir=str(folder),
            threads=threads,
            environment=environment,
            code=provenance.fingerprint(),
            execution=self.execution,
            most=attempt_files.count(self.records, run.id) - self.attempts[run.id] + self.retries + 1,
            grid=self.plan.grid.name,
            label=f"{self.plan.scale}: {self.plan.label(run.id)}",
        )
        try:
            return job.save()
        except OSError as error:
            if not is_full(error):
                raise
            self.conclude(run, exit_codes.DISK_FULL)
            return None

    def emit(self, kind: Any, run: Run, outcome: str = "", progress: dict[str, Any] | None = None) -> None:
        """Sends an event to the watcher."""
        label, total = self.plan.label(run.id), len(self.plan.runs)
        if progress:
            again, share = progress.get("again", ""), progress["step"] / progress["steps"]
            if again:
                self._waiting[run.id], self.repeated[again] = again, share
            elif before := self._waiting.pop(run.id, ""):
                self.repeated[before] = 1.0
            self.shares[run.id] = 0.0 if again else share
            label = f"{self.plan.label(again)}, again for its weights" if again else label
        event = Event(
            kind, run.id, label, self.settled, total, len(self.shares), self.seconds_left(), outcome, progress
        )
        with contextlib.suppress(OSError):  # no training ends because a terminal or a pipe was closed
            self.on_event(event)

    def begin(self, run: Run) -> None:
        """Registers the start of a run."""
        self.first = self.first or time.monotonic()
        self.attempts[run.id] += 1
        self.summary.executed += 1
        self.shares[run.id] = 0.0
        self._seen.pop(run.id, None)
        self._kills[run.id] = memory.kills()
        self.emit("started", run)

    def follow(self, run: Run) -> None:
        """Reports the progress that a worker has written since the last look."""
        path = self.records.work_folder(run.id) / worker.PROGRESS
        try:
            changed = path.stat().st_mtime
            if changed != self._seen.get(run.id):  # a clock may be set back
                self._seen[run.id] = changed
                self.emit("progress", run, progress=json.loads(read(path)))
        except (OSError, ValueError):
            return  # it has not begun yet, or a file server answers late

    def planned_seconds(self, run_id: str) -> float:
        """The planned time of a run: FLOPs alone say little of small runs, whose start takes most of their time."""
        if run_id not in self._planned:
            self._planned[run_id] = costing.seconds([self.plan.costs[run_id]], self.plan.speed)
        return self._planned[run_id]

    def seconds_to_make(self, run: Run) -> float:
        """The planned time of a run from its checkpoint on, with that of parents whose weights are trained again."""
        try:
            progress = json.loads(read(self.records.work_folder(run.id) / worker.PROGRESS))
            again, share = progress.get("again", ""), progress["step"] / progress["steps"]
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ZeroDivisionError):
            again, share = "", 0.0  # none, or damaged
        seconds = self.planned_seconds(run.id) * (1.0 if again else 1.0 - share)
        for parent in {parent.id for parent in self.records.lacking(run)}:
            seconds += self.planned_seconds(parent) * (1.0 - share * (parent == again))
        return seconds

    def _leave(self, run: Run) -> None:
        self.left[run.id] = self.todo.pop(run.id)

    def seconds_left(self) -> float | None:
        """The remaining work, in planned seconds, at the pace of this launch so far.

        None before a twentieth of all work is done, or two minutes have passed: until then most of the time went into
        starting.
        """
        active = [*self.shares.items(), *self.repeated.items()]
        going = sum(self.planned_seconds(run_id) * share for run_id, share in active)
        begun = sum(self.planned_seconds(run_id) for run_id, _ in active)
        left = sum(map(self.planned_seconds, self.todo)) + begun - going
        done, elapsed = self.trained + going, time.monotonic() - self.first
        tells = done >= _TELLING_SHARE * (done + left) or elapsed >= _TELLING_SECONDS
        return left * elapsed / done if done > 0 and tells else None

    def settle(self, run: Run, record: Record, here: bool) -> None:
        """Registers the end of a run, for good or for this launch."""
        self.shares.pop(run.id, None)
        self.settled += 1
        if here:
            self.trained += self.planned_seconds(run.id)
        else:
            self.summary.elsewhere += 1
        self.emit("finished", run, record.outcome)

    def ready(self, run: Run) -> bool:
        """Whether the parents of a run are done."""
        return self._have_ended(run.parents) and self._are_done(run.parents)

    def drop_orphans(self) -> None:
        """Gives up the runs whose parents have ended otherwise than done."""
        for run in list(self.todo.values()):
            if run.parents and self._have_ended(run.parents) and not self._are_done(run.parents):
                if self.left.keys() & set(run.parents):
                    self._leave(run)
                    continue
                del self.todo[run.id]
                self.settled += 1
                self.emit("finished", run, "orphaned")

    def _have_ended(self, parents: Sequence[str]) -> bool:
        return self.todo.keys().isdisjoint(parents) and self.shares.keys().isdisjoint(parents)

    def _are_done(self, parents: Sequence[str]) -> bool:
        for parent in parents:
            if parent not in self._done and (record := self.records.get(parent)) and record.outcome == "done":
                self._done.add(parent)
        return self._done.issuperset(parents)

    def conclude(self, run: Run, code: int, forced: Outcome | None = None, detail: str = "") -> None:
        """Handles the end of a worker: settles the run, puts it back, retries it, or gives it up.

        Args:
            code: The worker's exit code; negative for the signal it died of.
            forced: The outcome to record if the launcher stopped the worker itself.
            detail: What an engine says of a worker that died. By default it is derived from the code.
        """
        self.shares.pop(run.id, None)
        if code == exit_codes.LATE:
            self.summary.duplicates += 1
        if code == exit_codes.INTERRUPTED and not forced and self.put_back[run.id] < exit_codes.MOST_PUT_BACK:
            self.put_back[run.id] += 1  # somebody else stopped it: a scheduler that pre-empts, a node that goes down
            code = exit_codes.HELD
            with contextlib.suppress(Timeout), self.records.lock(run.id).acquire(timeout=0):
                attempt_files.end(self.records, run.id)  # of a lost node: it does not count
        is_short = code == exit_codes.NO_MEMORY or memory.kills() > self._kills.get(run.id, math.inf)
        if code not in (*exit_codes.LEAVING, exit_codes.AGAIN):
            code = exit_codes.NO_MEMORY if is_short and code == -signal.SIGKILL else code
            code = self.bury(run, code, forced, detail)
        if code == exit_codes.DISK_FULL:
            places = f"{self.records.folder} or to the cache, {cache()}"
            self.summary.problems.append(f"disk full: could not write run {run.id} to {places}. Free some space")
            self.settled += 1
            return
        if code in exit_codes.DID_NOTHING:
            self.attempts[run.id] -= 1
            self.summary.executed -= 1
        record = self.records.get(run.id)
        if code != exit_codes.HELD and record is not None and not self._again(run, record, is_short):
            self.settle(run, record, here=code not in (exit_codes.LATE, exit_codes.FOUND))
        else:
            self.todo[run.id] = run

    def _again(self, run: Run, record: Record, is_short: bool) -> bool:
        """Whether a run is tried again now, also one without memory that others may have used.

        That may be so where the kernel chose whom to kill, and on a device that runs share.
        """
        is_crowded = record.outcome == "oom" and self.is_sharing
        self.is_crowded |= is_crowded
        passing = (*PASSING, "oom") if is_short or is_crowded else PASSING
        return record.outcome in passing and self.attempts[run.id] <= self.retries

    def bury(self, run: Run, code: int, forced: Outcome | None, detail: str = "") -> int:
        """Records the attempt of a worker that died without a record, and returns a code of `exit_codes`."""
        own, died = attempt_files.outcome_of_death(code, self.records.work_folder(run.id))
        stopped = f"stopped after {self.deadline:g} s" if forced == "timeout" and self.deadline else ""
        try:
            with self.records.lock(run.id).acquire(timeout=5):
                earlier = self.records.get(run.id)
                if earlier is None or not earlier.final:
                    worker.bury(run, self.records, forced or own, detail or stopped or died)
        except Timeout:
            pass  # another launcher already makes the run
        except OSError as error:
            if not is_full(error):
                raise
            return exit_codes.DISK_FULL
        return exit_codes.RECORDED

    def finish(self) -> Summary:
        """The summary, read from the store. Of a run left for want of time, that an attempt died is no end."""
        waiting = {*self.left, *self.shares, *self.todo} if self.until is not None else set()
        names: dict[str, str] = {}
        failures: dict[tuple[str, str], Failure] = {}
        for run in self.plan.runs:
            record = self.records.examine(run.id)
            if isinstance(record, Record) and not record.final and run.id in waiting:
                record = None
            is_orphan = any(names.get(parent) in ("diverged", "invalid", "orphaned") for parent in run.parents)
            absent = "orphaned" if is_orphan else "missing"
            names[run.id] = "newer" if isinstance(record, Damage) else record.outcome if record else absent
            if isinstance(record, Record) and record.outcome not in ("done", "diverged"):
                like = failures.get((record.outcome, record.detail))
                log = self.records.work_folder(run.id) / worker.LOG
                first = Failure(self.plan.label(run.id), record.outcome, record.detail, run.id, log)
                failures[record.outcome, record.detail] = replace(like, others=like.others + 1) if like else first
        self.summary.failures = list(failures.values())
        self.summary.outcomes = dict(Counter(names.values()))
        self.summary.left = sum(names[run_id] == "missing" for run_id in waiting)
        self.summary.seconds = time.monotonic() - self.started
        return self.summary
