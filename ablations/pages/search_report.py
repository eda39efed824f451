"""The searches of cells in tables and pages: what they tried, what they cost, what they chose.

A cell pays for its search: the cost of the search is next to that of the cell's own runs.
"""

import json
from collections.abc import Sequence
from typing import Any

from ablations.core.formatting import Entry, Sheet, duration, path_text, quantity, value_text
from ablations.measurements.measurements import Measurements, on_plateau
from ablations.measurements.selection import paths_of
from ablations.planning.search import score
from ablations.planning.search_text import criterion, scored_on
from ablations.schema.cell import Cell, Trial
from ablations.schema.grid import Grid

_COSTS = ("tokens", "flops", "seconds")


def spent(cell: Cell, measured: Measurements) -> dict[str, float]:
    """The cost of a cell's search: runs planned and ended, tokens, FLOPs and seconds; each distinct run counts once."""
    ids = {run.id for trial in cell.search for run in trial.work}
    records = [record for id in sorted(ids) if (record := measured.get(id)) is not None and record.final]
    costs = {name: sum(record.cost.get(name, 0.0) for record in records) for name in _COSTS}
    return {"runs": len(ids), "ended": len(records), **costs}


def in_short(measured: Measurements) -> str:
    """How many trials chose, how long they were, how many ended on the plateau, in a sentence; empty without any."""
    cells = [cell for cell in measured.cells if cell.search]
    trials = {run.id: (cell, trial, run) for cell in cells for trial in cell.search for run in trial.runs}
    ended = {
        id: on_plateau(trial, record)
        for id, (_, trial, _) in trials.items()
        if (record := measured.get(id)) is not None and record.outcome == "done"
    }
    if not ended:
        return ""
    knobs = " and ".join(path_text(path) for path in _searched(cells))
    seeds = {len(trial.runs) for cell in cells for trial in cell.search}
    each = "one trial each" if seeds == {1} else f"{', '.join(map(str, sorted(seeds)))} trials each"
    lengths = {(trial.system.training.steps, cell.system.training.steps) for cell in cells for trial in cell.search}
    shares = {quantity(round(100 * trial / run)) for trial, run in lengths}
    length = "of full length" if shares == {"100"} else f"at {' and '.join(sorted(shares))} % of the steps"
    told = [flat for flat in ended.values() if flat is not None]
    flat = f" {sum(told)} of {len(told)} trials ended on the plateau, no better than the bigram baseline." * any(told)
    return f"Values of {knobs} were searched by {each}, {length}.{flat}"


def _searched(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(path for cell in cells for trial in cell.search for path in trial.values))


def columns(measured: Measurements) -> dict[str, list[Entry]]:
    """The columns of the table to read: heading -> one entry per cell. Empty without a search."""
    cells = measured.cells
    if not any(cell.search for cell in cells):
        return {}
    costs = [spent(cell, measured) for cell in cells]
    entries: dict[str, list[Entry]] = {
        f"chosen {path_text(path)}": [
            value_text(path, cell.chosen[path]) if path in cell.chosen else "open" for cell in cells
        ]
        for path in _searched(cells)
    }
    entries["search runs"] = [f"{cost['ended']} of {cost['runs']}" for cost in costs]
    entries["search tokens"] = [quantity(cost["tokens"]) for cost in costs]
    entries["search FLOPs"] = [quantity(cost["flops"]) for cost in costs]
    entries["search time"] = [duration(cost["seconds"]) for cost in costs]
    return entries


def numbers(measured: Measurements) -> dict[str, list[Entry]]:
    """The columns of the table of every number."""
    cells = measured.cells
    if not any(cell.search for cell in cells):
        return {}
    costs = [spent(cell, measured) for cell in cells]
    entries: dict[str, list[Entry]] = {
        f"chosen {path}": [entry(cell.chosen.get(path)) for cell in cells] for path in _searched(cells)
    }
    for name in ("runs", "ended", *_COSTS):
        entries[f"search {name}"] = [cost[name] for cost in costs]
    return entries


def _apart(grid: Grid, cells: Sequence[Cell]) -> str:
    """What sets trials apart from the runs of these cells, whose scale may have shortened them."""
    if grid.search is None:
        return ""
    cell = next(cell for cell in cells if cell.search)
    steps = [one.system.training.steps for one in (cell.search[0], cell)]
    return scored_on(grid.search.model_copy(update={"length": steps[0] / steps[1]}))


