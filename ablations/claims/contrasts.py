"""The sides of a claim: which cells they are, what their runs measured seed by seed, and what people call them.

Only seeds count that every side has finished, on one device class: the pairs of a contrast, for any number of sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from ablations.core.formatting import cell_text, value_text
from ablations.core.metrics import COST
from ablations.literature.published_values import same
from ablations.measurements.derived import DERIVED
from ablations.measurements.frames import (
    PLATEAU,
    Lookup,
    device_class,
    done,
    metric_by_seed,
    references,
    runs_of,
    side_of,
)
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Grid
from ablations.schema.record import Record
from ablations.schema.run import Run


@dataclass(frozen=True)
class Sides:
    """The sides of a claim with their data.

    Attributes:
        names: Of the sides, for people; the later ones in short.
        values: Of each side, by seed; all sides have the same seeds.
        runs: The run ids of each seed, in the order of the sides.
        behind: Every run whose computing a verdict rests on, those that others start from included.
        notes: What was left out and why, one sentence each.
        plateau: Whether a side had not left the plateau (half of its runs or more).
        lost: Sentences about planned runs that ended for good without a result.
        missing: Why there is a side without a cell; empty where all are there.
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
        """The seeds that count."""
        return tuple(sorted(self.values[0])) if self.values else ()


def collect(grid: Grid, cells: Sequence[Cell], claim: Claim, records: Lookup) -> Sides:
    """The sides of a claim among the cells of a scale, with what their finished runs measured."""
    found: list[Cell] = []
    for letter, wanted in zip(ascii_lowercase, claim.asked, strict=False):
        fitting = side_of(grid, cells, wanted)
        if len(fitting) != 1:
            fault = "is not among the cells" if not fitting else f"fits {len(fitting)} cells"
            missing = f"side {letter} ({cell_text(wanted)}) {fault} of this scale"
            return Sides(names(claim, ()), missing=missing)
        found.append(fitting[0])
    if claim.against:
        return _against(found[0], claim, records)
    records_of = [done(cell, records, claim.metric) for cell in found]
    measured = [metric_by_seed(cell, records, claim.metric) for cell in found]
    everywhere = set.intersection(*(set(side) for side in records_of))
    apart = {s for s in everywhere if len({device_class(side[s]) for side in records_of}) > 1}
    seeds = sorted(set.intersection(*(set(side) for side in measured)) - apart)
    alone = sorted(set.union(*(set(side) for side in measured)) - apart - set(seeds))
    return Sides(
        names=names(claim, found),
        values=tuple({seed: side[seed] for seed in seeds} for side in measured),
        runs=tuple(tuple(side[seed].id for side in records_of) for seed in seeds),
        behind=_behind(found, claim.metric, seeds),
        notes=_notes(alone, sorted(apart)),
        plateau=tuple(_on_plateau(cell, claim.metric, records, seeds) for cell in found),
        lost=_lost(found, claim.metric, records),
    )


def _against(cell: Cell, claim: Claim, records: Lookup) -> Sides:
    """A cell's metric beside another metric of the same runs, such as a majority baseline."""
    found = done(cell, records, claim.metric)
    both = metric_by_seed(cell, records, claim.metric), metric_by_seed(cell, records, claim.against)
    seeds = sorted(both[0].keys() & both[1].keys())
    return Sides(
        names=names(claim, [cell]),
        values=tuple({seed: side[seed] for seed in seeds} for side in both),
        runs=tuple((found[seed].id, found[seed].id) for seed in seeds),
        behind=_behind([cell], claim.metric, seeds),
        plateau=(_on_plateau(cell, claim.metric, records, seeds),) * 2,
        lost=_lost([cell], claim.metric, records),
    )


def _notes(alone: Sequence[int], apart: Sequence[int]) -> tuple[str, ...]:
    notes = []
    if alone:
        notes.append(f"only common seeds are compared; seeds without a partner: {', '.join(map(str, alone))}")
    if apart:
        notes.append(f"never compared across device classes: seeds {', '.join(map(str, apart))} left out")
    return tuple(notes)


