"""The noise of one run in each cell: variances pooled by moderation within the groups that a grid declares."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ablations.core.estimates import Estimate, blocked, linear
from ablations.core.formatting import cell_text
from ablations.core.moderation import Variance, moderated
from ablations.measurements import trunks
from ablations.measurements.measurements import BySeed, Measurements
from ablations.measurements.sides import Compared, agrees, as_printed, comparable
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid

Samples = Mapping[str, Sequence[float]]


def group_of(grid: Grid, cell: Cell) -> int:
    """The number of the variance group of a cell; 0 if the grid declares none, and all cells are one group."""
    printed = as_printed(cell)
    return next((n for n, when in enumerate(grid.variance_groups) if agrees(printed, when)), 0)


def samples(
    measured: Measurements, cells: Iterable[Cell], values: Callable[[Cell], Sequence[float]]
) -> dict[int, dict[str, Sequence[float]]]:
    """The values of each cell of the groups that some cells belong to: group -> cell -> a value for each run.

    Args:
        measured: The measurements of all cells of the grid.
        cells: The cells that are compared.
        values: Gives the values of a cell.
    """
    wanted = {group_of(measured.grid, cell) for cell in cells}
    grouped: dict[int, dict[str, Sequence[float]]] = {group: {} for group in sorted(wanted)}
    for cell in measured.cells:
        group = group_of(measured.grid, cell)
        if group in wanted and (found := values(cell)):
            grouped[group][cell.label] = found
    return grouped


def pooled(groups: Mapping[int, Samples]) -> dict[str, Variance]:
    """The variance of one run of each cell, moderated within its group; a group without any noise has none."""
    return {cell: variance for group in groups.values() for cell, variance in moderated(group).variances.items()}


Difference = Callable[[Cell, Cell], tuple[Compared, Estimate | None]]


def differences(measured: Measurements, rows: Callable[[Cell], BySeed]) -> Difference:
    """The function that compares two cells of a grid: the runs it compares, and the first mean minus the second.

    Args:
        measured: The measurements of all cells.
        rows: Gives what is compared of a cell, by seed.
    """
    values = {cell.label: [row.value for row in rows(cell).values()] for cell in measured.cells}
    runs = {run.id: run for cell in measured.cells for run in cell.work}
    noise = pooled(samples(measured, measured.cells, lambda cell: values[cell.label]))

    def difference(a: Cell, b: Cell) -> tuple[Compared, Estimate | None]:
        both = [[runs[row.run] for row in rows(cell).values()] for cell in (a, b)]
        within = trunks.are_shared(both)
        compared = comparable([rows(a), rows(b)], within)
        if not compared.n or trunks.ask_different_questions(both):
            return compared, None
        names = (a.label, b.label)
        sides = {name: list(side.values()) for name, side in zip(names, compared.values, strict=True)}
        terms = list(zip(names, (1.0, -1.0), strict=True))
        return compared, blocked(terms, sides) if within else linear(terms, sides, noise)

    return difference


def about(grid: Grid, cells: Sequence[Cell]) -> str:
    """Within which groups variances are pooled, as a sentence."""
    if trunks.of_cells(cells):
        return (
            "Cells that continue from common trunks are compared trunk by trunk, and the spread of these differences "
            "over trunks is their noise."
        )
    if not grid.variance_groups:
        return f"Variances of runs are pooled by moderation over all {len(cells)} cells, for each metric."
    groups = "; ".join(_text(when) for when in grid.variance_groups)
    return f"Variances of runs are pooled by moderation within groups of cells, for each metric: {groups}."


def _text(when: Mapping[str, object]) -> str:
    listed = {path: list(value) if isinstance(value, (list, tuple)) else [value] for path, value in when.items()}
    return " and ".join(" or ".join(cell_text({path: one}) for one in values) for path, values in listed.items())
