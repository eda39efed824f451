"""What every executor shares: the work list, events for whoever watches, the tally, and recording sudden deaths."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from filelock import Timeout

from ablations.core.provenance import now
from ablations.core.store import Damage, Records
from ablations.planning.plan import Plan
from ablations.running import exit_codes, worker
from ablations.schema.record import Outcome, Record
from ablations.schema.run import Run


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Attributes:
        kind: ``started``, ``progress``, ``finished`` (there is a record) or ``waiting`` (another launcher makes it).
        run_id: The run.
        label: Its cell and seed.
        done: Runs that are settled so far, of this plan.
        total: Runs of this plan.
        running: Runs that go on right now.
        seconds_left: Estimate for the whole plan, None while there is nothing to estimate from.
        outcome: How it ended, when finished.
        progress: step, steps, loss and tokens_per_second, when there are any.
    """

    kind: Literal["started", "progress", "finished", "waiting"]
    run_id: str
    label: str
    done: int
    total: int
    running: int = 0
    seconds_left: float | None = None
    outcome: str = ""
    progress: dict[str, float] | None = None


OnEvent = Callable[[Event], None]


@dataclass
class Summary:
    """What executing a plan came to.

    Attributes:
        outcomes: Outcome -> number of runs of the plan that stand so now.
        executed: Attempts that were made here.
        elsewhere: Runs that another launcher finished meanwhile.
        problems: What went wrong beside the runs themselves (disk full), one sentence each.
        seconds: Wall time.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    executed: int = 0
    elsewhere: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())) or "no runs"
        made = f"{self.executed} trained here" if self.executed else "nothing had to be trained"
        return ". ".join([f"{counts}; {made}", *self.problems]) + "."

    def _repr_markdown_(self) -> str:
        return str(self)

    def then(self, later: "Summary") -> "Summary":
        """This execution and the one after it, of the same grid."""
        return Summary(
            later.outcomes,
            self.executed + later.executed,
            self.elsewhere + later.elsewhere,
            [*self.problems, *later.problems],
            self.seconds + later.seconds,
        )

    @property
    def complete(self) -> bool:
        """Whether every run of the plan has ended for good."""
        return not self.problems and set(self.outcomes) <= {"done", "diverged", "invalid", "orphaned"}


class Launch:
    """One execution of a plan: what is settled, what is going on, how long the rest will take.

    Args:
        plan: The plan.
        records: Its store.
        retries: Further attempts at a run that failed or was killed.
        deadline: Seconds after which a run is ended as ``timeout``; None for no limit.
        on_event: Told everything that happens, in this thread.
    """

    def __init__(self, plan: Plan, records: Records, retries: int, deadline: float | None, on_event: OnEvent) -> None:
        self.plan, self.records, self.retries, self.deadline = plan, records, retries, deadline
        self.on_event = on_event
        self.summary = Summary()
        self.todo: list[Run] = list(plan.pending)
        self.settled = len(plan.runs) - len(self.todo)
        self.attempts: Counter[str] = Counter()
        self.shares: dict[str, float] = {}  # run -> share of it that is trained, of runs that go on
        self.trained = 0.0  # FLOPs of runs finished here
        self.started = time.monotonic()
        self.first = 0.0  # when the first run began

    def job(self, run: Run, threads: int | None, environment: dict[str, str]) -> worker.Job:
        """The job of a run."""
        folder = self.records.work_folder(run.id)
        return worker.Job(run.to_dict(), str(self.records.folder), str(folder), threads, environment)

    def emit(self, kind: Any, run: Run, outcome: str = "", progress: dict[str, float] | None = None) -> None:
        """Tells the watcher."""
        if progress:
            self.shares[run.id] = progress["step"] / progress["steps"]
        label, total = self.plan.label(run.id), len(self.plan.runs)
        self.on_event(
            Event(kind, run.id, label, self.settled, total, len(self.shares), self.seconds_left(), outcome, progress)
        )

    def begin(self, run: Run) -> None:
        """Notes that a run was started."""
        self.first = self.first or time.monotonic()
        self.attempts[run.id] += 1
        self.summary.executed += 1
        self.shares[run.id] = 0.0
        self.emit("started", run)

    def seconds_left(self) -> float | None:
        """The FLOPs that remain at the speed of this launch so far."""
        costs = self.plan.costs
        going = sum(costs[run_id].flops * share for run_id, share in self.shares.items())
        waiting = sum(costs[run.id].flops for run in self.todo)
        left = waiting + sum(costs[run_id].flops for run_id in self.shares) - going
        elapsed = time.monotonic() - self.first
        return left * elapsed / (self.trained + going) if self.trained + going > 0 else None

    def settle(self, run: Run, record: Record, here: bool) -> None:
        """Notes that a run has ended for good, or for this launch."""
        self.shares.pop(run.id, None)
        self.settled += 1
        if here:
            self.trained += self.plan.costs[run.id].flops
        else:
            self.summary.elsewhere += 1
        self.emit("finished", run, record.outcome)

    def ready(self, run: Run) -> bool:
        """Whether the run that this one starts from is done; if that has ended otherwise, this one is given up."""
        pending = {other.id for other in self.todo} | self.shares.keys()
        if not pending.isdisjoint(run.parents):
            return False
        found = [self.records.get(parent) for parent in run.parents]
        if all(record is not None and record.outcome == "done" for record in found):
            return True
        self.todo.remove(run)
        self.settled += 1
        self.emit("finished", run, "orphaned")
        return False

    def conclude(self, run: Run, code: int, asked: Outcome | None = None) -> None:
        """Acts on the end of a worker: settles the run, tries it again, or gives it up.

        Args:
            run: The run.
            code: The worker's exit code; negative for the signal it died of.
            asked: The outcome to record where the launcher ended the worker itself.
        """
        self.shares.pop(run.id, None)
        if code == exit_codes.DISK_FULL:
            folder = self.records.folder
            self.summary.problems.append(f"disk full: run {run.id} could not be kept in {folder} or in the cache")
            self.settled += 1
            return
        if code == exit_codes.HELD:
            self.attempts[run.id] -= 1
            self.summary.executed -= 1
            self.todo.append(run)
            return
        if code != exit_codes.RECORDED:
            self.bury(run, code, asked)
        record = self.records.get(run.id)
        if record is not None and (record.final or not self._again(run, record)):
            self.settle(run, record, here=True)
        else:
            self.todo.insert(0, run)

    def _again(self, run: Run, record: Record) -> bool:
        return record.outcome in ("failed", "killed") and self.attempts[run.id] <= self.retries

    def bury(self, run: Run, code: int, asked: Outcome | None) -> None:
        """Records the attempt of a worker that could not do so itself."""
        died = f"the process died of signal {-code}" if code < 0 else f"the process ended with code {code}"
        detail = f"stopped after {self.deadline:g} s" if asked == "timeout" and self.deadline else died
        try:
            with self.records.lock(run.id).acquire(timeout=5):
                earlier = self.records.get(run.id)
                if earlier is not None and earlier.final:
                    return
                attempts = 1 + (int(earlier.provenance.get("attempts", 0)) if earlier else 0)
                outcome: Outcome = asked or ("killed" if code < 0 else "failed")
                found = {"outcome": outcome, "detail": detail}
                worker.keep(run, self.records, found, now(), attempts, here=False)
        except Timeout:
            return  # another launcher has taken the run up already

    def finish(self) -> Summary:
        """The tally, read from the store."""
        names: dict[str, str] = {}
        for run in self.plan.runs:
            record = self.records.examine(run.id)
            lost = any(names.get(parent) in ("diverged", "invalid", "orphaned") for parent in run.parents)
            absent = "orphaned" if lost else "missing"
            names[run.id] = "newer" if isinstance(record, Damage) else record.outcome if record else absent
        self.summary.outcomes = dict(Counter(names.values()))
        self.summary.seconds = time.monotonic() - self.started
        return self.summary


class Executor(ABC):
    """A way to make runs. Its state is in the store, so it may die at any moment."""

    @abstractmethod
    def run(self, launch: Launch) -> None:
        """Makes every run of ``launch.todo``, telling ``launch`` how each ends.

        Raises:
            KeyboardInterrupt: After the runs that went on have written checkpoints.
        """
