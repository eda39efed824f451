"""The text of plans about searches: their rules, their cost, and the runs that follow them."""

import pandas as pd

from ablations.core.formatting import path_text, quantity, value_text
from ablations.core.store import Lookup
from ablations.planning.plan import Plan
from ablations.planning.search import combinations, is_validation, score, search_at, seeds, validation_share
from ablations.schema.grid import Grid, Search
from ablations.schema.metrics import better
from lightning_modules.tasks.validation import MOST


def rules(grid: Grid, scale: str) -> list[str]:
    """How all cells search, in a sentence or two; empty without a search."""
    search = search_at(grid, scale)
    if search is None:
        return []
    tried = "; ".join(f"{path_text(p)} {', '.join(value_text(p, v) for v in vs)}" for p, vs in search.axes.items())
    own = seeds(search)
    listed = f"seed {own[0]}" if len(own) == 1 else f"seeds {own[0]} to {own[-1]}"
    count = len(combinations(search))
    return [
        f"Every cell makes the same search: {count} combination{'s' * (count > 1)} ({tried}), each from {listed} "
        f"and with {_budget(search)}the budget of the cell's own runs. The combination with the best mean "
        f"{criterion(grid)} is evaluated, from seeds that no search uses.{_extended(search)}{scored_on(search)}"
    ]


def _budget(search: Search) -> str:
    return "" if search.length == 1 else f"{quantity(100 * search.length)} % of "


def _extended(search: Search) -> str:
    more = f"{search.extend} more combination{'s' * (search.extend > 1)}"
    return f" Where the best lies at an end of a range, a cell tries up to {more} beyond it." * bool(search.extend)


def scored_on(search: Search) -> str:
    """What sets trials apart from the runs that are compared, in sentences with a space before them; else empty."""
    share = validation_share(search)
    others = {path: value for path, value in search.set.items() if not is_validation(path)}
    short = f" Its trials train for {_budget(search)}the steps, which may favour high rates." * (search.length < 1)
    apart = f" Only its trials have {'; '.join(f'{path_text(p)} {value_text(p, v)}' for p, v in others.items())}."
    part = (
        f" Its trials were scored on part of the training set ({quantity(100 * share)} % of the examples, {MOST:,} at "
        "most). They did not train on these, so the dev set chose nothing."
        if share
        else ""
    )
    return short + apart * bool(others) + part


def criterion(grid: Grid) -> str:
    """``held-out loss (lower is better)``: what the searches of a grid choose by; empty where they make none."""
    search = grid.search
    if search is None:
        return ""
    label = next((metric.label for metric in grid.metrics if metric.name == search.metric), "") or search.metric
    return f"{label} ({better(search.metric)} is better)"


def planned(rows: pd.DataFrame) -> list[str]:
    """The column of a plan's table: ``4 runs, 1.2 M tokens, 3 done, 1 missing``, about searches."""
    return [
        f"{row['search runs']} runs, {quantity(row['search tokens'])} tokens, {quantity(row['search flops'])} FLOPs: "
        f"{row['search state']}"
        for row in rows.to_dict("records")
    ]


def to_follow(plan: Plan) -> str:
    """What an open search leaves unknown, in a sentence with a space before it; empty without one."""
    count = len(plan.awaited)
    if not count:
        return ""
    return (
        f" {len(plan.open)} of {len(plan.cells)} cells are still searching. Their {count} evaluation "
        f"run{'s' * (count > 1)} depend{'s' * (count == 1)} on the result, and the estimate uses the first combination."
    )


def missing(plan: Plan, records: Lookup) -> list[str]:
    """What each open search waits for, a sentence per cell."""
    notes = []
    for cell in plan.open:
        metric = plan.grid.search.metric if plan.grid.search else ""
        scores = [score(trial, metric, records) for trial in cell.search] if metric else []
        runs = {run.id: run for result in scores for run in result.unended}
        waiting = [f"{plan.label(id)} ({plan.states[id]})" for id in runs]
        lacking = [
            f"{trial.label} search {seed} (done, without {metric})"
            for trial, result in zip(cell.search, scores, strict=True)
            for seed in result.unmeasured
        ]
        listed = "; ".join([*waiting, *lacking])
        notes.append(f"Search of {cell.label} waits for {listed}. {len(cell.awaited)} evaluation runs follow.")
    return notes
