"""Bootstrap intervals of a contrast, for information: over its seeds, and over its seeds and dev examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablations.core.resampling import bootstrap_interval, multibootstrap
from ablations.core.statistics import Contrast, Interval
from ablations.measurements.measurements import Measurements
from ablations.schema.claim import Claim
from ablations.schema.record import Record
from lightning_modules.tasks.scores.kept import unpack

_RIGHT = "right"
_ROUNDING = {"bits": 1e-6, "share": 1 / 510}  # of a record's metric, and of scores kept in steps of 1/255


@dataclass(frozen=True)
class Resampled:
    """Intervals beside the decisive one, not adjusted for the number of claims.

    Attributes:
        seeds: Percentile-t bootstrap over seeds.
        both: Multi-bootstrap over seeds and examples; None if it cannot be computed.
        examples: How many examples ``both`` resamples.
    """

    seeds: Interval
    both: Interval | None = None
    examples: int = 0


def resampled(claim: Claim, contrast: Contrast, runs: Sequence[Sequence[str]], measured: Measurements) -> Resampled:
    """Both intervals of a claim's contrast; positive means that side a is better.

    Examples are resampled if the metric is the mean of the example scores in every run, and all runs have the same
    examples.

    Args:
        claim: Names the metric and its direction.
        contrast: The differences by seed, positive where side a is better.
        runs: The run ids of each pair.
        measured: Holds the records of the runs.
    """
    over_seeds = bootstrap_interval(contrast.differences)
    if len(runs) < 2 or claim.against:
        return Resampled(over_seeds)
    by_run = [_scores(measured.get(run), claim.metric) for pair in runs for run in pair]
    scores = [score for score in by_run if score is not None]
    if len(scores) < len(by_run) or len({(text, len(of)) for text, of in scores}) > 1:
        return Resampled(over_seeds)
    of_runs = np.stack([of for _, of in scores])
    differences = of_runs[::2] - of_runs[1::2]
    return Resampled(
        over_seeds, multibootstrap(-differences if claim.better == "lower" else differences), differences.shape[1]
    )


def _scores(record: Record | None, metric: str) -> tuple[str, np.ndarray] | None:
    """The fingerprint of the examples, and their scores; None if the metric is not the mean of the scores."""
    kept = record.examples.get(_RIGHT, "") if record else ""
    task = metric.partition(".")[0]
    if record is None or not kept or metric not in record.metrics:
        return None
    of = unpack(kept).astype(float)
    rounding = _ROUNDING.get(kept.partition(":")[0], 0.0)
    if not of.size or abs(of.mean() - float(record.metrics[metric])) > rounding:
        return None
    return str(record.config.get("fingerprints", {}).get(task, "")), of


def entries(intervals: Resampled | None) -> tuple[float | int | None, ...]:
    """Columns of a table: ends of the interval over seeds, of that over seeds and examples, number of examples."""
    if intervals is None:
        return (None,) * 5
    both = intervals.both
    ends = (both.low, both.high, intervals.examples) if both else (None, None, None)
    return intervals.seeds.low, intervals.seeds.high, *ends
