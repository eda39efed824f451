"""The noise of one run in each cell: variances pooled by moderation within the groups that a grid declares."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from ablations.core.estimates import Estimate, blocked, linear
from ablations.core.formatting import cell_text
from ablations.core.moderation import Variance, moderated
from ablations.measurements import trunks
from ablations.measurements.derived import DERIVED
from ablations.measurements.measurements import BySeed, Measurements
from ablations.measurements.selection import agrees, as_printed
from ablations.measurements.sides import Compared, comparable
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid

Samples = Mapping[str, Sequence[float]]
Rows = Callable[[Cell], BySeed]


def group_of(grid: Grid, cell: Cell) -> int:
    """The number of the variance group of a cell; 0 if the grid declares none, and all cells are one group."""
    printed = as_printed(cell)
    return next((n for n, when in enumerate(grid.variance_groups) if agrees(printed, when)), 0)


def names(cells: Iterable[Cell], rows: Rows) -> dict[str, str]:
    """The name of each cell's sample, which is that of the first cell with the same runs.

    Cells may be one model, such as one layer of its own and one that is shared. Their runs are one sample: they count
    once among the variances of a group, and a difference between them is no comparison of two draws. An average over
    tasks is a measurement of the pretraining, from which other cells may be fine-tuned otherwise: then values differ.
    """
    first: dict[tuple[tuple[str, float], ...], str] = {}
    measured = {cell.label: tuple((row.run, row.value) for row in rows(cell).values()) for cell in cells}
    return {label: first.setdefault(runs, label) if runs else label for label, runs in measured.items()}


def samples(measured: Measurements, cells: Sequence[Cell], rows: Rows) -> dict[int, dict[str, Sequence[float]]]:
    """The values of each sample of the groups that some cells belong to: group -> sample -> a value for each run.

    Args:
        rows: Gives what is compared of a cell, by seed.
    """
    wanted = {group_of(measured.grid, cell) for cell in cells}
    grouped: dict[int, dict[str, Sequence[float]]] = {group: {} for group in sorted(wanted)}
    asked = {cell.label for cell in cells}
    every = [*measured.cells, *(mean for mean in measured.means if mean.label in asked)]
    named = names(every, rows)
    for cell in every:
        group = group_of(measured.grid, cell)
        if group in wanted and (found := rows(cell)):
            grouped[group][named[cell.label]] = [row.value for row in found.values()]
    return grouped


def pooled(groups: Mapping[int, Samples]) -> dict[str, Variance]:
    """The variance of one run of each cell, moderated within its group; a group without any noise has none."""
    return {cell: variance for group in groups.values() for cell, variance in moderated(group).variances.items()}


Difference = Callable[[Cell, Cell], tuple[Compared, Estimate | None]]


def differences(measured: Measurements, rows: Rows) -> Difference:
    """The function that compares two cells of a grid: the runs it compares, and the first mean minus the second.

    Args:
        rows: Gives what is compared of a cell, by seed.
    """
    named = names(measured.cells, rows)
    runs = {run.id: run for cell in measured.cells for run in cell.work}
    noise = pooled(samples(measured, measured.cells, rows))

    def difference(a: Cell, b: Cell) -> tuple[Compared, Estimate | None]:
        both = [[runs[row.run] for row in rows(cell).values()] for cell in (a, b)]
        if any(row.metric in DERIVED for row in rows(a).values()):  # they name pretrainings
            both = [list(a.finetunings), list(b.finetunings)]
        within = trunks.are_shared(both)
        compared = comparable([rows(a), rows(b)], within)
        if not compared.n or named[a.label] == named[b.label] or trunks.ask_different_questions(both):
            return compared, None
        keys = (named[a.label], named[b.label])
        sides = {key: list(side.values()) for key, side in zip(keys, compared.values, strict=True)}
        terms = list(zip(keys, (1.0, -1.0), strict=True))
        return compared, blocked(terms, sides) if within else linear(terms, sides, noise)

    return difference


def about(grid: Grid, cells: Sequence[Cell]) -> str:
    """Within which groups variances are pooled, and which cells are compared within seeds, in a few sentences."""
    tuned = any(cell.tuned for cell in cells)
    return f"{trunks.OF_TUNED} {_of(grid, cells, 'runs')}" if tuned else _of(grid, cells, "runs")


def _of(grid: Grid, cells: Sequence[Cell], runs: str) -> str:
    if trunks.of_cells(cells):
        return (
            "Cells that continue from common trunks are compared trunk by trunk, and the spread of these differences "
            "over trunks is their noise."
        )
    within = any(trunks.are_shared([a.zero_shot, b.zero_shot]) for a, b in itertools.combinations(cells, 2))
    readings = " Cells that read the same models in several ways are compared model by model." if within else ""
    if not grid.variance_groups:
        count = len({tuple(run.id for run in cell.work) or cell.label for cell in cells})
        once = "" if count == len(cells) else " (cells of the same runs count once)"
        return f"Variances of {runs} are pooled by moderation over all {count} cells, for each metric{once}.{readings}"
    groups = "; ".join(_text(when) for when in grid.variance_groups)
    return f"Variances of {runs} are pooled by moderation within groups of cells, for each metric: {groups}.{readings}"


def _text(when: Mapping[str, object]) -> str:
    listed = {path: list(value) if isinstance(value, (list, tuple)) else [value] for path, value in when.items()}
    return " and ".join(" or ".join(cell_text({path: one}) for one in values) for path, values in listed.items())
