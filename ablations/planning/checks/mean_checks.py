"""Checks of the rows of a grid that are means of the probabilities of two cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ablations.core.strict_yaml import Document, Path_
from ablations.measurements.mean_of_two import problem
from ablations.planning.afterwards import tasks_at
from ablations.planning.cells import Values, agrees, label, names_of
from ablations.schema.grid import Grid, Mean
from lightning_modules.config import did_you_mean
from lightning_modules.tasks import TASKS


def mentioned(grid: Grid) -> Iterator[tuple[Path_, str]]:
    """Every axis that a mean mentions, with its place in the file."""
    for n, mean in enumerate(grid.means):
        yield from ((("means", n, "at", path), path) for path in mean.at)
        yield from ((("means", n, "of", m, path), path) for m, side in enumerate(mean.of) for path in side)


def rows_of(grid: Grid, rows: Iterable[Values]) -> list[Values]:
    """The combinations that means represent, where a scale has both of their cells.

    Args:
        rows: The combinations of a scale, in published values.
    """
    every = list(rows)
    found = []
    for mean in grid.means:
        parts = [[row for row in every if agrees(row, {**grid.baseline, **side})] for side in mean.of]
        if all(parts):
            found += [{**row, **mean.at} for row in parts[0]]
    return found


def check(grid: Grid, rows: Mapping[str, Sequence[Values]], document: Document) -> None:
    """Adds the problems with means: their names, their cells, and the tasks and claims that have none.

    Args:
        rows: Scale -> the combinations of its cells, in published values.
    """
    names: list[str] = []
    for n, mean in enumerate(grid.means):
        ((axis, name),) = mean.at.items()
        if name in names or name in (names_of(grid, axis) or map(str, grid.axes.get(axis, ()))):
            document.complain(("means", n, "at", axis), f"'{name}' is a row already. Give the mean another name.")
        names.append(name)
        _check_cells(grid, n, mean, rows, document)
    if grid.means:
        _check_tasks(grid, document)
        _check_claims(grid, document)


def _check_cells(grid: Grid, n: int, mean: Mean, rows: Mapping[str, Sequence[Values]], document: Document) -> None:
    first, second = ({**grid.baseline, **side} for side in mean.of)
    if first == second:
        document.complain(("means", n, "of"), "is one cell twice. Name two cells.")
    every = [row for of_scale in rows.values() for row in of_scale]
    for m, side in enumerate(mean.of):
        if set(side) <= set(grid.axes) and not any(agrees(row, {**grid.baseline, **side}) for row in every):
            path, wanted = next(iter(side.items()))
            values = dict.fromkeys(str(row[path]) for row in every)
            near = did_you_mean(str(wanted), values) or f" {path} has {', '.join(values)}."
            document.complain(("means", n, "of", m), f"no cell of any scale has {label(side)}.{near}")


def _check_tasks(grid: Grid, document: Document) -> None:
    tasks = list(dict.fromkeys(task for scale in grid.scales for task in tasks_at(grid, scale)))
    if not any(task in TASKS and not problem(task) for task in tasks):
        told = "; ".join(f"{task} {problem(task)}" for task in tasks if task in TASKS) or "it is fine-tuned on none"
        allowed = "a task of texts in two classes, such as sst2 or imdb"
        document.complain(("means",), f"need {allowed}, at a scale at least: {told}")


def _check_claims(grid: Grid, document: Document) -> None:
    for n, claim in enumerate(grid.claims):
        task, asked = claim.metric.partition(".")[0], [dict(side) for side in claim.asked]
        if any(_is_mean(grid, side) for side in asked) and (task not in TASKS or problem(task)):
            why = f"{task} {problem(task)}" if task in TASKS else f"{claim.metric} is no score of a task"
            document.complain(("claims", n, "metric"), f"a side is a mean of probabilities, and {why}")


def _is_mean(grid: Grid, side: Mapping[str, Any]) -> bool:
    return any(mean.at.items() <= side.items() for mean in grid.means)
