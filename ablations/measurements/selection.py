"""Which cells a few values select, those of the grid's ``means`` included."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablations.literature.published_values import same
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid


def as_printed(cell: Cell) -> dict[str, Any]:
    """The values of a cell as papers print them; grids name baselines and claims by these."""
    return {**cell.values, **cell.printed}


def paths_of(cells: Iterable[Cell]) -> list[str]:
    """The paths in which some cells have values, each once, in their order."""
    return list(dict.fromkeys(path for cell in cells for path in cell.values))


def agrees(values: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Whether a combination has the values of a pattern. A list matches any of its items."""
    return all(path in values and _is_one_of(values[path], options) for path, options in pattern.items())


def _is_one_of(value: Any, options: Any) -> bool:
    if isinstance(options, (list, tuple)) and not isinstance(value, (list, tuple)):
        return any(same(value, item) for item in options)
    return same(value, options)


def matching(cells: Sequence[Cell], values: Mapping[str, Any]) -> list[Cell]:
    """The cells with these values, as printed; a path that is no axis of a cell never matches."""
    return [
        cell
        for cell in cells
        if all(path in cell.values and same(as_printed(cell)[path], value) for path, value in values.items())
    ]


def side_of(grid: Grid, cells: Sequence[Cell], values: Mapping[str, Any]) -> list[Cell]:
    """The cells that a few values select: other axes are at the baseline; axes zipped to a given one follow it.

    Rows of the grid's ``means`` are selected as cells are.
    """
    is_mean = any(mean.at.items() <= dict(values).items() for mean in grid.means)
    start = {**(as_printed(cells[0]) if cells else {}), **grid.baseline}
    return matching(mean_cells(grid, cells) if is_mean else cells, _moved(grid, start, values))


def mean_cells(grid: Grid, cells: Sequence[Cell]) -> list[Cell]:
    """The rows of a grid's ``means`` whose two cells are among those given.

    Each has the pretrainings of the first of its cells and the fine-tunings of both, and no run of its own.
    """
    found = []
    for mean in grid.means:
        parts = [part for side in mean.of for part in side_of(grid, cells, side)]
        if len(parts) != len(mean.of):
            continue
        ((axis, name),) = mean.at.items()
        first, second = parts
        update = {
            "values": {**first.values, axis: name},
            "printed": {path: value for path, value in first.printed.items() if path != axis},
            "label": f"{name} (mean of {first.label} and {second.label})",
            "finetunings": (*first.finetunings, *second.finetunings),
            "zero_shot": (),
            "search": (),
        }
        found.append(first.model_copy(update=update))
    return found


def parts_of(grid: Grid, cells: Sequence[Cell], cell: Cell) -> list[Cell]:
    """The two cells of a row of ``means``; any other cell itself."""
    for mean in grid.means:
        if mean.at.items() <= cell.values.items():
            return [part for side in mean.of for part in side_of(grid, cells, side)]
    return [cell]


def baseline_of(grid: Grid, cells: Sequence[Cell], cell: Cell) -> Cell | None:
    """The cell that ``cell`` is compared with: the same but for the baseline's values. None if there is none."""
    if not grid.baseline:
        return None
    candidates = matching(cells, _moved(grid, as_printed(cell), grid.baseline))
    return candidates[0] if len(candidates) == 1 else None


def _moved(grid: Grid, start: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """``start`` with other values; axes zipped to a changed one are left open."""
    open_paths = {path for group in grid.zip if values.keys() & set(group) for path in group}
    return {path: value for path, value in start.items() if path not in open_paths} | dict(values)
