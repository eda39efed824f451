"""Claims about cells that searched their own settings, such as a learning rate: does the direction depend on it?

A cell at its best rate is judged by seeds that chose nothing. The trials of the search say what a rate common to all
sides would have shown. If the direction there is the opposite, the claim is open: it is about the rate. It is about the
length of training where all sides chose one rate, and trials there, which may be shorter, contradict the runs.
"""

from collections.abc import Sequence
from dataclasses import replace

from ablations.claims.contrasts import Sides
from ablations.claims.outcomes import Direction
from ablations.claims.relations import RELATIONS, Better
from ablations.claims.sample import Sample
from ablations.core.estimates import Estimate
from ablations.core.formatting import cell_text
from ablations.core.statistics import LEVEL, Interval
from ablations.measurements.measurements import Measurements
from ablations.schema.claim import Claim


def differs_at_common(claim: Claim, sides: Sides, estimates: Sequence[Estimate], measured: Measurements) -> str:
    """In which common setting the direction is the opposite, as a phrase; empty if in none.

    Common settings are those that the search of some side chose, given to all sides. The runs there are those of the
    searches; the noise of a run is that of the evaluation. If all sides chose one setting, only a direction that is
    shown can be the opposite of that of its trials.
    """
    if claim.against or claim.relation == "spread" or not all(cell.search and cell.chosen for cell in sides.cells):
        return ""
    relation = RELATIONS[claim.relation]
    opposite = Direction.NEGATIVE if _is_positive(relation, estimates) else Direction.POSITIVE
    settings = list(dict.fromkeys(tuple(cell.chosen.items()) for cell in sides.cells))
    if len(settings) == 1 and relation.direction(relation.interval(estimates, LEVEL)) is Direction.OPEN:
        return ""
    for setting in settings:
        values = [_tried(measured, sides, place, setting, claim.metric) for place in range(len(sides.cells))]
        if not all(values):
            continue
        sample = _sample(sides.sample, values)
        if relation.problem(sample.values):
            continue
        direction = relation.direction(relation.interval(relation.estimates(claim, sample), LEVEL))
        if direction is opposite:
            where = f"in their searches{_shorter(sides)}"
            return f"at {cell_text(dict(setting))} for all sides, {where}, the direction is the opposite"
    return ""


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


def _is_positive(relation: Better, estimates: Sequence[Estimate]) -> bool:
    """Whether the estimate lies on the claimed side of the null value, which for a ratio is 1."""
    return relation.direction(_point(relation.interval(estimates, LEVEL))) is Direction.POSITIVE


def _point(interval: Interval) -> Interval:
    return replace(interval, low=interval.mean, high=interval.mean)


def _tried(
    measured: Measurements, sides: Sides, place: int, setting: tuple[tuple[str, object], ...], metric: str
) -> tuple[float, ...]:
    """The values of a cell's trials in a setting."""
    trials = (trial for trial in sides.cells[place].search if tuple(trial.values.items()) == setting)
    return tuple(row.value for trial in trials for row in measured.of_trial(trial, metric).values())
