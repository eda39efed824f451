"""What a grid at a scale would do: its cells, its distinct runs and how they stand, and what they cost."""

import gc
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from ablations import cells as grid_cells
from ablations.cells import Layout, Values, Workshop, agrees, label, stand_ins
from ablations.cost import ASSUMED_SPEED, Cost, costs
from ablations.cost import speed as measured_speed
from ablations.provenance import gpus
from ablations.schema import Cell, Grid, Outcome, Record, Run
from ablations.store import Damage, Records
from lightning_modules.config import ConfigError, Problem, canonical, did_you_mean, identity
from lightning_modules.data import Data, fingerprints
from lightning_modules.tasks import fingerprint

_RECORD_BYTES = 8_000
_WEIGHT_BYTES = 4  # a parameter in the weights that a run leaves
_CHECKPOINT_BYTES = 12  # a parameter with its two moments while a run goes on

State = Outcome | Literal["stale", "newer", "missing", "orphaned"]
SETTLED: tuple[State, ...] = ("done", "diverged", "invalid", "newer", "orphaned")  # what executing a plan leaves alone

_BARREN = ("diverged", "invalid", "orphaned")  # states of runs that leave no weights for others


@dataclass(frozen=True)
class Plan:
    """A grid at a scale, resolved.

    Attributes:
        grid: The grid.
        scale: The name of the scale.
        cells: Its cells, the baseline first.
        runs: The distinct runs in the order of execution: all cells of seed 0, then of seed 1, and so on, so that
            whatever is finished is a smaller grid of its own.
        excluded: Combinations left out, with the reasons.
        baseline: The cell that the others are compared with; None where a filter left it out.
        costs: Run id -> what it takes.
        states: Run id -> how it stands in the store.
        overrides: What was asked for beyond the grid and the scale; empty for the plain scale.
        speed: FLOP a second of one slot, by which times are estimated.
        speed_source: Where that figure comes from, in words.
        slots: Runs that go on at once.
    """

    grid: Grid
    scale: str
    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]
    excluded: tuple[tuple[Values, str], ...]
    baseline: Cell | None
    costs: Mapping[str, Cost]
    states: Mapping[str, State]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    speed: float = ASSUMED_SPEED["cpu"]
    speed_source: str = ""
    slots: int = 1

    @property
    def folder_name(self) -> str:
        """Where tables and figures go: the scale, and six digits behind it where axes, seeds or cells differ."""
        return f"{self.scale}-{identity(self.overrides)[:6]}" if self.overrides else self.scale

    @property
    def pending(self) -> tuple[Run, ...]:
        """The runs that executing the plan would make."""
        return tuple(run for run in self.runs if self.states[run.id] not in SETTLED)

    @property
    def counts(self) -> dict[str, int]:
        """How many runs stand how."""
        return dict(Counter(self.states[run.id] for run in self.runs))

    @property
    def parameters(self) -> tuple[int, int]:
        """Parameters of the smallest and of the largest cell."""
        counts = [cost.parameters for cost in self.costs.values()]
        return min(counts), max(counts)

    @property
    def tokens(self) -> int:
        """Tokens of the pending runs."""
        return sum(self.costs[run.id].tokens for run in self.pending)

    @property
    def flops(self) -> float:
        """FLOPs of the pending runs."""
        return sum(self.costs[run.id].flops for run in self.pending)

    @property
    def seconds(self) -> float:
        """Estimated wall time of the pending runs over all slots."""
        if not self.pending:
            return 0.0
        longest = max(self.costs[run.id].flops for run in self.pending)
        return max(self.flops / min(self.slots, len(self.pending)), longest) / self.speed

    @property
    def disk(self) -> int:
        """Bytes that the pending runs add: records, weights, and the checkpoints of those that go on at once."""
        weights = [self.costs[run.id].parameters for run in self.pending]
        moving = sum(sorted(weights)[-self.slots :])
        return len(weights) * _RECORD_BYTES + sum(weights) * _WEIGHT_BYTES + moving * _CHECKPOINT_BYTES

    def label(self, run_id: str) -> str:
        """``rate=0.15 seed 0``: the first cell that a run belongs to, and its seed."""
        return self._labels[run_id]

    @cached_property
    def _labels(self) -> dict[str, str]:
        named: dict[str, str] = {}
        for cell in self.cells:
            for run in cell.runs:
                named.setdefault(run.id, f"{cell.label} seed {run.seed}")
            for run in cell.tuned:
                named.setdefault(run.id, f"{cell.label} seed {run.seed} on {run.task}")
        for run in self.runs:  # those that others start from, and that are no cell of their own
            named.setdefault(run.id, f"{run.system.model.num_layers} layers to start from, seed {run.seed}")
        return named

    def table(self) -> pd.DataFrame:
        """One row a cell: its values, size and cost, and how many of its runs stand how."""
        rows = []
        for cell in self.cells:
            cost = self.costs[cell.runs[0].id]
            states = Counter(self.states[run.id] for run in (*cell.runs, *cell.tuned))
            row: dict[str, Any] = {"cell": cell.label, **cell.values}
            row |= {"parameters": cost.parameters, "steps": cost.steps, "tokens": cost.tokens, "flops": cost.flops}
            row |= {"flops a token": cost.flops / cost.tokens, "flops a step": cost.flops / cost.steps}
            row |= {"seeds": len(cell.runs), "seconds a run": cost.flops / self.speed}
            row["tasks"] = ", ".join(dict.fromkeys(run.task for run in cell.tuned))
            row["state"] = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            rows.append(row)
        return pd.DataFrame(rows)


