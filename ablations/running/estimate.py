"""What executing a plan takes, in sentences."""

from collections.abc import Iterable

from ablations.core import formatting
from ablations.core.store import Records
from ablations.planning import cost as costing
from ablations.planning import search_text
from ablations.planning.plan import Plan
from ablations.schema.run import Run


def cost(planned: Plan) -> str:
    """The cost of executing a plan, in a sentence."""
    if not planned.pending:
        return f"All {len(planned.runs)} runs are finished; there is nothing to train.{search_text.to_follow(planned)}"
    follow = f" and {len(planned.awaited)} that follow their searches" if planned.awaited else ""
    return (
        f"{len(planned.pending)} of {len(planned.runs)} runs to train{follow}, {planned.slots} at a time: "
        f"{formatting.quantity(planned.tokens)} tokens, {formatting.quantity(planned.flops)} FLOPs, about "
        f"{formatting.duration(planned.seconds)} ({planned.speed_source}), {planned.disk / 1e6:.0f} MB of disk."
        + search_text.to_follow(planned)
    )


def notes(planned: Plan, records: Records) -> list[str]:
    """What the sum leaves out: trunks that all cells share, and finished runs whose weights are on another machine."""
    return [*([_trunks(planned)] if planned.trunks else []), *_again(planned, records)]


def _trunks(planned: Plan) -> str:
    trunks = planned.trunks
    one = formatting.duration(_seconds(planned, trunks[:1]))
    hours = _seconds(planned, trunks) / 3600
    seeds = ", ".join(str(run.seed) for run in trunks)
    count = f"{len(trunks)} trunk{'s' * (len(trunks) > 1)} (seeds {seeds})"
    return (
        f"{count} that the cells continue: {one} each, {hours:.1f} hours of one slot, charged once and in no row above."
    )


def _again(planned: Plan, records: Records) -> list[str]:
    """Records travel with the repository, weights do not: a parent without weights here is trained again."""
    from lightning_modules.training.weights import WEIGHTS

    lacking: dict[str, Run] = {}
    for run in planned.pending:
        while (run := run.parent) and planned.states.get(run.id) == "done":
            if (records.work_folder(run.id) / WEIGHTS).exists():
                break
            lacking[run.id] = run
    if not lacking:
        return []
    runs, have = ("run", "has") if len(lacking) == 1 else ("runs", "have")
    return [
        f"{len(lacking)} finished {runs} that others start from {have} no weights on this machine "
        f"({records.work_folder(next(iter(lacking))).parent}) and will be trained again: about "
        f"{formatting.duration(_seconds(planned, lacking.values()))} more."
    ]


def _seconds(planned: Plan, runs: Iterable[Run]) -> float:
    return sum(costing.seconds([planned.costs[run.id]], planned.speed) for run in runs)
