"""All that the runs of a plan read, made ahead: with it in the cache a machine needs no text and no data set."""

from pathlib import Path
from typing import Any

from ablations.core import bars
from ablations.core.counted import counted
from ablations.core.disk import kept_weights
from ablations.core.store import Records
from ablations.planning.plan import Plan
from ablations.schema.kinds import KINDS
from ablations.schema.run import Run
from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.data.pins import keep_by_name
from lightning_modules.places import cache
from lightning_modules.tasks import task_named
from lightning_modules.zero_shot.table import zero_shot_named

_NAMES = {  # part of the cache -> what people call it, where its folder does not say
    "fingerprints": "fingerprints of texts and tasks",
    "sources": "files of tasks",
    "stores": "token stores",
    "probes": "examples of probes",
    "pieces": "encoded tasks",
}


def prepared(plan: Plan, records: Records) -> tuple[Path, ...]:
    """Makes all that the pending and later runs of a plan read, and the bars of their held-out losses.

    What follows from weights is left to the runs: features of frozen encoders, and probes of initial weights.

    Args:
        plan: The plan. Where a search is open its later runs represent those that it will choose.
        records: The store, which gets the bars.

    Returns:
        The files of the cache that these runs read, sorted, with their digests.

    Raises:
        ConfigError: When a text or a data set is missing.
        CacheError: When the cache cannot be written.
    """
    ahead = to_make(plan, records)
    distinct = {_reads(run): run for run in ahead}
    with cached.noting() as read:
        for name in {name: name for run in (*plan.runs, *ahead) for name in run.system.corpora}:
            keep_by_name(name)
        for kind, task in {(run.kind, run.task): run for run in (*plan.runs, *ahead) if run.task}:
            if origin := (task_named if kind == "finetune" else zero_shot_named)(task).origin:
                read.update(origin.copy())
        for run in counted(list(distinct.values()), "texts of runs"):
            kept_weights.lend_tokenizer(records.folder, run)
            KINDS[run.kind].prepare(run)
            if run.kind == "pretrain":
                bars.complete(run, records)
    return tuple(cached.with_digests(read))


def sizes(files: tuple[Path, ...]) -> list[dict[str, Any]]:
    """How many files and bytes each part of the cache has among some files, the largest first, and all of them."""
    found: dict[str, list[int]] = {}
    for path in files:
        part = path.relative_to(cache()).parts[0]
        found.setdefault(_NAMES.get(part, part.replace("-", " ")), []).append(path.stat().st_size)
    rows = [{"part": part, "files": len(bytes), "bytes": sum(bytes)} for part, bytes in found.items()]
    total = {"part": "all", "files": len(files), "bytes": sum(row["bytes"] for row in rows)}
    return [*sorted(rows, key=lambda row: -row["bytes"]), total]


def to_make(plan: Plan, records: Records) -> list[Run]:
    """The runs that are to be made, and those whose weights they start from and that have to be trained again."""
    first = (*plan.pending, *plan.awaited)
    return list({run.id: run for one in first for run in (one, *records.lacking(one))}.values())


def _reads(run: Run) -> str:
    """What identifies all that a run reads; settings of network and optimiser are no part of it."""
    system, settings = run.system, run.finetuning or run.measuring
    read: list[Any] = [part.to_dict() for part in (system.data, system.format, system.evaluation)]
    if settings is None:
        return identity([run.kind, *read, system.objectives.to_dict()])
    return identity([run.kind, *read, run.task, settings.to_dict(), run.seed if run.finetuning else None])
