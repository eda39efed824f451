"""What executing a plan takes, in sentences."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ablations.core import formatting
from ablations.core.store import Records
from ablations.planning import cost as costing
from ablations.planning import search_text
from ablations.planning.plan import Plan
from ablations.schema.cell import Cell
from ablations.schema.run import Run
from lightning_modules import checkpoints
from lightning_modules.footprint import footprints
from lightning_modules.parents import replaced
from lightning_modules.system import System
from lightning_modules.training.execution import Execution

_LARGE = 80e9  # bytes of the largest device that many have


def cost(planned: Plan, at_once: int | str | None = None) -> str:
    """The cost of executing a plan, in a sentence.

    Args:
        planned: The plan.
        at_once: The number of runs at a time, by default the slots of this machine. Or words, where only a cluster
            knows the number: then the hours are those of one run after another.
    """
    if not planned.pending:
        return f"All {len(planned.runs)} runs are finished. There is nothing to train.{search_text.to_follow(planned)}"
    follow = f" and {len(planned.awaited)} that follow their searches" if planned.awaited else ""
    planned = replace(planned, slots=1 if isinstance(at_once, str) else at_once or planned.slots)
    together = at_once if isinstance(at_once, str) else f"{planned.slots} at a time"
    added_up = " of one run after another" * isinstance(at_once, str)
    return (
        f"{len(planned.pending)} of {len(planned.runs)} runs to train{follow}, {together}: "
        f"{formatting.quantity(planned.tokens)} tokens, {formatting.quantity(planned.flops)} FLOPs, about "
        f"{formatting.duration(planned.seconds)}{added_up} ({planned.speed_source}), "
        f"{planned.disk / 1e6:.0f} MB of disk." + search_text.to_follow(planned)
    )


def within(planned: Plan, seconds: float) -> str:
    """What executing a plan makes in a time, in a sentence: each slot takes the next run that fits, in plan order."""
    free, parts = [0.0] * planned.slots, 0
    done = {run_id for run_id, state in planned.states.items() if state == "done"}
    before = len(done)
    for run in planned.pending:
        slot, needed = free.index(min(free)), _seconds(planned, [run])
        if not done.issuperset(run.parents):
            continue
        if needed > seconds and free[slot] < seconds:
            free[slot], parts = seconds, parts + 1
        elif free[slot] + needed <= seconds:
            free[slot] += needed
            done.add(run.id)
    begun = f", and {parts} longer than that are made in part" * bool(parts)
    return f"In {formatting.duration(seconds)}: {len(done) - before} of {len(planned.pending)} runs end{begun}."


def memory(cells: Iterable[Cell], execution: Execution) -> list[float]:
    """The bytes that a device needs for the training of each cell. They are NaN where they cannot be computed."""
    found = footprints(map(_trained, cells), execution)
    return [math.nan if one is None else float(one.total) for one in found]


def _trained(cell: Cell) -> System:
    """The system as it is trained: a released checkpoint in the largest batches of its fine-tunings."""
    system, tunings = cell.system, [run.finetuning for run in (*cell.children, *cell.awaited) if run.finetuning]
    if not system.checkpoint:
        return system
    largest = max(tunings, key=lambda tuning: tuning.batch_size * tuning.max_length)
    batches = replaced(system, "training.batch_size", largest.batch_size)
    return replaced(batches, "format.sequence_length", largest.max_length)


def gigabytes(size: float) -> str:
    """Bytes of memory, as people say them."""
    return "not known" if math.isnan(size) else f"{formatting.quantity(size)}B"


def fits(needed: Mapping[str, float], execution: Execution) -> list[str]:
    """Which cells need more memory than a device has, by the bytes of each, and what would spare some."""
    large = [f"{name} ({gigabytes(size)})" for name, size in needed.items() if size > _LARGE]
    if not large:
        return []
    ways = ["training.micro_batch_size", "--devices"]
    ways += [] if execution.strategy == "fsdp" else ["--strategy fsdp"]
    ways += [] if execution.activation_checkpointing else ["--activation-checkpointing"]
    return [
        f"More than {gigabytes(_LARGE)} of memory per device: {formatting.markdown_text('; '.join(large))}. Less is "
        f"needed with {' or '.join(ways)}."
    ]


def notes(planned: Plan, records: Records) -> list[str]:
    """What the sum leaves out: shared trunks, runs whose weights are elsewhere, checkpoints not fetched yet."""
    names = dict.fromkeys(run.system.checkpoint for run in planned.pending if run.system.checkpoint)
    absent = [f"{name}: {text}" for name in names if (text := checkpoints.lacking(name))]
    return [*([_trunks(planned)] if planned.trunks else []), *_again(planned, records), *absent]


def _trunks(planned: Plan) -> str:
    trunks = [run for run in planned.trunks if planned.states.get(run.id) != "done"]
    if not trunks:
        return "The trunks that the cells continue are finished."
    each = dict.fromkeys(formatting.duration(_seconds(planned, [run])) for run in trunks)
    hours = _seconds(planned, trunks) / 3600
    seeds = ", ".join(dict.fromkeys(str(run.seed) for run in trunks))
    count = f"{len(trunks)} trunk{'s' * (len(trunks) > 1)} (seeds {seeds})"
    took = f"{' or '.join(each)} each, {hours:.1f} hours of one slot"
    return f"{count} that the cells continue: {took}, charged once and in no row above."


def _again(planned: Plan, records: Records) -> list[str]:
    """Records travel with the repository, weights do not: a parent without weights here is trained again."""
    again = retrained(planned, records)
    if not again:
        return []
    place = formatting.markdown_code(str(records.work_folder(again[0].id).parent))
    runs, have = ("run", "has") if len(again) == 1 else ("runs", "have")
    return [
        f"{len(again)} finished {runs} that others start from {have} no weights on this machine "
        f"({place}) and will be trained again: about "
        f"{formatting.duration(_seconds(planned, again))} more."
    ]


def retrained(planned: Plan, records: Records) -> list[Run]:
    """The finished runs that executing a plan trains again for their weights."""
    done = {run_id for run_id, state in planned.states.items() if state == "done"}
    found = (parent for run in planned.pending if done.issuperset(run.parents) for parent in records.lacking(run))
    return list({parent.id: parent for parent in found}.values())


def ahead(planned: Plan, records: Records) -> dict[str, float]:
    """Run id -> seconds of one slot, of all that executing a plan trains, also again for its weights."""
    runs = (*planned.pending, *planned.awaited, *retrained(planned, records))
    return {run.id: _seconds(planned, [run]) for run in runs}


def _seconds(planned: Plan, runs: Iterable[Run]) -> float:
    return sum(costing.seconds([planned.costs[run.id]], planned.speed) for run in runs)
