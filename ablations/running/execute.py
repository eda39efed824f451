"""Executes a plan: every pending run is made once, even if other processes work on the same results."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from ablations.core.bars import complete_finished
from ablations.core.disk import kept_weights, locks
from ablations.core.store import Records, check_inside
from ablations.planning import scales
from ablations.planning.plan import Plan
from ablations.planning.search_text import missing
from ablations.running.engines.ray import Ray
from ablations.running.engines.slurm import Slurm
from ablations.running.executor import Executor
from ablations.running.inline import Inline
from ablations.running.launch import Event, Launch, OnEvent
from ablations.running.launchers import registered
from ablations.running.local import Local
from ablations.running.prepare import to_make
from ablations.running.signals import TimeUp, ending, limited
from ablations.running.summary import Summary
from ablations.schema.kinds import KINDS
from lightning_modules.config import ConfigError
from lightning_modules.files import is_full, lock
from lightning_modules.probing.table import left_out
from lightning_modules.problems import entry_of
from lightning_modules.training.execution import ALONE, Execution

__all__ = [
    "EXECUTORS",
    "Asked",
    "Event",
    "Executor",
    "Summary",
    "chosen",
    "execute",
    "execute_phases",
    "suited",
]

# To add an executor, write an `Executor` and list it here.
EXECUTORS: dict[str, type[Executor]] = {"local": Local, "inline": Inline, "slurm": Slurm, "ray": Ray}

Asked = str | Mapping[str, Any]  # a name of `EXECUTORS`, or a mapping with it as ``kind`` and options


def chosen(executor: Asked) -> Executor:
    """The executor that a user asks for.

    >>> chosen({"kind": "slurm", "partition": "gpu", "gpus": 1}).options.partition
    'gpu'

    Raises:
        ConfigError: For an unknown executor, or options that it does not have.
    """
    options = {"kind": executor} if isinstance(executor, str) else dict(executor)
    kind = options.pop("kind", "local")
    return entry_of(EXECUTORS, kind, "executor").configured(options)


def suited(executor: Asked, plan: Plan, execution: Execution = ALONE) -> Executor:
    """The executor that a user asks for, if it and the runs of a plan allow the execution.

    Raises:
        ConfigError: See `chosen`; for an execution that the executor, this machine or a run does not allow.
    """
    engine = chosen(executor)
    shared = {id(run.system): run.system for run in plan.pending if run.kind == "pretrain"}.values()
    wrong = [problem for system in shared for problem in execution.problems(system.model, system.training)]
    tuned = {id(run.system): run.system for run in plan.pending if run.kind == "finetune"}.values()
    wrong += [problem for system in tuned for problem in execution.compiling(system.model)]
    if wrong := dict.fromkeys([*engine.problems(execution), *wrong]):
        raise ConfigError(wrong)
    return engine


def execute(
    plan: Plan,
    records: Records,
    executor: Asked = "local",
    *,
    retries: int = 1,
    deadline: float | None = None,
    on_event: OnEvent = lambda event: None,
    execution: Execution = ALONE,
    until: float | None = None,
    again: Mapping[str, Any] | None = None,
) -> Summary:
    """Makes every pending run of a plan.

    Args:
        plan: From `plan.plan`, made with the same records.
        records: The store of finished and new records.
        executor: One of `EXECUTORS`, or a mapping with its name as ``kind`` and its options.
        retries: Further attempts at a run that failed or was killed.
        deadline: Seconds a run may take (not ``inline``); None for no limit.
        on_event: Receives what happens; `progress.display` makes one.
        execution: How pretrainings are executed.
        until: A moment of the monotonic clock. No run begins whose estimate ends later, unless it takes longer than all
            the time from now on. At that moment the active ones write their checkpoints and stop; `Summary.left` counts
            what is left. None for no limit.
        again: See `Launch`: so jobs that outlive this process go on to the runs that follow a search. None if they are
            to make the runs of this plan alone.

    Raises:
        ConfigError: For an unknown executor, an unknown option, an engine that cannot make the runs; for an execution
            that it, this machine or a run does not allow; for what this machine lacks; for a results folder that
            cannot be written, whose locks do not work, or in which a launcher of other code makes the same runs; for a
            missing corpus or task, with the ways to get it.
        KeyboardInterrupt: After Ctrl-C, once the active runs have written their checkpoints. Executing the plan again
            continues from there.
        SystemExit: After SIGTERM (143) or SIGHUP (129), likewise.
    """
    engine = suited(executor, plan, execution)
    check_trunks(plan, records)
    launch = Launch(plan, records, retries, deadline, on_event, execution, until, again)
    _check_writable(plan, records)
    if plan.pending:
        engine.check_machine()
        locks.check(records.folder / locks.FOLDER)
    with ending(), registered(records, [run.id for run in plan.pending], plan.grid.name, plan.scale):
        if plan.pending:
            engine.warm_up()
        notes = _prepare_text(plan, records)
        with contextlib.suppress(TimeUp), limited(until):
            engine.run(launch)
    summary = launch.finish()
    return replace(summary, notes=[*notes, *summary.notes])


def execute_phases(
    resolve: Callable[[], Plan],
    records: Records,
    executor: Asked = "local",
    *,
    retries: int = 1,
    watch: Callable[[Plan], AbstractContextManager[OnEvent]],
    execution: Execution = ALONE,
    until: float | None = None,
    again: Mapping[str, Any] | None = None,
) -> Summary:
    """Executes a plan and, as long as that completes or extends searches, the plan that follows from them.

    Each phase follows from the records, so an interrupted one continues where it stopped. A failure in one phase is
    retried in the next. At the end it computes what simple methods reach, where finished runs lack it.

    Args:
        resolve: Makes the plan from the current records.
        records: See `execute`.
        executor: See `execute`.
        retries: See `execute`.
        watch: Makes the receiver of the events of a phase.
        execution: See `execute`.
        until: See `execute`.
        again: See `execute`.

    Returns:
        All phases together. Searches that are unfinished, not for want of time, are among its problems.

    Raises:
        ConfigError: See `execute`.
        KeyboardInterrupt: See `execute`.
        SystemExit: See `execute`.
    """
    plan, whole = resolve(), Summary()
    while True:
        with watch(plan) as on_event:
            how = {"retries": retries, "execution": execution, "until": until, "again": again}
            done = execute(plan, records, executor, on_event=on_event, **how)
        whole = whole.then(done)
        before, plan = plan, resolve()
        is_further = bool({run.id for run in plan.runs} - {run.id for run in before.runs})
        if whole.problems or whole.left or not before.open or not is_further:
            break
    if plan.open and not whole.left:
        named = "; ".join(cell.label for cell in plan.open)
        whole.problems.append(f"not evaluated, search unfinished: {named}")
        whole.problems += missing(plan, records)
    if not whole.left:
        whole.notes += complete_finished(plan.runs, records)
    return whole


def _check_writable(plan: Plan, records: Records) -> None:
    """Tries the folders that pending runs are recorded in: after a training it would be too late."""
    folder, held = records.folder, records.folder / locks.FOLDER
    parts = dict.fromkeys(records.path(run.id).parent for run in plan.pending)
    needed = (*parts, folder / "environments", held, held / "launchers") if parts else ()
    for place in (folder / "records", *needed):
        check_inside(place, folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            if is_full(error) and place.is_dir():
                continue  # the runs report it
            text = f"cannot write results to {folder}: {place.name}: {error.strerror}. Mend it, or choose another."
            raise ConfigError([text]) from None
    for path in held.rglob("*.lock"):
        lock(path)  # refuses what is no plain file
        if not os.access(path, os.R_OK):
            text = f"another user has closed {path}. Let its owner give you permission (chmod -R g+rwX)"
            raise ConfigError([f"cannot write results to {folder}: {text} or choose another folder."])


def check_trunks(plan: Plan, records: Records) -> None:
    """Checks that the weights of all trunks are at hand if the scale trains none.

    Raises:
        ConfigError: If some are missing, with the scale that can do without.
    """
    other = scales.read(plan.scale).instead if plan.scale in scales.available() else ""
    lacking = [trunk for trunk in plan.trunks if records.weights(trunk.id) is None] if other and plan.pending else []
    if lacking:
        seeds = ", ".join(str(trunk.seed) for trunk in lacking)
        origin = f"the project's repository, in its results/{kept_weights.FOLDER}"
        raise ConfigError(
            [
                f"scale '{plan.scale}' continues trunks, and {records.folder} lacks the weights of seeds {seeds}",
                f"it trains no trunk: their weights come with {origin}",
                f"use --scale {other}, whose models start from random weights",
            ]
        )


def _prepare_text(plan: Plan, records: Records) -> list[str]:
    """Builds and opens the data of pending and later runs in this process, where the user sees what is missing.

    Returns:
        What is left out of the runs for want of text, a sentence each.
    """
    ahead = to_make(plan, records) if plan.pending else []
    read = {(run.kind, run.system, KINDS[run.kind].texts(run)): run for run in ahead}
    for run in read.values():
        kept_weights.lend_tokenizer(records.folder, run)
        KINDS[run.kind].open(run)
    for run in {(run.kind, run.task): run for run in ahead}.values():
        KINDS[run.kind].check(run.task)
    notes = []
    pretrained = (run.system for run in ahead if run.kind == "pretrain")
    for probes, data in dict.fromkeys((system.evaluation.probes, system.data) for system in pretrained):
        if names := left_out(probes, data):
            text = f"probes left out, for which the held-out text of {', '.join(data.corpora)} is too small"
            notes.append(f"{text}: {', '.join(names)}")
    return notes
