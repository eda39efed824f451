"""Makes one run and its record: in a process of its own (`work`), or in this one (`attempt`)."""

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from ablations.core import bars, provenance
from ablations.core.disk import heldout, kept_weights
from ablations.core.disk.kept_weights import WEIGHTS
from ablations.core.store import Records
from ablations.running import attempts as attempt_files
from ablations.running.between import as_it_was
from ablations.running.exit_codes import (
    AGAIN,
    DID_NOTHING,
    DISK_FULL,
    FOUND,
    HELD,
    INTERRUPTED,
    LATE,
    RECORDED,
    SPENT,
)
from ablations.running.job import Job
from ablations.running.outcomes import LOG, log_to, outcome_of
from ablations.running.ranks import group
from ablations.schema.kinds import KINDS, Watch
from ablations.schema.record import PASSING, Outcome, Record, checksum
from ablations.schema.run import Run
from lightning_modules import cached, speed
from lightning_modules.config import ConfigError
from lightning_modules.files import is_full, open_end
from lightning_modules.parents import ROLES
from lightning_modules.probing.table import left_out
from lightning_modules.training.execution import ALONE, Execution

if TYPE_CHECKING:
    from lightning_modules.training.callbacks import Fitted

PROGRESS = "progress.json"
_PROGRESS_EVERY = 1.0  # seconds
_TAKEN_OVER = "the run has a final record of another process, which stays. This work was done twice"
_SECOND = "second.json"  # in the work folder: the metrics of a training that was repeated for its weights
_SAME_LOSS = 0.01  # relative difference between two trainings of one run: processors round differently


def work(
    config_path: str, stop: Callable[[], bool], nodes: Path | None = None, death: tuple[int, str] | None = None
) -> tuple[int, bool]:
    """Does the job of a file in this process, whose output and threads it takes over.

    Args:
        config_path: A file from `Job.save`.
        stop: See `attempt`.
        nodes: See `Watch`.
        death: See `attempt`.

    Returns:
        A code of `exit_codes`, and whether this process may make another run.
    """
    job = Job.load(config_path)
    os.environ.update(job.environment or {})
    log_to(Path(job.work_dir) / LOG)
    speed.settle(job.threads)
    code = attempt(job, stop, nodes=nodes, death=death)
    record = Records(job.results_dir).get(Run.read(job.run).id)
    if code == RECORDED and record is not None and record.outcome in PASSING:
        code = AGAIN
    return code, code in DID_NOTHING or (code == RECORDED and record is not None and record.final)


def attempt(
    job: Job,
    stop: Callable[[], bool],
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    nodes: Path | None = None,
    death: tuple[int, str] | None = None,
) -> int:
    """Makes one attempt at a run: takes its lock, checks for a final record, trains, writes the record.

    Args:
        job: The job.
        stop: Called after every step; True ends the attempt with a checkpoint and no record.
        on_progress: Receives the content of ``progress.json`` whenever it is written.
        nodes: See `Watch`.
        death: How the last attempt died that has no record, if anybody knows: the code of its process, and what else is
            known. One that was interrupted does not count.
    """
    run, records = Run.read(job.run), Records(job.results_dir)
    lock = records.lock(run.id)
    try:
        lock.acquire(timeout=0.2, poll_interval=0.05)  # a mere check of the lock releases it at once
    except Timeout:
        return HELD
    try:
        report = _Reporter(Path(job.work_dir) / PROGRESS, on_progress)
        with as_it_was():
            watch = Watch(Path(job.work_dir), {}, report, stop, job.execution, nodes)
            code = _attempt(run, records, watch, job, death)
    except OSError as error:
        if not is_full(error):
            raise
        sys.stderr.write(f"disk full: {error}\n")
        return DISK_FULL
    finally:
        lock.release()  # others may start from this run while it counts
    if code == RECORDED and run.kind == "pretrain" and not stop():
        _count(run, records, Path(job.work_dir))
    return code


def _count(run: Run, records: Records, folder: Path) -> None:
    """Keeps what counting reaches on the run's held-out words, unless another run does.

    No failure is the run's: its log has it in full.
    """
    record = records.get(run.id)
    if record is None or record.outcome != "done":
        return
    try:
        for bar in bars.complete(run, records, wait=False):
            note(folder, f"counting reaches {bar.level:.4f} nats in {bar.question} ({bar.floor})")
    except Exception:  # the command tries again at its end, and says why it cannot: `complete_finished`
        note(folder, f"what counting reaches is not kept: {traceback.format_exc().rstrip()}")


