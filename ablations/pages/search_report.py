"""What tables and pages say of the searches of cells: what was tried, what it cost, what it chose.

A cell's search is charged to the cell: what it took stands beside the cell's own runs, with the runs that made it.
"""

import json
from collections.abc import Sequence
from typing import Any

from ablations.core.formatting import Entry, Sheet, duration, path_text, quantity, value_text
from ablations.measurements.table import Measurements
from ablations.planning.search import score
from ablations.planning.search_text import _named
from ablations.schema.cell import Cell, Trial
from ablations.schema.grid import Grid

_COSTS = ("tokens", "flops", "seconds")


def spent(cell: Cell, measured: Measurements) -> dict[str, float]:
    """What a cell's search took: runs planned and ended, tokens, FLOPs and seconds, distinct runs once."""
    ids = {run.id for trial in cell.search for run in trial.work}
    found = [record for id in sorted(ids) if (record := measured.get(id)) is not None and record.final]
    costs = {name: sum(record.cost.get(name, 0.0) for record in found) for name in _COSTS}
    return {"runs": len(ids), "ended": len(found), **costs}


def _searched(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(path for cell in cells for trial in cell.search for path in trial.values))


def columns(measured: Measurements) -> dict[str, list[Entry]]:
    """The columns of the table to read: heading -> an entry a cell. None of them where nothing is searched."""
    cells = measured.cells
    if not any(cell.search for cell in cells):
        return {}
    took = [spent(cell, measured) for cell in cells]
    found: dict[str, list[Entry]] = {
        f"chosen {path_text(path)}": [
            value_text(path, cell.chosen[path]) if path in cell.chosen else "open" for cell in cells
        ]
        for path in _searched(cells)
    }
    found["search runs"] = [f"{one['ended']} of {one['runs']}" for one in took]
    found["search tokens"] = [quantity(one["tokens"]) for one in took]
    found["search FLOPs"] = [quantity(one["flops"]) for one in took]
    found["search time"] = [duration(one["seconds"]) for one in took]
    return found


def numbers(measured: Measurements) -> dict[str, list[Entry]]:
    """The same for the table of every number."""
    cells = measured.cells
    if not any(cell.search for cell in cells):
        return {}
    took = [spent(cell, measured) for cell in cells]
    chosen = {f"chosen {path}": [_entry(cell.chosen.get(path)) for cell in cells] for path in _searched(cells)}
    return chosen | {f"search {name}": [one[name] for one in took] for name in ("runs", "ended", *_COSTS)}


def _entry(value: Any) -> Entry:
    return value if isinstance(value, (str, float, int, bool)) or value is None else json.dumps(value)


def notes(grid: Grid, cells: Sequence[Cell]) -> list[str]:
    """What to know of those columns."""
    if not any(cell.search for cell in cells):
        return []
    return [
        f"Chosen: by the best mean of {_named(grid)}, over seeds that take no part in the means of this table. Search: "
        "what choosing cost, all its runs together and on top of the runs of the row; diverged runs leave no cost. A "
        "search that is open has not chosen, and its row has not been run.",
        *_edges(cells),
    ]


def _edges(cells: Sequence[Cell]) -> list[str]:
    """Choices at the end of what was tried, beyond which a better one may lie."""
    ends: dict[str, list[str]] = {}
    for cell in cells:
        for path, value in cell.chosen.items():
            tried = [trial.values[path] for trial in cell.search]
            is_ordered = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in tried)
            if is_ordered and min(tried) < max(tried) and value in (min(tried), max(tried)):
                end = "lowest" if value == min(tried) else "highest"
                said = f"the {end} {path_text(path)} tried, {value_text(path, value)}"
                ends.setdefault(said, []).append(cell.label)
    wider = "A wider search may find a better one."
    return [f"Chosen at an end of the search: {end} ({'; '.join(named)}). {wider}" for end, named in ends.items()]


def trace(cell: Cell) -> dict[str, Any]:
    """What the sidecar of a table has of a cell's search; nothing for cells without one."""
    if not cell.search:
        return {}
    tried = [{"values": dict(trial.values), "runs": [run.id for run in trial.work]} for trial in cell.search]
    return {"chosen": dict(cell.chosen), "search": tried}


def searches(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row a cell and combination: the table to read, the table of every number, and the runs behind them.

    Returns:
        None where nothing is searched.
    """
    grid, cells = measured.grid, measured.cells
    if grid.search is None or not any(cell.search for cell in cells):
        return None
    paths = list(dict.fromkeys(path for cell in cells for path in cell.values))
    knobs, metric = _searched(cells), grid.search.metric
    found = [(cell, trial, score(trial, metric, measured)) for cell in cells for trial in cell.search]
    heads = [path_text(path) for path in (*paths, *knobs)]
    reading = Sheet(
        [*heads, f"mean of {_named(grid)}", "seeds", "diverged", "choice", "runs"],
        [
            [*_texts(cell, trial, paths, knobs), "" if one.mean is None else f"{one.mean:.4f}", _seeds(trial, one.n),
             one.lost or "", _choice(cell, trial), ", ".join(run.id[:8] for run in trial.work)]
            for cell, trial, one in found
        ],
        left=len(heads),
        notes=[
            "Every combination of every cell, tried with the search's own seeds. Fewest diverged seeds count first, "
            "then the mean; of equals the first is chosen. Nothing is chosen before every run of a cell's search has "
            "ended."
        ],
    )  # fmt: skip
    everything = Sheet(
        ["cell", *paths, *knobs, f"{metric} mean", "n", "lost", "unended", "chosen"],
        [
            [cell.label, *_texts(cell, trial, paths, knobs), one.mean, one.n, one.lost, len(one.unended),
             cell.chosen == trial.values]
            for cell, trial, one in found
        ],
    )  # fmt: skip
    return reading, everything, {"searches": [{"cell": cell.label, **trace(cell)} for cell in cells]}


def _texts(cell: Cell, trial: Trial, paths: Sequence[str], knobs: Sequence[str]) -> list[str]:
    return [
        *(value_text(path, cell.values[path]) for path in paths),
        *(value_text(path, trial.values[path]) for path in knobs),
    ]


def _seeds(trial: Trial, n: int) -> str:
    return f"{n} of {len(trial.runs)}"


def _choice(cell: Cell, trial: Trial) -> str:
    return "open" if not cell.chosen else "chosen" if cell.chosen == trial.values else ""


def cost_sentence(measured: Measurements) -> str:
    """How much of a page's cost is search, with a space before it; empty where nothing is searched."""
    runs = {run.id for cell in measured.cells for trial in cell.search for run in trial.work}
    found = [record for id in sorted(runs) if (record := measured.get(id)) is not None]
    if not runs:
        return ""
    total = {name: sum(record.cost.get(name, 0.0) for record in found) for name in _COSTS}
    return (
        f" Of these, searches: {len(found)} runs, {duration(total['seconds'])}, {quantity(total['tokens'])} tokens, "
        f"{quantity(total['flops'])} floating-point operations; the table has each cell's own."
    )
