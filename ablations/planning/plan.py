"""The plan of a grid at a scale: its cells, its distinct runs, their states and their cost."""

import gc
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack

import pandas as pd

from ablations.claims import judging
from ablations.claims.contrasts import official
from ablations.core.counted import counted
from ablations.core.machine import slots
from ablations.core.store import Damage, Records, Snapshot, name_damaged
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import as_printed, side_of
from ablations.measurements.trunks import shared_by
from ablations.planning import cells as grid_cells
from ablations.planning import cost as costing
from ablations.planning import filling, scales
from ablations.planning.afterwards import measured_at, tasks_at
from ablations.planning.cells import CHECKPOINT, Layout, Values, agrees, label
from ablations.planning.cost import ASSUMED_SPEED, Cost
from ablations.planning.resolve import Resolver
from ablations.planning.search import search_at, tasks_behind
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import AFTERWARDS, FIRST_SEARCH_SEED, Grid
from ablations.schema.record import Outcome, Record
from ablations.schema.run import Run
from ablations.schema.scale import Scale
from lightning_modules import speed
from lightning_modules.config import ConfigError, Problem, canonical, did_you_mean, identity
from lightning_modules.system import System
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT

State = Outcome | Literal["stale", "newer", "missing", "orphaned"]


SETTLED: tuple[State, ...] = ("done", "diverged", "invalid", "newer", "orphaned")  # a plan does not make these runs


_BARREN = ("diverged", "invalid", "orphaned")  # states of runs without weights for their children


def run_states(runs: Sequence[Run], surveyed: Mapping[str, Record | Damage]) -> dict[str, State]:
    """Run id -> state; ``runs`` lists parents before children."""
    sound = {run_id: record for run_id, record in surveyed.items() if isinstance(record, Record)}
    written = {json.dumps(record.config.get("numerics"), sort_keys=True) for record in sound.values()}
    generations = [read for text in sorted(written) if isinstance(read := json.loads(text), dict)]
    states: dict[str, State] = {}
    for run in runs:
        entry = surveyed.get(run.id)
        if isinstance(entry, Record):
            states[run.id] = entry.outcome
        elif isinstance(entry, Damage) and entry.flaw == "newer":
            states[run.id] = "newer"
        else:
            states[run.id] = "stale" if _elsewhen(run, generations, sound) else "missing"
            if any(states[parent] in _BARREN for parent in run.parents):
                states[run.id] = "orphaned"  # a parent will never have weights
    return states


def _elsewhen(run: Run, generations: list[dict[str, int]], sound: Mapping[str, Record]) -> bool:
    """Whether code of another numerics generation finished the same run."""
    kin = (n for n in generations if n.keys() == run.numerics.keys() and n != run.numerics)
    others = (run.of_generation(numerics).id for numerics in kin)
    return any(run_id in sound and sound[run_id].final for run_id in others)


def ordered(cells: Sequence[Cell]) -> tuple[Run, ...]:
    """The distinct runs of cells: searches first, then seed by seed, each after its parents.

    Cells with an unfinished search have no runs of their own yet.
    """
    distinct: dict[str, Run] = {}
    searches = [trial for cell in cells for trial in cell.search]
    for trials in (searches, [cell for cell in cells if cell.runs]):
        by_seed = [{run.seed: run for run in trial.runs} for trial in trials]  # some cells have more seeds than others
        for seed in sorted(set().union(*by_seed)):
            for runs in by_seed:
                if seed in runs:
                    _put(runs[seed], distinct)
            for trial in trials:
                for run in trial.children:
                    if run.seed == seed:
                        _put(run, distinct)
    return tuple(distinct.values())


