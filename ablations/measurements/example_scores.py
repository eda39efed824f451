"""What resampling says of a contrast, for information: over its seeds, and over its seeds and dev examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablations.core.resampling import bootstrap_interval, multibootstrap
from ablations.core.statistics import Contrast, Interval
from ablations.measurements.table import Measurements
from ablations.schema.claim import Claim
from ablations.schema.record import Record
from lightning_modules.tasks.scores.kept import unpack

_RIGHT = "right"
_ROUNDING = {"bits": 1e-6, "share": 1 / 510}  # of a record's metric, and of scores kept in steps of 1/255


@dataclass(frozen=True)
class Resampled:
    """Intervals beside the one that decides, not adjusted for the number of claims.

    Attributes:
        seeds: Percentile-t bootstrap over seeds.
        both: Multi-bootstrap over seeds and examples; None where it cannot be had.
        examples: How many examples ``both`` rests on.
    """

    seeds: Interval
    both: Interval | None = None
    examples: int = 0


def resampled(claim: Claim, contrast: Contrast, runs: Sequence[tuple[str, str]], measured: Measurements) -> Resampled:
    """Both intervals of a claim's contrast; positive means that side a is better.

    Examples are resampled where the metric is the mean of how right each answer is, in every run, and all runs were
    asked the same examples.

    Args:
        claim: Names the metric and its direction.
        contrast: The differences by seed, positive where side a is better.
        runs: The run ids of each pair.
        measured: Has the runs' records.
    """
    over_seeds = bootstrap_interval(contrast.differences)
    if len(runs) < 2 or claim.against:
        return Resampled(over_seeds)
    found = [_scores(measured.get(run), claim.metric) for pair in runs for run in pair]
    scores = [score for score in found if score is not None]
    if len(scores) < len(found) or len({(text, len(of)) for text, of in scores}) > 1:
        return Resampled(over_seeds)
    of_runs = np.stack([of for _, of in scores])
    differences = of_runs[::2] - of_runs[1::2]
    return Resampled(
        over_seeds, multibootstrap(-differences if claim.better == "lower" else differences), differences.shape[1]
    )


def _scores(record: Record | None, metric: str) -> tuple[str, np.ndarray] | None:
    """The fingerprint of the examples, and how right each answer was; None where the metric is not their mean."""
    kept = record.examples.get(_RIGHT, "") if record else ""
    task = metric.partition(".")[0]
    if record is None or not kept or metric not in record.metrics:
        return None
    of = unpack(kept).astype(float)
    rounding = _ROUNDING.get(kept.partition(":")[0], 0.0)
    if not of.size or abs(of.mean() - float(record.metrics[metric])) > rounding:
        return None
    return str(record.config.get("fingerprints", {}).get(task, "")), of


def entries(found: Resampled | None) -> tuple[float | int | None, ...]:
    """The columns of a table: the ends of the interval over seeds, those over seeds and examples, and how many."""
    if found is None:
        return (None,) * 5
    both = found.both
    ends = (both.low, both.high, found.examples) if both else (None, None, None)
    return found.seeds.low, found.seeds.high, *ends