def _on_plateau(cell: Cell, metric: str, records: Lookup, seeds: Sequence[int]) -> bool:
    pretrained = {} if metric.startswith(COST) else done(cell, records)
    flags = [bool(pretrained[seed].metrics.get(PLATEAU, False)) for seed in seeds if seed in pretrained]
    return bool(flags) and 2 * sum(flags) >= len(flags)


def _measuring(cell: Cell, metric: str) -> tuple[Run, ...]:
    """The runs that a metric is measured in, of an average over tasks all fine-tunings."""
    return cell.tuned if metric in DERIVED else runs_of(cell, metric)


def _lost(cells: Sequence[Cell], metric: str, records: Lookup) -> tuple[str, ...]:
    ended: dict[str, int] = {}
    for run in {run.id: run for cell in cells for run in _measuring(cell, metric)}.values():
        lineage = [records.get(one.id) for one in _lineage(run)]
        outcome = next((one.outcome for one in lineage if one and one.outcome in ("diverged", "invalid")), "")
        if outcome:
            ended[outcome] = ended.get(outcome, 0) + 1
    return tuple(f"{count} run{'s' * (count > 1)} {outcome}" for outcome, count in sorted(ended.items()))


def _lineage(run: Run) -> list[Run]:
    """A run and those that it starts from."""
    return [run, *(_lineage(run.parent) if run.parent is not None else ())]


def _behind(cells: Sequence[Cell], metric: str, seeds: Sequence[int]) -> tuple[str, ...]:
    used = (run for cell in cells for run in _measuring(cell, metric) if run.seed in set(seeds))
    return tuple(dict.fromkeys(one.id for run in used for one in _lineage(run)))


@dataclass(frozen=True)
class Computing:
    """What the runs behind a verdict took, those included that others start from.

    Attributes:
        runs: Distinct runs with a record.
        seconds: Of training, summed over runs, whatever ran at the same time.
        flops: Floating-point operations of training.
    """

    runs: int = 0
    seconds: float = 0.0
    flops: float = 0.0


def computing(ids: Sequence[str], records: Lookup) -> Computing:
    """What runs took, each counted once."""
    found: list[Record] = [record for id in dict.fromkeys(ids) if (record := records.get(id)) is not None]
    seconds, flops = (sum(record.cost.get(key, 0.0) for record in found) for key in ("seconds", "flops"))
    return Computing(len(found), seconds, flops)


def names(claim: Claim, cells: Sequence[Cell]) -> tuple[str, ...]:
    """``masking rate 40 %`` and ``15 %``: the sides as the cells at hand have them, the later ones in short.

    A claim names its sides by published values; where others stand for them at a small scale, both are said:
    ``num_layers 4 (for 12)``. Later sides leave out what all sides share.
    """
    sides, theirs = [dict(side) for side in claim.asked], [""] * len(claim.asked)
    shared = _shared(sides) if len(sides) > 2 else set()
    for n, (side, cell) in enumerate(zip(sides, cells, strict=False)):
        told = side.keys() - (shared if n else set())
        stood_for = [value_text(path, cell.printed[path]) for path in side if path in cell.printed and path in told]
        theirs[n] = f" (for {', '.join(stood_for)})" if stood_for else ""
        side |= {path: cell.values[path] for path in side}
    first = cell_text(sides[0]) + theirs[0]
    if claim.against:
        return first, _reference_text(claim)
    later = [{path: value for path, value in side.items() if path not in shared} for side in sides[1:]]
    alike = all(side.keys() == sides[0].keys() for side in sides)
    one = alike and len(sides[0]) - len(shared) == 1
    short = [value_text(*next(iter(side.items()))) if one else cell_text(side) for side in later]
    return first, *(text + their for text, their in zip(short, theirs[1:], strict=True))


def _shared(sides: Sequence[dict[str, Any]]) -> set[str]:
    first, *others = sides
    return {path for path in first if all(path in side and same(side[path], first[path]) for side in others)}


def _reference_text(claim: Claim) -> str:
    """``the majority class``: what stands in for side b."""
    simple = {metric: f"the {name}" for name, metric in references(claim.metric).items()}
    return simple.get(claim.against, claim.against)