def plan(
    grid: Grid,
    scale: str,
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | None = None,
    filters: Mapping[str, Any] | None = None,
    records: Records | None = None,
) -> Plan:
    """Resolves a grid at a scale, without opening a corpus or building a network.

    Args:
        grid: From `grids.read`.
        scale: One of its scales.
        axes: Axis -> values instead of those of the grid and the scale.
        seeds: How many seeds instead of the grid's.
        filters: Axis -> value or list of values; only cells that agree with all are kept.
        records: Where finished runs are looked up; None takes every run as missing.

    Raises:
        ConfigError: For unknown scales, axes or values, each with the nearest valid spelling.
    """
    _check_arguments(grid, scale, seeds, filters)
    layout = grid_cells.layout(grid, scale, axes)
    kept = [values for values in layout.kept if agrees(values, filters or {})]
    if not kept:
        said = f"no cell has {label(dict(filters))}" if filters else "every combination is excluded"
        listed = "; ".join(f"{path}: {', '.join(map(str, options))}" for path, options in layout.axes.items())
        raise ConfigError([f"{said}. The axes at scale '{scale}' are {listed}."])
    with _no_collection():
        cells = _cells(grid, scale, layout, kept, seeds or grid.scales[scale].seeds or grid.seeds)
        runs = _ordered(cells)
        taken = costs(runs)
    found = dict(records.survey()) if records else {}
    speed, source = measured_speed(found)
    return Plan(
        grid=grid,
        scale=scale,
        cells=cells,
        runs=runs,
        excluded=tuple(layout.excluded),
        baseline=next((cell for cell in cells if agrees(cell.values, layout.baseline)), None),
        costs=taken,
        states=_states(runs, found),
        overrides=_overrides(grid, scale, layout, seeds, filters),
        speed=speed,
        speed_source=source,
        slots=slots(),
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Ten thousand cells are a million objects and no garbage; looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def slots() -> int:
    """How many runs go on at once here: one a GPU, else one a processor core that this process may use."""
    return len(gpus()) or cores()


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_arguments(grid: Grid, scale: str, seeds: int | None, filters: Mapping[str, Any] | None) -> None:
    wrong = []
    if scale not in grid.scales:
        wrong.append(Problem("scale", f"'{grid.name}' has no scale '{scale}'.{did_you_mean(scale, grid.scales)}"))
    if seeds is not None and seeds < 1:
        wrong.append(Problem("seeds", f"{seeds} is not a number of seeds; at least 1 is needed"))
    for path in filters or {}:
        if path not in grid.axes:
            wrong.append(Problem(path, f"is not an axis of '{grid.name}'.{did_you_mean(path, grid.axes)}"))
    if wrong:
        raise ConfigError(wrong)


def _overrides(
    grid: Grid, scale: str, layout: Layout, seeds: int | None, filters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What differs from the plain scale; asking for what the scale has anyway is no override."""
    usual_axes = grid_cells.axes_at(grid, scale)
    changed = {p: list(v) for p, v in layout.axes.items() if canonical(v) != canonical(usual_axes[p])}
    usual = grid.scales[scale].seeds or grid.seeds
    found = {"axes": changed, "seeds": seeds if seeds != usual else None, "filters": dict(filters or {})}
    return {key: value for key, value in found.items() if value}


def _cells(grid: Grid, scale: str, layout: Layout, kept: list[Values], seeds: int) -> tuple[Cell, ...]:
    workshop, wrong, cells = Workshop(grid, scale, layout.baseline), {}, []
    pins: dict[Data, dict[str, str]] = {}
    tasks = {task: fingerprint(task) for task in grid_cells.tasks_at(grid, scale)}
    for values in kept:
        try:
            system = workshop.system(values)
            tunings = {task: workshop.finetuning(values, task) for task in tasks}
        except ConfigError as error:
            for problem in error.problems:
                wrong.setdefault(str(problem), Problem(problem.path, f"{problem.message} (cell {label(values)})"))
            continue
        if system.data not in pins:
            pins[system.data] = fingerprints(system.data)
        runs = tuple(Run.pretraining(system, seed, pins[system.data]) for seed in range(seeds))
        tuned = tuple(Run.tuning(run, task, print_, tunings[task]) for run in runs for task, print_ in tasks.items())
        printed = stand_ins(grid, scale, values)
        named = {"values": values, "label": label(values), "printed": printed}
        cells.append(Cell(**named, system=system, runs=runs, tuned=tuned))
    if wrong:
        raise ConfigError(wrong.values())
    return tuple(cells)


def _ordered(cells: Sequence[Cell]) -> tuple[Run, ...]:
    """The distinct runs of cells, seed by seed, each after the run whose weights it starts from."""
    distinct: dict[str, Run] = {}
    for seed in range(max(len(cell.runs) for cell in cells)):
        for cell in cells:
            _put(cell.runs[seed], distinct)
        for cell in cells:
            for run in cell.tuned:
                if run.seed == seed:
                    _put(run, distinct)
    return tuple(distinct.values())


def _put(run: Run, distinct: dict[str, Run]) -> None:
    if run.id not in distinct:
        if run.parent is not None:
            _put(run.parent, distinct)
        distinct[run.id] = run


def _states(runs: Sequence[Run], found: Mapping[str, Record | Damage]) -> dict[str, State]:
    sound = {run_id: record for run_id, record in found.items() if isinstance(record, Record)}
    written = {json.dumps(record.config.get("numerics"), sort_keys=True) for record in sound.values()}
    generations = [json.loads(text) for text in sorted(written)]
    states: dict[str, State] = {}
    for run in runs:
        here = found.get(run.id)
        if isinstance(here, Record):
            states[run.id] = here.outcome
        elif isinstance(here, Damage) and here.flaw == "newer":
            states[run.id] = "newer"
        else:
            states[run.id] = "stale" if _elsewhen(run, generations, sound) else "missing"
            if any(states[parent] in _BARREN for parent in run.parents):
                states[run.id] = "orphaned"  # what it would start from will never be there
    return states


def _elsewhen(run: Run, generations: list[dict[str, int]], sound: Mapping[str, Record]) -> bool:
    """Whether the same run was finished by code of another generation of numerics."""
    kin = (n for n in generations if n and n.keys() == run.numerics.keys() and n != run.numerics)
    others = (run.of_generation(numerics).id for numerics in kin)
    return any(run_id in sound and sound[run_id].final for run_id in others)
