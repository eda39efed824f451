"""The order of the runs of a plan: searches first, then seed by seed, parents before children."""

from collections.abc import Sequence

from ablations.schema.cell import Cell
from ablations.schema.run import Run


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
