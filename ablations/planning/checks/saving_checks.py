"""Checks of the savings in labels that a grid asks for."""

from collections.abc import Iterator, Mapping, Sequence

from ablations.core.strict_yaml import Document, Path_
from ablations.measurements.selection import agrees
from ablations.planning.cells import Values, label, varied
from ablations.schema.grid import FINETUNING, Grid
from lightning_modules.tasks import TASKS

_LABELS = f"{FINETUNING}train_examples"


def mentioned(grid: Grid) -> Iterator[tuple[Path_, str]]:
    """Every axis that a saving mentions, with its place in the file."""
    for n, saving in enumerate(grid.savings):
        for name, side in (("a", saving.a), ("b", saving.b)):
            yield from ((("savings", n, name, path), path) for path in side)


def check(grid: Grid, rows: Mapping[str, Sequence[Values]], document: Document) -> None:
    """Adds the problems with savings: their cells, their metrics, and grids whose cells have equally many labels.

    Args:
        grid: The grid, whose axes are known.
        rows: Scale -> the combinations of its cells, in published values.
        document: Gets the complaints.
    """
    every = [row for of_scale in rows.values() for row in of_scale]
    if grid.savings and _LABELS not in varied(grid):
        text = f"are of cells with several numbers of labels. Add an axis of {_LABELS}, or variants that set it."
        document.complain(("savings",), text)
    for n, saving in enumerate(grid.savings):
        task, better = saving.metric.partition(".")[0], {metric.name: metric.better for metric in grid.metrics}
        if task not in TASKS or better.get(saving.metric) == "lower":
            text = f"'{saving.metric}' is no score of a task that is better when higher"
            document.complain(("savings", n, "metric"), text)
        if saving.a == saving.b:
            document.complain(("savings", n), "a and b are the same side")
        for name, side in (("a", saving.a), ("b", saving.b)):
            if set(side) <= set(grid.axes) and not any(agrees(row, side) for row in every):
                document.complain(("savings", n, name), f"no cell of any scale has {label(side)}")
