"""What a page, a figure and a plan say of themselves: what is overridden, and how many runs are done. No figure."""

from typing import Any

from ablations.core.formatting import markdown_code, markdown_text, path_text, value_text
from ablations.measurements.measurements import Measurements
from ablations.pages.held_equal import Planned


def counts(plan: Planned, measured: Measurements) -> tuple[int, int]:
    """Distinct runs done and planned; cells may share runs. A run of a search counts as done once it has ended."""
    every, searched = ids(plan)
    records = {id: record for id in every if (record := measured.get(id)) is not None}
    finished = sum(r.outcome == "done" or (r.final and id in searched) for id, r in records.items())
    return finished, len(every) + len({run.id for cell in plan.cells for run in cell.awaited})


def ids(plan: Planned) -> tuple[set[str], set[str]]:
    """The ids of all runs of the cells, and of those of searches."""
    searched = {run.id for cell in plan.cells for trial in cell.search for run in trial.work}
    return {run.id for cell in plan.cells for run in cell.work} | searched, searched


def subtitle(plan: Planned, measured: Measurements) -> str:
    """The small print of a figure: the grid, and how much of it is done."""
    finished, planned = counts(plan, measured)
    return f"{plan.grid.name}, {plan.folder_name}: {finished} of {planned} runs"


def judged(plan: Planned) -> str:
    """Which claims alone a scale judges, as a sentence of Markdown; empty where it judges all."""
    own = plan.grid.scales.get(plan.scale)
    if own is None or not own.claims:
        return ""
    named = ", ".join(map(markdown_code, own.claims))
    return f"**Judged at this scale:** {named} alone. What else is shown has no verdict."


def overridden(plan: Planned) -> str:
    """What a study overrides, as a sentence of Markdown. It is empty for the grid as it is."""
    changed = plan.overrides
    fixed, axes = (changed.get(name, {}).items() for name in ("set", "axes"))
    parts = [f"{markdown_code(path)} = {_values(path, value)} in every cell" for path, value in fixed]
    parts += [f"{_knob(path)} is {_values(path, values)}" for path, values in axes]
    if changed.get("seeds"):
        parts.append(f"{changed['seeds']} seed{'s' * (changed['seeds'] > 1)}")
    if changed.get("filters"):
        kept = (f"{_knob(path)} {_values(path, values)}" for path, values in changed["filters"].items())
        parts.append(f"only cells with {' and '.join(kept)}")
    return f"**Overridden in this study:** {'; '.join(parts)}." if parts else ""


def _knob(path: str) -> str:
    return markdown_text(path_text(path))


def _values(path: str, values: Any) -> str:
    listed = values if isinstance(values, (list, tuple)) else [values]
    return markdown_text(", ".join(value_text(path, value) for value in listed))
