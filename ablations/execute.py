"""Executing a plan: every pending run is made once, whoever else works on the same results."""

import os
from collections.abc import Callable

from ablations.inline import Inline
from ablations.launch import Event, Executor, Launch, OnEvent, Summary
from ablations.local import Local
from ablations.plan import Plan
from ablations.store import Records
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.data import open_store
from lightning_modules.tasks.pins import checked

__all__ = ["EXECUTORS", "Event", "Executor", "Summary", "execute"]

# To add an executor, write an `Executor` and list it here.
EXECUTORS: dict[str, Callable[[], Executor]] = {"local": Local, "inline": Inline}


def execute(
    plan: Plan,
    records: Records,
    executor: str = "local",
    *,
    retries: int = 1,
    deadline: float | None = None,
    on_event: OnEvent = lambda event: None,
) -> Summary:
    """Makes every pending run of a plan.

    Args:
        plan: From `plan.plan`, made with the same records.
        records: Where records go, and where finished ones are found.
        executor: One of `EXECUTORS`.
        retries: Further attempts at a run that failed or was killed.
        deadline: Seconds a run may take (``local`` only); None for no limit.
        on_event: Told what happens; `progress.display` makes one.

    Raises:
        ConfigError: For an unknown executor; for a results folder that cannot be written; for a corpus that is not at
            hand, with the ways to get it.
        KeyboardInterrupt: After Ctrl-C, once the runs that went on have written their checkpoints. Executing the
            plan again goes on from there.
    """
    if executor not in EXECUTORS:
        raise ConfigError([f"there is no executor '{executor}'.{did_you_mean(executor, EXECUTORS)}"])
    launch = Launch(plan, records, retries, deadline, on_event)
    _check_writable(records)
    _prepare_text(plan)
    EXECUTORS[executor]().run(launch)
    return launch.finish()


def _check_writable(records: Records) -> None:
    folder = records.folder
    try:
        (folder / "records").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([f"results cannot be kept in {folder}: {error.strerror}"]) from None
    if not os.access(folder / "records", os.W_OK):
        raise ConfigError([f"results cannot be kept in {folder}: it may not be written to"])


def _prepare_text(plan: Plan) -> None:
    """Builds and opens the text that the pending runs read, here, where the user sees it and sees what is missing."""
    for data in dict.fromkeys(run.system.data for run in plan.pending):
        for split in ("train", "heldout"):
            open_store(data, split)
    for task in dict.fromkeys(run.task for run in plan.pending if run.task):
        for split in ("train", "dev"):
            checked(task, split)