def _attempt(run: Run, records: Records, watch: Watch, job: Job, death: tuple[int, str] | None) -> int:
    earlier = records.get(run.id)
    if earlier is not None and earlier.final:
        return FOUND
    folder = cached.folder(watch.folder)
    if death and death[0] == INTERRUPTED:
        attempt_files.end(records, run.id)  # it does not count
    if dead := attempt_files.of(records, run.id):  # of whose end no launcher has heard
        outcome, detail = "killed", f"{dead.place} ended without a record"
        if death:
            outcome, ended = attempt_files.outcome_of_death(death[0], folder)
            detail = death[1] or ended
        note(folder, f"run {run.id} attempt {dead.number}: {detail}")
        bury(run, records, outcome, detail)
    attempts = 1 + attempt_files.count(records, run.id)
    if job.most is not None and attempts > job.most:
        return SPENT
    started = provenance.now()
    _ = provenance.code(), provenance.fingerprint()  # of the code that runs, whatever its files hold at the end
    note(folder, f"run {run.id} attempt {attempts} started")
    attempt_files.begin(records, run.id, attempts, started, job.grid, job.label)
    try:
        return _recorded(run, records, watch, attempts, started)
    finally:
        attempt_files.end(records, run.id)


def bury(run: Run, records: Records, outcome: Outcome, detail: str) -> None:
    """Records the attempt of a process that died, unless that is done; the caller holds the run's lock."""
    recorded = attempt_files.recorded(records.get(run.id))
    dead = attempt_files.of(records, run.id)
    number, since = (dead.number, dead.since) if dead else (recorded + 1, provenance.now())
    if number > recorded:
        keep(run, records, {"outcome": outcome, "detail": detail}, since, number, here=False)
    attempt_files.end(records, run.id)


def _recorded(run: Run, records: Records, watch: Watch, attempts: int, started: str) -> int:
    """Makes a run and its record."""
    from lightning_modules.training.callbacks import CHECKPOINT, Interrupted

    folder = watch.folder
    result: dict[str, Any]
    try:
        _check_text(run, records)
        if waiting := [ROLES[role] for role, parent in run.by_role.items() if not _is_ready(parent, records)]:
            note(folder, f"run {run.id} put back: not made yet are {', '.join(waiting)}")
            return HELD
        fitted = _made(run, records, watch)
        result = {"outcome": "done", "metrics": fitted.metrics, "curve": fitted.curve, "cost": fitted.cost}
        result |= {"layers": fitted.layers, "examples": fitted.examples}
        changed = {"device": provenance.THEN.join(fitted.devices)} if len(fitted.devices) > 1 else {}
        result["provenance"] = changed | fitted.execution
        if fitted.sums:
            result["provenance"] |= {heldout.ENTRY: records.put_sums(run.id, fitted.sums)}
    except Interrupted:
        note(folder, f"run {run.id} attempt {attempts} interrupted. The next attempt continues from its checkpoint")
        return INTERRUPTED
    except Exception as error:
        if is_full(error):
            raise
        note(folder, traceback.format_exc().rstrip())
        outcome, detail = outcome_of(error)
        result = {"outcome": outcome, "detail": detail}
    kept = keep(run, records, result, started, attempts, execution=watch.execution)
    if result["outcome"] == "done":
        (folder / CHECKPOINT).unlink(missing_ok=True)  # the weights stay; optimiser moments have no further use
    if not kept:
        note(folder, f"run {run.id} attempt {attempts} {result['outcome']}, too late: {_TAKEN_OVER}")
        return LATE
    note(folder, f"run {run.id} attempt {attempts} {result['outcome']}")
    return RECORDED


def _is_ready(parent: Run, records: Records) -> bool:
    record = records.get(parent.id)
    return record is not None and record.outcome == "done" and not records.is_locked(parent.id)


def _made(run: Run, records: Records, watch: Watch) -> "Fitted":
    """Makes a run, with the weights of its parents; a pretraining may be shared by several devices."""
    watch = replace(watch, weights={role: weights_of(parent, records, watch) for role, parent in run.by_role.items()})
    is_shared = run.kind == "pretrain" and watch.execution.ranks > 1
    with group.others(run, watch) if is_shared else nullcontext():
        return KINDS[run.kind].make(run, watch)


