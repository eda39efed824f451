"""What each grid costs at a scale, and what its first look can see: one table over all grids, made from plans."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablations.claims.power import Prospect, amount, prospects
from ablations.core.counted import counted
from ablations.core.formatting import Entry, Sheet, fixed, quantity, split_unit
from ablations.core.store import Snapshot
from ablations.measurements.measurements import Measurements
from ablations.planning import cost as costing
from ablations.planning import grids, recorded
from ablations.planning.plan import plan
from ablations.planning.scales import lineage
from ablations.schema.grid import Grid
from ablations.schema.record import Record
from lightning_modules.config import ConfigError

SCALES = ("laptop", "gpu")


@dataclass(frozen=True)
class Row:
    """A grid at a scale.

    Attributes:
        grid, scale: Their names.
        runs: The number of runs of the first look, searches included, without the steps beyond their ends; None if the
            grid is not available at the scale.
        searches: How many of them are trials of searches.
        done: How many have ended.
        hours: Core-hours of all of them, done or not, without trunks.
        trunk_hours: Those of the trunks that they continue, which other grids share.
        flops: Of the runs and trunks.
        sees: For each unit the smallest difference that a claim sees at the first look, with 80 % power.
        claims: The number of claims.
        closed: How many of them the scale cannot test.
        missing: Why the grid, or a claim, is not available here; empty if nothing is missing.
    """

    grid: str
    scale: str
    runs: int | None = None
    searches: int = 0
    done: int = 0
    hours: float = 0.0
    trunk_hours: float = 0.0
    flops: float = 0.0
    sees: tuple[str, ...] = ()
    claims: int = 0
    closed: int = 0
    missing: str = ""


def rows(snapshot: Snapshot, scales: Sequence[str] = SCALES) -> list[Row]:
    """All grids by name, at each of the scales; the noise is that of finished runs, as `power.prospects` takes it."""
    records = [entry for _, entry in snapshot.survey() if isinstance(entry, Record)]
    known, found = recorded.systems(snapshot), list[Row]()
    for name in counted(grids.available(), "planning grids"):
        grid = grids.read(name)
        pilots = _pilots(grid, snapshot, known)
        found += [_row(grid, scale, snapshot, pilots, records) for scale in scales]
    return found


def _pilots(grid: Grid, snapshot: Snapshot, known: frozenset[str] | None) -> dict[str, Measurements]:
    measured = {}
    for scale in grid.scales:
        with contextlib.suppress(ConfigError):  # its data are neither pinned nor available
            if recorded.may_have(grid, scale, known):
                found = plan(grid, scale, records=snapshot, look=1)
                measured[scale] = Measurements(found.grid, found.cells, snapshot)
    return measured


def _row(
    grid: Grid, scale: str, snapshot: Snapshot, pilots: Mapping[str, Measurements], records: Sequence[Record]
) -> Row:
    line = [file.name for file in lineage(scale)]
    if not any(name in grid.scales for name in line):
        return Row(grid.name, scale, missing=f"it has the scales {', '.join(grid.scales)} alone")
    try:
        found = plan(grid, scale, records=snapshot, look=1)
    except ConfigError as error:
        return Row(grid.name, scale, missing="; ".join(problem.message for problem in error.problems))
    speed, _ = costing.speed(snapshot.found, [cell.system for cell in found.cells], device="cpu")
    trunks = costing.costs(found.trunks)
    every = {run.id: found.costs[run.id] for run in (*found.runs, *found.awaited)}
    rest = [cost for run_id, cost in every.items() if run_id not in trunks]  # a trunk may be a cell of the grid too
    here = {scale: Measurements(found.grid, found.cells, snapshot)}
    told = [one for one in prospects(found.grid, scale, {**here, **pilots}, records) if one.look == 1]
    told = [one for one in told if not one.claim.is_withdrawn]
    closed = {one.claim.id: one.untestable for one in told if one.untestable}
    return Row(
        grid.name,
        scale,
        runs=len(every),
        searches=len({run.id for cell in found.cells for trial in cell.search for run in trial.work}),
        done=len(found.runs) - len(found.pending),
        hours=sum(costing.seconds([cost], speed) for cost in rest) / 3600,
        trunk_hours=sum(costing.seconds([cost], speed) for cost in trunks.values()) / 3600,
        flops=sum(cost.flops for cost in (*rest, *trunks.values())),
        sees=_sees(grid, scale, told),
        claims=len(told),
        closed=len(closed),
        missing="; ".join(dict.fromkeys(closed.values())),
    )


def _sees(grid: Grid, scale: str, told: Sequence[Prospect]) -> tuple[str, ...]:
    units = {metric.name: split_unit(metric.label or metric.name)[1] for metric in grid.metrics}
    smallest: dict[str, tuple[float, Prospect]] = {}
    for one in told:
        unit = "times" if one.claim.relation == "ratio" else units.get(one.claim.metric, "") or one.claim.metric
        if one.visible is not None and (unit not in smallest or one.visible < smallest[unit][0]):
            smallest[unit] = one.visible, one
    return tuple(f"{amount(seen, unit)} ({one.claim.id}{_noise(one, scale)})" for unit, (seen, one) in smallest.items())


def _noise(one: Prospect, scale: str) -> str:
    """Where the noise comes from, unless from runs of this scale."""
    if one.is_assumed:
        return ", noise assumed"
    return f", noise of {one.pilot}" if one.pilot and one.pilot != scale else ", noise of like size" * bool(one.like)


def sheet(found: Sequence[Row]) -> Sheet:
    """The table to read."""
    return Sheet(
        ["grid", "scale", "runs", "of which searches", "core-hours", "trunks' core-hours", "FLOPs",
         "the first look sees", "not available"],
        [_entries(one) for one in found],
        left=2,
        notes=[
            "Runs and core-hours are those of the first look, what has run included. Searches may add a few trials "
            "beyond their ends. Trunks are charged once and shared by grids. Core-hours are estimates, at the speed of "
            "finished runs of like size on one core.",
            "The first look sees: of each unit the smallest true difference that a claim shows with 80 % power, and "
            "that claim. The noise is that of finished runs at this scale unless it says which. Whether models of "
            "`gpu` differ less from seed to seed is not known: none is recorded.",
        ],
    )  # fmt: skip


def _entries(one: Row) -> list[Entry]:
    if one.runs is None:
        return [one.grid, one.scale, *[""] * 6, f"the grid: {one.missing}"]
    closed = f"{one.closed} of {one.claims} claims: {one.missing}" if one.closed else ""
    return [
        one.grid,
        one.scale,
        f"{one.runs} ({one.done} done)" if one.done else str(one.runs),
        str(one.searches) if one.searches else "",
        fixed(one.hours, 1 if one.hours < 100 else 0),
        fixed(one.trunk_hours, 1 if one.trunk_hours < 100 else 0) if one.trunk_hours else "",
        quantity(one.flops),
        "; ".join(one.sees) or ("no claim" if not one.claims else "nothing" if one.closed < one.claims else ""),
        closed,
    ]