def entry(value: Any) -> Entry:
    """A value as an entry of a table: lists and mappings as JSON."""
    return value if isinstance(value, (str, float, int, bool)) or value is None else json.dumps(value)


def notes(grid: Grid, cells: Sequence[Cell]) -> list[str]:
    """Notes on those columns."""
    if not any(cell.search for cell in cells):
        return []
    return [
        f"Chosen: by the best mean of {criterion(grid)}, over seeds that do not count in the means of this table."
        f"{_apart(grid, cells)} "
        "Search: the cost of all runs of the search, on top of the runs of the row. Diverged runs leave no cost. "
        "Open: the search has not ended, and the row has not been run.",
        *_edges(cells),
    ]


def _edges(cells: Sequence[Cell]) -> list[str]:
    """Choices at an end of the range tried; a better value may lie beyond."""
    ends: dict[str, list[str]] = {}
    for cell in cells:
        for path, value in cell.chosen.items():
            tried = [trial.values[path] for trial in cell.search]
            is_ordered = all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in tried)
            if is_ordered and min(tried) < max(tried) and value in (min(tried), max(tried)):
                end = "lowest" if value == min(tried) else "highest"
                choice = f"the {end} {path_text(path)} tried, {value_text(path, value)}"
                ends.setdefault(choice, []).append(cell.label)
    wider = "A wider search may find a better one."
    return [f"Chosen at an end of the search: {choice} ({'; '.join(cells)}). {wider}" for choice, cells in ends.items()]


def trace(cell: Cell) -> dict[str, Any]:
    """A cell's search in the sidecar of a table; empty without one."""
    if not cell.search:
        return {}
    tried = [{"values": dict(trial.values), "runs": [run.id for run in trial.work]} for trial in cell.search]
    return {"chosen": dict(cell.chosen), "search": tried}


def searches(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row per cell and combination: the table to read, the table of every number, and the runs behind them.

    Returns:
        None without a search.
    """
    grid, cells = measured.grid, measured.cells
    if grid.search is None or not any(cell.search for cell in cells):
        return None
    paths = paths_of(cells)
    knobs, metric = _searched(cells), grid.search.metric
    scored = [(cell, trial, score(trial, metric, measured)) for cell in cells for trial in cell.search]
    heads = [path_text(path) for path in (*paths, *knobs)]
    reading = Sheet(
        [*heads, f"mean of {criterion(grid)}", "seeds", "diverged", "choice", "runs"],
        [
            [*_texts(cell, trial, paths, knobs), "" if result.mean is None else f"{result.mean:.4f}",
             f"{result.n} of {len(trial.runs)}", result.lost or "",
             "open" if not cell.chosen else "chosen" if cell.chosen == trial.values else "",
             ", ".join(run.id[:8] for run in trial.work)]
            for cell, trial, result in scored
        ],
        left=len(heads),
        notes=[
            "Every combination of every cell, tried with seeds of its own. A cell chooses the combination with the "
            "fewest diverged seeds, then with the best mean, and of equals the first. It chooses once every run of its "
            f"search has ended.{_apart(grid, cells)}"
        ],
    )  # fmt: skip
    everything = Sheet(
        ["cell", *paths, *knobs, f"{metric} mean", "n", "lost", "unended", "chosen"],
        [
            [cell.label, *_texts(cell, trial, paths, knobs), result.mean, result.n, result.lost, len(result.unended),
             cell.chosen == trial.values]
            for cell, trial, result in scored
        ],
    )  # fmt: skip
    return reading, everything, {"searches": [{"cell": cell.label, **trace(cell)} for cell in cells]}


def _texts(cell: Cell, trial: Trial, paths: Sequence[str], knobs: Sequence[str]) -> list[str]:
    return [
        *(value_text(path, cell.values[path]) for path in paths),
        *(value_text(path, trial.values[path]) for path in knobs),
    ]


def cost_sentence(measured: Measurements) -> str:
    """The searches' part of a page's cost, with a space before it; empty without a search."""
    runs = {run.id for cell in measured.cells for trial in cell.search for run in trial.work}
    records = [record for id in sorted(runs) if (record := measured.get(id)) is not None]
    if not runs:
        return ""
    total = {name: sum(record.cost.get(name, 0.0) for record in records) for name in _COSTS}
    return (
        f" Of these, searches took {len(records)} runs, {duration(total['seconds'])}, {quantity(total['tokens'])} "
        f"tokens, {quantity(total['flops'])} floating-point operations. The table lists them by cell."
    )
