"""The sides of a claim: their cells, their measurements seed by seed, and their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from ablations.core.formatting import cell_text, value_text
from ablations.literature.published_values import same
from ablations.measurements.derived import DERIVED
from ablations.measurements.measurements import Measurements, lineage
from ablations.measurements.pairs import paired_by_seed, side_of
from ablations.measurements.references import references
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.run import Run

_LOST = ("diverged", "invalid")  # outcomes without a result


@dataclass(frozen=True)
class Sides:
    """The sides of a claim with their data.

    Attributes:
        names: The names of the sides for people; later ones are short.
        values: The measurements of each side by seed; all sides have the same seeds.
        runs: The run ids of each seed, in the order of the sides.
        behind: Every run that the verdict needs, parents included.
        notes: What is left out and why, one sentence each.
        plateau: For each side, whether at least half of its runs are on the plateau.
        lost: Phrases about planned runs that ended without a result.
        missing: Why a side has no cell; empty if all have one.
    """

    names: tuple[str, ...]
    values: tuple[dict[int, float], ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()
    behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    plateau: tuple[bool, ...] = ()
    lost: tuple[str, ...] = ()
    missing: str = ""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that all sides have."""
        return tuple(sorted(self.values[0])) if self.values else ()


def collect(table: Measurements, claim: Claim) -> Sides:
    """The sides of a claim among the cells of a scale, with the measurements of their finished runs."""
    cells: list[Cell] = []
    for letter, side in zip(ascii_lowercase, claim.asked, strict=False):
        fitting = side_of(table.grid, table.cells, side)
        if len(fitting) != 1:
            fault = "is not among the cells" if not fitting else f"fits {len(fitting)} cells"
            missing = f"side {letter} ({cell_text(side)}) {fault} of this scale"
            return Sides(names(claim, ()), missing=missing)
        cells.append(fitting[0])
    if claim.against:
        cells = cells[:1]
        sides = [table.of(cells[0], metric) for metric in (claim.metric, claim.against)]
    else:
        sides = [table.of(cell, claim.metric) for cell in cells]
    pairing = paired_by_seed(sides)
    return Sides(
        names=names(claim, cells),
        values=pairing.values,
        runs=pairing.runs,
        behind=_behind(cells, claim.metric, pairing.seeds),
        notes=() if claim.against else pairing.notes,
        plateau=pairing.plateau,
        lost=_lost(cells, claim.metric, table),
    )


def _measuring(cell: Cell, metric: str) -> tuple[Run, ...]:
    """The runs that measure a metric: fine-tunings for ``<task>.<metric>`` and averages, else pretrainings."""
    task = metric.partition(".")[0]
    return (
        cell.finetunings
        if metric in DERIVED
        else tuple(run for run in cell.finetunings if run.task == task) or cell.runs
    )


def _lost(cells: Sequence[Cell], metric: str, table: Measurements) -> tuple[str, ...]:
    ended: dict[str, int] = {}
    for run in {run.id: run for cell in cells for run in _measuring(cell, metric)}.values():
        records = [table.get(member.id) for member in lineage(run)]
        outcome = next((record.outcome for record in records if record and record.outcome in _LOST), "")
        if outcome:
            ended[outcome] = ended.get(outcome, 0) + 1
    return tuple(f"{count} run{'s' * (count > 1)} {outcome}" for outcome, count in sorted(ended.items()))


def _behind(cells: Sequence[Cell], metric: str, seeds: Sequence[int]) -> tuple[str, ...]:
    used = (run for cell in cells for run in _measuring(cell, metric) if run.seed in set(seeds))
    return tuple(dict.fromkeys(member.id for run in used for member in lineage(run)))


@dataclass(frozen=True)
class Computing:
    """The cost of the runs behind a verdict, parents included.

    Attributes:
        runs: Distinct runs with a record.
        seconds: Training time, summed over runs, simultaneous ones too.
        flops: Floating-point operations of training.
    """

    runs: int = 0
    seconds: float = 0.0
    flops: float = 0.0


def computing(ids: Sequence[str], table: Measurements) -> Computing:
    """The cost of runs, each counted once."""
    records = [record for id in dict.fromkeys(ids) if (record := table.get(id)) is not None]
    seconds, flops = (sum(record.cost.get(key, 0.0) for record in records) for key in ("seconds", "flops"))
    return Computing(len(records), seconds, flops)


def names(claim: Claim, cells: Sequence[Cell]) -> tuple[str, ...]:
    """``masking rate 40 %`` and ``15 %``: the names of the sides by the values of their cells; later ones are short.

    A claim names its sides by published values; where a small scale has stand-ins, the name has both:
    ``num_layers 4 (for 12)``. Later sides leave out what all sides share.
    """
    sides, theirs = [dict(side) for side in claim.asked], [""] * len(claim.asked)
    shared = _shared(sides) if len(sides) > 2 else set()
    for n, (side, cell) in enumerate(zip(sides, cells, strict=False)):
        named = side.keys() - (shared if n else set())
        stood_for = [value_text(path, cell.printed[path]) for path in side if path in cell.printed and path in named]
        theirs[n] = f" (for {', '.join(stood_for)})" if stood_for else ""
        side |= {path: cell.values[path] for path in side}
    first = cell_text(sides[0]) + theirs[0]
    if claim.against:
        return first, _reference_text(claim)
    later = [{path: value for path, value in side.items() if path not in shared} for side in sides[1:]]
    alike = all(side.keys() == sides[0].keys() for side in sides)
    has_one_axis = alike and len(sides[0]) - len(shared) == 1
    short = [value_text(*next(iter(side.items()))) if has_one_axis else cell_text(side) for side in later]
    return first, *(text + their for text, their in zip(short, theirs[1:], strict=True))


def _shared(sides: Sequence[dict[str, Any]]) -> set[str]:
    first, *others = sides
    return {path for path in first if all(path in side and same(side[path], first[path]) for side in others)}


def _reference_text(claim: Claim) -> str:
    """``the majority class``: the name of what replaces side b."""
    simple = {metric: f"the {name}" for name, metric in references(claim.metric).items()}
    return simple.get(claim.against, claim.against)
