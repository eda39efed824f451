"""Cells compared: which cell is the baseline of which, and runs of several cells paired by seed.

Pairs are never formed across device classes: a run on a GPU and one on a CPU differ by more than the knob.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablations.core.statistics import Contrast, paired
from ablations.literature.published_values import same
from ablations.measurements.table import BySeed
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid


def as_printed(cell: Cell) -> dict[str, Any]:
    """The values of a cell as papers print them: grids name baselines and claims by those."""
    return {**cell.values, **cell.printed}


def matching(cells: Sequence[Cell], wanted: Mapping[str, Any]) -> list[Cell]:
    """The cells that have these values, as printed; a path that is no axis of a cell never matches."""
    return [
        cell
        for cell in cells
        if all(path in cell.values and same(as_printed(cell)[path], value) for path, value in wanted.items())
    ]


def side_of(grid: Grid, cells: Sequence[Cell], wanted: Mapping[str, Any]) -> list[Cell]:
    """The cells meant by a few values: every other axis stands at the baseline, or moves along where it is zipped."""
    home = {**(as_printed(cells[0]) if cells else {}), **grid.baseline}
    return matching(cells, _moved(grid, home, wanted))


def baseline_of(grid: Grid, cells: Sequence[Cell], cell: Cell) -> Cell | None:
    """The cell that ``cell`` is compared with: itself but for the baseline's values. None where there is none."""
    if not grid.baseline:
        return None
    found = matching(cells, _moved(grid, as_printed(cell), grid.baseline))
    return found[0] if len(found) == 1 else None


def _moved(grid: Grid, home: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """``home`` with other values; what is zipped to a changed axis is left open."""
    open_paths = {path for group in grid.zip if wanted.keys() & set(group) for path in group}
    return {path: value for path, value in home.items() if path not in open_paths} | dict(wanted)


@dataclass(frozen=True)
class Paired:
    """The measurements of several sides from the seeds that all of them have, on one device class.

    Attributes:
        sides: Of each side its measurements by seed; all sides have the same seeds.
        alone: Seeds that some side lacks.
        apart: Seeds left out because the sides were made on different device classes.
    """

    sides: tuple[BySeed, ...]
    alone: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that count."""
        return tuple(sorted(self.sides[0]))

    @property
    def values(self) -> tuple[dict[int, float], ...]:
        """Of each side its values by seed."""
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
        """Whether a side had not left the plateau: half of its runs or more."""
        flags = [[row.plateau for row in side.values() if row.plateau is not None] for side in self.sides]
        return tuple(bool(side) and 2 * sum(side) >= len(side) for side in flags)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out and why, one sentence each."""
        notes = []
        if self.alone:
            notes.append(f"only common seeds are compared; seeds without a partner: {_listed(self.alone)}")
        if self.apart:
            notes.append(f"never compared across device classes: seeds {_listed(self.apart)} left out")
        return tuple(notes)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def paired_by_seed(sides: Sequence[BySeed]) -> Paired:
    """Pairs the measurements of two sides or more by seed, within one device class."""
    common = set.intersection(*(set(side) for side in sides))
    apart = {seed for seed in common if len({side[seed].device for side in sides}) > 1}
    kept = sorted(common - apart)
    alone = sorted(set.union(*(set(side) for side in sides)) - common)
    return Paired(tuple({seed: side[seed] for seed in kept} for side in sides), tuple(alone), tuple(sorted(apart)))