def weights_of(run: Run, records: Records, watch: Watch) -> Path:
    """The weights of a finished run, from the cache or kept with the records; if neither has them, it is trained again.

    Args:
        run: The run.
        records: Its store.
        watch: Who watches a training, and how it is executed; the folder is the run's own.

    Raises:
        NotReproducedError: If the second training does not end at the loss in the record.
    """
    from lightning_modules.training.callbacks import CHECKPOINT

    folder = records.work_folder(run.id)
    with records.lock(run.id):  # waits for another process that trains the same run
        found = records.weights(run.id)
        if found is None:
            records.make_work_folder(run.id)
            record = records.get(run.id)
            _compare(run, folder, record)  # an earlier second training
            note(folder, f"training run {run.id} again, because another run needs its weights")
            there = replace(watch, folder=folder, on_progress=lambda p: watch.on_progress(replace(p, again=run.id)))
            fitted = _made(run, records, replace(there, weights_alone=record is not None))
            (folder / CHECKPOINT).unlink(missing_ok=True)
            cached.write(folder / _SECOND, lambda file: cached.put_json(file, fitted.metrics), folder.parent)
            _compare(run, folder, record)
    return found or folder / WEIGHTS


class NotReproducedError(Exception):
    """A repeated training ended differently."""


def _compare(run: Run, folder: Path, record: Record | None) -> None:
    """Compares what a second training measured, if there was one, with the record; weights of another loss go."""
    if record is None or not cached.is_sound(folder / _SECOND):
        return
    second = cached.get_json(folder / _SECOND)
    loss = next(name for name in KINDS[run.kind].proof(run) if name in record.metrics)
    now, then = second[loss], record.metrics[loss]
    if not math.isclose(now, then, rel_tol=_SAME_LOSS):
        cached.remove(folder / WEIGHTS)
        raise NotReproducedError(
            f"run {run.id}, trained again for its weights, ended at a loss of {now:.4f} but its record says "
            f"{then:.4f}. Other processors and versions of libraries round otherwise, and a training that ends while "
            "its loss still falls steeply may end elsewhere. To train it again, delete the records of it "
            f"(records/{run.id[:2]}/{run.id}.*) and of the runs that started from it. To try once more, run "
            "`ablations clean`"
        )


class TextUnavailableError(Exception):
    """The text of a run is missing or has changed; the next attempt may find it."""


def _check_text(run: Run, records: Records) -> None:
    if (current := run.texts) != run.fingerprints:
        raise TextUnavailableError(
            f"the text has changed since the run was planned: {current} instead of {run.fingerprints}"
        )
    try:
        kept_weights.lend_tokenizer(records.folder, run)
        for member in (run, *records.lacking(run)):
            KINDS[member.kind].open(member)
        KINDS[run.kind].check(run.task)
        if run.kind == "pretrain":
            left_out(run.system.evaluation.probes, run.system.data)  # makes or reads the examples of the others
    except ConfigError as error:
        raise TextUnavailableError(str(error)) from error


def note(folder: Path, text: str) -> None:
    """Adds a line with its time to the run's log; in a process of its own the libraries log there too."""
    with open_end(folder / LOG) as log:
        log.write(f"{provenance.now()} {text}\n".encode())


def keep(
    run: Run,
    records: Records,
    result: dict[str, Any],
    started: str,
    attempts: int,
    here: bool = True,
    execution: Execution = ALONE,
) -> bool:
    """Writes the record of an attempt with its provenance.

    Args:
        run: The run.
        records: The store; the caller holds the run's lock.
        result: Outcome, and detail, metrics, curve, cost and more provenance as far as there are any.
        started: When the attempt began.
        attempts: The number of the attempt, from 1.
        here: Whether this process made it.
        execution: How it was executed, if it is a pretraining.

    Returns:
        Whether it is the run's record now; False if another final one was there, which stays.
    """
    origin = provenance.describe(records.folder, started, attempts, here)
    origin |= execution.provenance if run.kind == "pretrain" else {}
    origin |= result.get("provenance", {})
    record = Record(**{**result, "id": run.id, "kind": run.kind, "config": run.to_dict(), "provenance": origin})
    return records.put(record).checksum == checksum(record.to_dict())


class _Reporter:
    """Writes progress for a watcher, at most once a second, and always at the end."""

    def __init__(self, path: Path, also: Callable[[dict[str, Any]], None] | None) -> None:
        self.path, self.also, self.last = path, also, 0.0

    def __call__(self, progress: Any) -> None:
        if time.monotonic() - self.last < _PROGRESS_EVERY and progress.step < progress.steps:
            return
        self.last = time.monotonic()
        data = asdict(progress)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.unlink(missing_ok=True)
        with temporary.open("x") as file:
            file.write(json.dumps(data))  # no flush to the disk: it is worthless after a crash
        os.replace(temporary, self.path)
        if self.also:
            self.also(data)
