"""Claims about cells that searched their own settings, such as a learning rate: does the verdict depend on it?

A cell at its best rate is judged by seeds that chose nothing. The trials of the search say what a rate common to all
sides would have shown. If the direction there is the opposite, the claim is open: it is about the rate. It is about the
length of training where all sides chose one rate, and trials there, which may be shorter, contradict the runs.

Trials have few seeds, often one, so that their own spread is not known: their intervals have the noise of the runs that
are compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablations.claims.contrasts import Sides
from ablations.claims.outcomes import Direction
from ablations.claims.relations import RELATIONS
from ablations.claims.sample import Sample
from ablations.core.estimates import Estimate
from ablations.core.formatting import cell_text
from ablations.core.statistics import LEVEL, Interval
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim

Setting = Mapping[str, object]  # searched knob -> value


@dataclass(frozen=True)
class Move:
    """The effect of a claim as the trials of its sides show it.

    Attributes:
        setting: That of all sides; empty where each side has the one that it chose.
        interval: The effect with its 95 % interval, not corrected for claims; without one where it is of fine-tunings,
            as the noise of the examples on which trials are scored is not known.
        direction: On which side of the null value that interval lies.
        point: On which side the effect itself lies.
    """

    setting: Setting
    interval: Interval
    direction: Direction
    point: Direction


def moves(claim: Claim, sides: Sides, measured: Measurements) -> list[Move]:
    """What the trials show of a claim: each side as it chose, then all sides in each setting that all of them tried.

    Empty where some side made no search, or has not chosen; for a spread, which single trials do not have; and for a
    claim against a simple method.
    """
    if not _is_searched(claim, sides):
        return []
    tried = [dict(trial.values) for trial in sides.cells[0].search]
    found = [({}, _shown(claim, sides, measured, [cell.chosen for cell in sides.cells]))]
    found += [(one, _shown(claim, sides, measured, [one] * len(sides.cells))) for one in tried]
    relation = RELATIONS[claim.relation]
    told = [(setting, interval) for setting, interval in found if interval is not None]
    if sides.sample.crossed:
        return [
            Move(setting, Interval(one.mean, None, None, one.n), Direction.OPEN, relation.direction(_point(one)))
            for setting, one in told
        ]
    return [Move(setting, one, relation.direction(one), relation.direction(_point(one))) for setting, one in told]


def differs_at_common(claim: Claim, sides: Sides, estimates: Sequence[Estimate], measured: Measurements) -> str:
    """In which common setting the direction is the opposite, as a phrase; empty if in none.

    Common settings are those that the search of some side chose, given to all sides. If all sides chose one setting,
    only a direction that is shown can be the opposite of that of its trials.
    """
    if not _is_searched(claim, sides):
        return ""
    relation = RELATIONS[claim.relation]
    found = relation.direction(_point(relation.interval(estimates, LEVEL)))
    opposite = Direction.NEGATIVE if found is Direction.POSITIVE else Direction.POSITIVE
    settings = list(dict.fromkeys(tuple(cell.chosen.items()) for cell in sides.cells))
    if len(settings) == 1 and relation.direction(relation.interval(estimates, LEVEL)) is Direction.OPEN:
        return ""
    for setting in settings:
        interval = _shown(claim, sides, measured, [dict(setting)] * len(sides.cells))
        if interval is not None and relation.direction(interval) is opposite:
            where = f"in their searches{_shorter(sides)}"
            return f"at {cell_text(dict(setting))} for all sides, {where}, the direction is the opposite"
    return ""


def _is_searched(claim: Claim, sides: Sides) -> bool:
    """Whether all sides chose by trials that show the effect of a claim."""
    if claim.against or claim.relation == "spread":
        return False
    return bool(sides.cells) and all(cell.search and cell.chosen for cell in sides.cells)


def _shown(claim: Claim, sides: Sides, measured: Measurements, settings: Sequence[Setting]) -> Interval | None:
    """The effect by the trials of each side in its setting; None if a side lacks them, or they say nothing."""
    relation = RELATIONS[claim.relation]
    values = [_tried(measured, cell, one, claim.metric) for cell, one in zip(sides.cells, settings, strict=True)]
    if not sides.n or not all(values):
        return None
    sample = _sample(sides.sample, values)
    if relation.problem(sample.values):
        return None
    return relation.interval(relation.estimates(claim, sample), LEVEL)


def _shorter(sides: Sides) -> str:
    """``, after 1,500 of 3,000 steps``, where trials are shorter than the runs."""
    cell = sides.cells[0]
    trial, run = cell.search[0].system.training.steps, cell.system.training.steps
    return f", after {trial:,} of {run:,} steps" if trial < run else ""


def _sample(judged: Sample, values: Sequence[tuple[float, ...]]) -> Sample:
    """The values of trials with the noise of the evaluation; of one trunk, that within trunks."""
    if judged.within is None:
        return Sample(judged.keys, tuple(values), judged.groups)
    return Sample(judged.keys, tuple(values), known=dict.fromkeys(judged.keys, judged.within), blocked=True)


def _point(interval: Interval) -> Interval:
    return replace(interval, low=interval.mean, high=interval.mean)


def _tried(measured: Measurements, cell: Cell, setting: Setting, metric: str) -> tuple[float, ...]:
    trials = (trial for trial in cell.search if dict(trial.values) == setting)
    return tuple(row.value for trial in trials for row in measured.of_trial(trial, metric).values())
