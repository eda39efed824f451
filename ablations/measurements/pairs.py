"""Comparing cells: the baseline of each cell, and runs of several cells paired by seed.

Pairs never cross device classes: a run on a GPU and one on a CPU differ by more than the knob.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablations.core.statistics import Contrast, paired
from ablations.literature.published_values import same
from ablations.measurements.measurements import BySeed
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid


def as_printed(cell: Cell) -> dict[str, Any]:
    """The values of a cell as papers print them; grids name baselines and claims by these."""
    return {**cell.values, **cell.printed}


def matching(cells: Sequence[Cell], values: Mapping[str, Any]) -> list[Cell]:
    """The cells with these values, as printed; a path that is no axis of a cell never matches."""
    return [
        cell
        for cell in cells
        if all(path in cell.values and same(as_printed(cell)[path], value) for path, value in values.items())
    ]


def side_of(grid: Grid, cells: Sequence[Cell], values: Mapping[str, Any]) -> list[Cell]:
    """The cells that a few values select: other axes are at the baseline; axes zipped to a given one follow it."""
    start = {**(as_printed(cells[0]) if cells else {}), **grid.baseline}
    return matching(cells, _moved(grid, start, values))


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


@dataclass(frozen=True)
class Paired:
    """The measurements of several sides of a comparison for their common seeds, on one device class each.

    Attributes:
        sides: The measurements of each side by seed; all sides have the same seeds.
        alone: Seeds that some side lacks.
        apart: Seeds left out because the sides ran on different device classes.
    """

    sides: tuple[BySeed, ...]
    alone: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The common seeds, in order."""
        return tuple(sorted(self.sides[0]))

    @property
    def values(self) -> tuple[dict[int, float], ...]:
        """The values of each side by seed."""
        return tuple({seed: row.value for seed, row in side.items()} for side in self.sides)

    @property
    def contrast(self) -> Contrast:
        """The first side minus the second, by seed."""
        return paired(*self.values[:2])

    @property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """The run ids of each seed, in the order of the sides."""
        return tuple(tuple(side[seed].run for side in self.sides) for seed in self.seeds)

    @property
    def plateau(self) -> tuple[bool, ...]:
        """Whether each side is on the plateau: half of its runs or more have not left it."""
        flags = [[row.plateau for row in side.values() if row.plateau is not None] for side in self.sides]
        return tuple(bool(side) and 2 * sum(side) >= len(side) for side in flags)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out and why, one sentence each."""
        notes = []
        if self.alone:
            notes.append(f"only common seeds are compared; unpaired seeds: {_listed(self.alone)}")
        if self.apart:
            notes.append(f"seeds {_listed(self.apart)} are left out: their runs come from different device classes")
        return tuple(notes)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def paired_by_seed(sides: Sequence[BySeed]) -> Paired:
    """Pairs the measurements of two or more sides by seed, within one device class."""
    common = set.intersection(*(set(side) for side in sides))
    apart = {seed for seed in common if len({side[seed].device for side in sides}) > 1}
    kept = sorted(common - apart)
    alone = sorted(set.union(*(set(side) for side in sides)) - common)
    return Paired(tuple({seed: side[seed] for seed in kept} for side in sides), tuple(alone), tuple(sorted(apart)))