def with_parents(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Distinct runs in their order, each after its parents, of whatever task these are."""
    distinct: dict[str, Run] = {}
    for run in runs:
        _put(run, distinct)
    return tuple(distinct.values())


def _put(run: Run, distinct: dict[str, Run]) -> None:
    if run.id not in distinct:
        for parent in run.by_role.values():
            _put(parent, distinct)
        distinct[run.id] = run


OF_TASKS = "tasks"  # the key of a slice that names no axis
_MOST_RUNS = 50_000  # half a minute of planning


_PRECISION = "training.precision"
_RECORD_BYTES = 8_000


_WEIGHT_BYTES = 4  # per parameter of the weights that a run leaves


_CHECKPOINT_BYTES = 12  # per parameter of a checkpoint, which holds two moments as well
_SAMPLED = 8  # cells whose size represents all, where there are many


@dataclass(frozen=True)
class Plan:
    """A grid at a scale, resolved.

    Attributes:
        grid: The grid.
        scale: The name of the scale.
        cells: Its cells, the baseline first.
        runs: The distinct runs in the order of execution: searches, then all cells of seed 0, of seed 1, and so on, so
            that the finished runs are always a smaller grid. Cells with an unfinished search have no other runs.
        excluded: Combinations that are left out, with the reasons.
        baseline: The cell that the others are compared with; None if a filter leaves it out.
        states: Run id -> its state in the store.
        overrides: Axes, knobs, seeds and filters that differ from the grid and the scale; empty for the plain scale.
        speed: FLOP per second of one slot, for estimated times.
        speed_source: The source of the speed, in words.
        slots: Number of runs at the same time.
        look: 1 for the seeds of the first look; 2 if cells with open claims have those of the second.
    """

    grid: Grid
    scale: str
    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]
    excluded: tuple[tuple[Values, str], ...]
    baseline: Cell | None
    states: Mapping[str, State]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    speed: float = ASSUMED_SPEED["cpu"]
    speed_source: str = ""
    slots: int = 1
    look: int = 1

    @property
    def folder_name(self) -> str:
        """The folder of tables and figures: the scale, then six digits if axes, seeds or cells differ."""
        return f"{self.scale}-{identity(self.overrides)[:6]}" if self.overrides else self.scale

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """Run id -> cost, of all runs, of those that follow searches, and of the trunks of both."""
        with _no_collection():
            return costing.costs((*self.runs, *self.awaited, *self.trunks))

    @property
    def pending(self) -> tuple[Run, ...]:
        """The runs that executing the plan would make."""
        return tuple(run for run in self.runs if self.states[run.id] not in SETTLED)

    @property
    def counts(self) -> dict[str, int]:
        """State -> number of runs."""
        return dict(Counter(self.states[run.id] for run in self.runs))

    @property
    def parameters(self) -> tuple[int, int]:
        """The parameters of the smallest and of the largest cell."""
        counts = [cost.parameters for cost in self.costs.values()]
        return min(counts), max(counts)

    @property
    def open(self) -> tuple[Cell, ...]:
        """The cells with an unfinished search: the settings and ids of their evaluations are not known yet."""
        return tuple(cell for cell in self.cells if cell.awaited)

    @property
    def awaited(self) -> tuple[Run, ...]:
        """The evaluation runs that follow open searches, with their first combinations: only for the estimate."""
        return tuple({run.id: run for cell in self.open for run in cell.awaited}.values())

    @property
    def is_finished(self) -> bool:
        """Whether every run is done; runs of a search may have diverged."""
        first = FIRST_SEARCH_SEED if self.grid.search else math.inf
        is_done = all(self.states[run.id] == "done" or run.seed >= first for run in self.runs)
        return is_done and not self.pending and not self.open

    @property
    def claims(self) -> list[str]:
        """The ids of the grid's claims all of whose sides it makes, with what they measure."""
        tasks = {run.task for run in (*self.runs, *self.awaited)}

        def is_made(claim: Claim) -> bool:
            task = claim.metric.partition(".")[0]
            measured = task in tasks or not (task in TASKS or task in ZERO_SHOT)
            return measured and all(side_of(self.grid, self.cells, side) for side in claim.asked)

        return [claim.id for claim in self.grid.claims if is_made(official(claim, self.cells))]

    @property
    def tokens(self) -> int:
        """The tokens of pending runs and of those that follow searches."""
        return sum(self.costs[run.id].tokens for run in (*self.pending, *self.awaited))

    @property
    def flops(self) -> float:
        """The FLOPs of pending runs and of those that follow searches."""
        return sum(self.costs[run.id].flops for run in (*self.pending, *self.awaited))

    @property
    def seconds(self) -> float:
        """Estimated wall time, with all slots, of pending runs and then of those that follow searches."""
        phases = [[self.costs[run.id] for run in runs] for runs in (self.pending, self.awaited)]
        trained = sum(costing.seconds(phase, self.speed, self.slots) for phase in phases)
        return trained and costing.LAUNCH_START + trained

    @property
    def disk(self) -> int:
        """Bytes that these runs add: records, weights, and checkpoints of simultaneous runs."""
        weights = [self.costs[run.id].parameters for run in (*self.pending, *self.awaited)]
        moving = sum(sorted(weights)[-self.slots :])
        return len(weights) * _RECORD_BYTES + sum(weights) * _WEIGHT_BYTES + moving * _CHECKPOINT_BYTES

    def sliced(self, slice: Mapping[str, Any]) -> "Plan":
        """The part of the plan that makes some cells, and does with their models what some tasks ask.

        Args:
            slice: Axis -> value or list of values, as claims name them, and under ``tasks`` a list of tasks; everything
                of what it does not name. Searches of its cells are whole.

        Raises:
            ConfigError: For an axis, a value or a task that the plan does not have, with the nearest.
        """
        if not slice:
            return self
        axes, tasks = {path: asked for path, asked in slice.items() if path != OF_TASKS}, slice.get(OF_TASKS)
        rows = [as_printed(cell) for cell in self.cells]
        wrong = [*_absent(axes, rows, self.grid), *_unasked(tasks, self.cells)]
        kept = [cell for cell, row in zip(self.cells, rows, strict=True) if agrees(row, axes)]
        if not kept and not wrong:
            wrong = [Problem("", f"no cell has all of {label(axes)}")]
        if wrong:
            raise ConfigError(wrong)
        asked = [
            run
            for run in ordered(kept)
            if tasks is None or run.task in ("", *tasks) or run.seed >= FIRST_SEARCH_SEED  # searches are whole
        ]
        return replace(self, cells=tuple(kept), runs=with_parents(asked))

    def label(self, run_id: str) -> str:
        """``rate=0.15 seed 0``: the first cell with this run, and the seed."""
        return self._labels[run_id]

    @cached_property
    def _labels(self) -> dict[str, str]:
        named: dict[str, str] = {}
        for cell in self.cells:
            for run in cell.runs:
                named.setdefault(run.id, run.system.checkpoint or f"{cell.label} seed {run.seed}")
            for run in cell.children:
                named.setdefault(run.id, f"{cell.label} seed {run.seed} on {run.task}")
            for trial in cell.search:
                for run in trial.work:
                    named.setdefault(run.id, f"{trial.label} search {run.seed}{f' on {run.task}' * bool(run.task)}")
        for run in self.trunks:
            named.setdefault(run.id, f"trunk of {run.system.training.steps:,} steps, seed {run.seed}")
        for run in self.runs:  # parents that belong to no cell
            named.setdefault(run.id, f"{run.system.model.num_layers} layers to start from, seed {run.seed}")
        return named

    @cached_property
    def trunks(self) -> tuple[Run, ...]:
        """The pretrainings of no cell that those of the plan continue or are taught by; of a chain all links."""
        own = {run.id for cell in self.cells for run in cell.work}
        pretrained = (run for run in (*self.runs, *self.awaited) if run.kind == "pretrain")
        found = {trunk.id: trunk for run in pretrained for trunk in reversed(shared_by(run))}
        return tuple(run for run_id, run in found.items() if run_id not in own)

    def table(self) -> pd.DataFrame:
        """One row per cell: its values, size and cost, and the states of its runs."""
        rows = []
        for cell in counted(self.cells, "counting FLOPs"):
            cost = self._of_seed(cell)
            states = Counter(self.states[run_id] for run_id in {run.id: run for run in cell.work})
            states |= Counter({"to follow": len(cell.awaited)} if cell.awaited else {})
            row: dict[str, Any] = {"cell": cell.label, **cell.values}
            row |= {"parameters": cost.parameters, "embeddings": cost.embeddings}
            row |= {"steps": cost.steps, "tokens": cost.tokens, "flops": cost.flops}
            steps, tokens = max(1, cost.steps), max(1, cost.tokens)  # a removal of heads has none
            row |= {"flops a token": cost.flops / tokens, "flops a step": cost.flops / steps}
            system = cell.planned[0].system
            row |= {"predictions a step": system.predictions_per_step()}
            row |= {"predictions a token": system.predictions_per_token()}
            row |= {"seeds": len(cell.planned), "seconds a run": costing.seconds([cost], self.speed)}
            row["tasks"] = ", ".join(cell.tasks)
            row["state"] = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            rows.append(row | self._searched(cell))
        return pd.DataFrame(rows)

    def _of_seed(self, cell: Cell) -> Cost:
        """The cost of a seed of a cell: of its pretraining, or of what is done with a released checkpoint."""
        first = cell.planned[0]
        found = self.costs[first.id]
        if not first.system.checkpoint:
            return found
        done = [self.costs[run.id] for run in (*cell.children, *cell.awaited) if run.seed == first.seed and run.task]
        sums = (sum(getattr(cost, name) for cost in done) for name in ("steps", "tokens", "flops"))
        return Cost(found.parameters, *sums, embeddings=found.embeddings)

    def _searched(self, cell: Cell) -> dict[str, Any]:
        """The cost, state and choice of a cell's search; empty for cells without one."""
        if not cell.search:
            return {}
        runs = {run.id: self.costs[run.id] for trial in cell.search for run in trial.work}
        states = Counter(self.states[run_id] for run_id in runs)
        row: dict[str, Any] = {"search runs": len(runs)}
        row |= {f"search {name}": sum(getattr(cost, name) for cost in runs.values()) for name in ("tokens", "flops")}
        row["search state"] = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return row | {"chosen": label(cell.chosen) if cell.chosen else "open"}


class FirstLookOpen(ConfigError):
    """A second look is requested before the first is finished."""


class Request(TypedDict, total=False):
    """What a plan may override.

    Attributes:
        axes: Axis -> values instead of those of the grid and the scale.
        set: Knob -> its value in every cell; not an axis. The knob `_PRECISION` may be ``auto``.
        seeds: Number of seeds, judged once; by default those of the grid's looks.
        filters: Axis -> value or list of values; only cells that agree with all of them.
        look: 1 for the first look; 2 to add the further seeds of cells whose claims are open after it. By default 2 if
            such a run has a record, else 1.
    """

    axes: Mapping[str, Sequence[Any]] | None
    set: Mapping[str, Any] | None
    seeds: int | None
    filters: Mapping[str, Any] | None
    look: int | None


def plan(grid: Grid, scale: str, *, records: Records | Snapshot | None = None, **request: Unpack[Request]) -> Plan:
    """Resolves a grid at a scale without reading a corpus or building a network.

    Args:
        grid: From `grids.read`.
        scale: One of the grid's scales, or one with a scale file.
        records: Finished runs; None means that every run is missing.
        request: What is overridden; see `Request`.

    Raises:
        ConfigError: For unknown scales, axes or values, each with the nearest valid spelling; for too many runs; for a
            second look before the first is finished.
    """
    if (request.get("set") or {}).get(_PRECISION) == "auto":
        request = _with_precision(grid, scale, records, request)
    grid = filling.at(grid, scale)
    seeds, filters, knobs = request.get("seeds"), request.get("filters"), request.get("set") or {}
    _check_arguments(grid, scale, seeds, filters)
    seeds = None if seeds == grid.looks_at(scale)[0] else seeds
    layout = grid_cells.layout(grid, scale, request.get("axes"))
    kept = _kept(layout, scale, filters or {})
    grid = _with(grid, scale, knobs, kept)
    _check_size(grid, scale, len(kept), seeds)
    surveyed = dict(records.survey()) if records else {}
    with _no_collection():
        sound = {run_id: record for run_id, record in surveyed.items() if isinstance(record, Record)}
        resolver = Resolver(grid, scale, layout.baseline, seeds, sound)
        cells, reached = _at_look(resolver, kept, request.get("look"), sound)
        runs = ordered(cells)
    name_damaged(surveyed.get(run.id) for run in runs)
    pace, source = costing.speed(surveyed, [cell.system for cell in cells[:: max(1, len(cells) // _SAMPLED)]])
    return Plan(
        grid=grid,
        scale=scale,
        cells=cells,
        runs=runs,
        excluded=tuple(layout.excluded),
        baseline=next((cell for cell in cells if agrees(cell.values, layout.baseline)), None),
        states=run_states(runs, surveyed),
        overrides=_overrides(grid, scale, layout, seeds, filters) | ({"set": dict(knobs)} if knobs else {}),
        speed=pace,
        speed_source=source,
        slots=slots(),
        look=reached,
    )


def _with_precision(grid: Grid, scale: str, records: Records | Snapshot | None, request: Request) -> Request:
    """The request with a precision in place of ``auto``, one for all cells."""

    def named(precision: str) -> Request:
        return {**request, "set": {**(request.get("set") or {}), _PRECISION: precision}}

    def begun(precision: str) -> int:
        states = plan(grid, scale, records=records, **{**named(precision), "look": 1}).counts
        return sum(count for state, count in states.items() if state not in ("missing", "orphaned"))

    faster = speed.precision()
    return named(max((faster, "fp32", "bf16"), key=begun))  # of equals the first


def _at_look(
    resolver: Resolver, kept: Sequence[Values], look: int | None, records: Mapping[str, Record]
) -> tuple[tuple[Cell, ...], int]:
    """The cells at a look, and its number: the further seeds belong to cells whose claims are open after the first."""
    cells, count = resolver.cells(kept), len(resolver.looks)
    if look is not None and not 1 <= look <= count:
        several = f"looks 1 to {count}" if count > 1 else "one look. Give it a second with 'looks: [4, 8]'."
        raise ConfigError([Problem("look", f"'{resolver.grid.name}' has {several} at scale '{resolver.scale}'")])
    if count == 1 or look == 1:
        return cells, 1
    first = judging.first_look(Measurements(resolver.grid, cells, records))
    if look == count and first.missing:
        text = f"the first look is not finished ({first.missing} of its runs have not ended): run it first"
        raise FirstLookOpen([Problem("look", text)])
    if first.missing or not first.open:
        return cells, look or 1
    further = resolver.cells(kept, first.open)
    known = {run.id for cell in cells for run in cell.work}
    is_begun = any(run.id in records for cell in further for run in cell.work if run.id not in known)
    return (further, count) if look == count or is_begun else (cells, 1)


def _kept(layout: Layout, scale: str, filters: Mapping[str, Any]) -> list[Values]:
    """The combinations that agree with all filters."""
    kept = [values for values in layout.kept if agrees(values, filters)]
    if not kept:
        reason = f"no cell has {label(dict(filters))}" if filters else "every combination is excluded"
        listed = "; ".join(f"{path}: {', '.join(map(str, options))}" for path, options in layout.axes.items())
        raise ConfigError([f"{reason}. The axes at scale '{scale}' are {listed}."])
    return kept


def _absent(axes: Mapping[str, Any], rows: Sequence[Values], grid: Grid) -> Iterator[Problem]:
    """The axes and values that no row of values has."""
    for path, asked in axes.items():
        known = {str(row[path]): row for row in rows if path in row}
        if not known:
            yield Problem(path, f"is not an axis of '{grid.name}'.{did_you_mean(path, [*grid.axes, OF_TASKS])}")
        for value in (asked if isinstance(asked, (list, tuple)) else [asked]) if known else ():
            if not any(agrees(row, {path: value}) for row in known.values()):
                yield Problem(path, f"no cell has {value!r}.{did_you_mean(str(value), known)}")


def _unasked(tasks: Any, cells: Sequence[Cell]) -> Iterator[Problem]:
    """The tasks that no cell has."""
    if tasks is not None and not isinstance(tasks, (list, tuple)):
        yield Problem(OF_TASKS, f"must be a list of tasks, not {tasks!r}")
        return
    known = {task for cell in cells for task in cell.tasks}
    for task in tasks or ():
        if task not in known:
            yield Problem(OF_TASKS, f"no cell has the task {task!r}.{did_you_mean(str(task), known)}")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pauses garbage collection: ten thousand cells are a million objects, and scans take a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_arguments(grid: Grid, scale: str, seeds: int | None, filters: Mapping[str, Any] | None) -> None:
    wrong, most = [], FIRST_SEARCH_SEED - grid.first_seed_at(scale)
    if scale not in grid.scales:
        known = {*grid.scales, *scales.available()}
        wrong.append(Problem("scale", f"'{grid.name}' has no scale '{scale}'.{did_you_mean(scale, known)}"))
    if seeds is not None and (isinstance(seeds, bool) or not isinstance(seeds, int)):
        wrong.append(Problem("seeds", f"must be a whole number, the number of seeds, not {seeds!r}"))
    elif seeds is not None and not 1 <= seeds <= most:
        start = f"it is the number of seeds, which start at {grid.first_seed_at(scale)}"
        wrong.append(Problem("seeds", f"must be from 1 to {most:,}, not {seeds:,}: {start}"))
    for path in filters or {}:
        if path not in grid.axes:
            wrong.append(Problem(path, f"is not an axis of '{grid.name}'.{did_you_mean(path, grid.axes)}"))
    if wrong:
        raise ConfigError(wrong)


def _check_size(grid: Grid, scale: str, cells: int, seeds: int | None) -> None:
    """Checks that a plan has no more runs than anybody makes: their ids alone would take minutes."""
    tasks, search = tasks_at(grid, scale), search_at(grid, scale)
    count = seeds or grid.looks_at(scale)[-1]
    runs = cells * count * (1 + len(tasks) + len(measured_at(grid, scale)))
    if search:
        trials = math.prod(map(len, search.axes.values())) + search.extend
        runs += cells * trials * search.seeds * (1 + len(tasks_behind(search.metric, tasks)))
    if runs > _MOST_RUNS:
        text = f"{runs:,} runs ({cells:,} cells, {count:,} seeds). A plan has at most {_MOST_RUNS:,}: use fewer seeds."
        raise ConfigError([f"{text} or values, or keep part of the grid with a filter"])


def _with(grid: Grid, scale: str, knobs: Mapping[str, Any], kept: Sequence[Values]) -> Grid:
    """The grid with some knobs set at a scale."""
    parts = {*Grid.model_fields, *Scale.model_fields} - {*System.model_fields}
    chosen = {(path, value) for values in kept for path, value in values.items() if path in grid.variants}
    arms = {knob: value for path, value in sorted(chosen) for knob in grid.variants[path][value]}
    text = "is no knob but a part of the grid's file: write it there"
    if wrong := [Problem(name, text) for name in knobs if name in parts]:
        raise ConfigError(wrong)
    text = f"varies in '{grid.name}' and cannot be set for all cells"
    wrong = [Problem(path, f"{text}: give its values by `axes`") for path in knobs if path in grid.axes]
    wrong += [Problem(p, f"{text}, as '{arms[p]}' sets it: leave such arms out by `axes`") for p in knobs if p in arms]
    if wrong:
        raise ConfigError(wrong)
    own, is_released = grid.scales[scale], bool(knobs.get(CHECKPOINT))  # in the place of the scale's pretraining
    given = {path: value for path, value in own.set.items() if not is_released or path.startswith(AFTERWARDS)}
    changed = own.model_copy(update={"set": {**given, **knobs}})
    return grid.model_copy(update={"scales": {**grid.scales, scale: changed}})


def _overrides(
    grid: Grid, scale: str, layout: Layout, seeds: int | None, filters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What differs from the plain scale; the scale's own values are no overrides."""
    usual_axes = grid_cells.axes_at(grid, scale)
    changed = {p: list(v) for p, v in layout.axes.items() if canonical(v) != canonical(usual_axes[p])}
    overrides = {"axes": changed, "seeds": seeds, "filters": dict(filters or {})}
    return {key: value for key, value in overrides.items() if value}
