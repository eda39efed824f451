"""What plans say of the searches of cells: how cells search, what it takes, what is still to come."""

import pandas as pd

from ablations.core.formatting import path_text, quantity, value_text
from ablations.core.store import Lookup
from ablations.planning.plan import Plan
from ablations.planning.search import combinations, direction, score, search_at, seeds
from ablations.schema.grid import Grid


def rules(grid: Grid, scale: str) -> list[str]:
    """How cells search and what is equal about it, in a sentence or two; empty where they do not."""
    search = search_at(grid, scale)
    if search is None:
        return []
    tried = "; ".join(f"{path_text(p)} {', '.join(value_text(p, v) for v in vs)}" for p, vs in search.axes.items())
    own = seeds(search)
    listed = f"seed {own[0]}" if len(own) == 1 else f"seeds {own[0]} to {own[-1]}"
    count = len(combinations(search))
    return [
        f"Every cell makes the same search: {count} combination{'s' * (count > 1)} ({tried}), each from {listed} "
        f"and each with the budget of the cell's own runs. The best mean of {_named(grid)} is evaluated, from seeds "
        "that no search has."
    ]


def _named(grid: Grid) -> str:
    search = grid.search
    if search is None:
        return ""
    label = next((metric.label for metric in grid.metrics if metric.name == search.metric), "") or search.metric
    return f"{label} ({direction(grid, search)} is better)"


def planned(rows: pd.DataFrame) -> list[str]:
    """The column of a plan's table: ``4 runs, 1.2 M tokens, 3 done, 1 missing``, beside the cell's own."""
    return [
        f"{row['search runs']} runs, {quantity(row['search tokens'])} tokens, {quantity(row['search flops'])} FLOPs: "
        f"{row['search state']}"
        for row in rows.to_dict("records")
    ]


def to_follow(plan: Plan) -> str:
    """What a plan cannot know yet, in a sentence with a space before it; empty where it knows everything."""
    count = len(plan.awaited)
    if not count:
        return ""
    return (
        f" {len(plan.open)} of {len(plan.cells)} cells have not chosen: {count} evaluation run{'s' * (count > 1)} "
        "follow their searches, with settings and ids that these decide, counted here at the cost of the first "
        "combination."
    )


def missing(plan: Plan, records: Lookup) -> list[str]:
    """What keeps each open search from choosing, a sentence a cell."""
    notes = []
    for cell in plan.open:
        scores = [score(trial, plan.grid.search.metric, records) for trial in cell.search] if plan.grid.search else []
        runs = {run.id: run for one in scores for run in one.unended}
        waiting = [f"{plan.label(id)} ({plan.states[id]})" for id in runs]
        lacking = [
            f"{trial.label} search {seed} (done, without {plan.grid.search.metric})"
            for trial, one in zip(cell.search, scores, strict=True)
            for seed in one.unmeasured
        ]
        said = "; ".join([*waiting, *lacking])
        notes.append(f"Search of {cell.label} waits for {said}. Then follow {len(cell.awaited)} evaluation runs.")
    return notes
