"""The saving in labels: with how many times as many labels one side of a grid's curves is as good as the other.

Scores rise with the logarithm of the number of labels, on a line between two measured numbers. A curve reaches a score
where it first does, so a dip behind it changes nothing. What lies beyond a curve is censored, never extrapolated: at
least, or at most, so many times as many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablations.core.formatting import Sheet, cell_text, fixed
from ablations.core.statistics import LEVEL
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import matching
from ablations.schema.cell import Cell
from ablations.schema.grid import Saving as Asked
from lightning_modules.tasks.pins import expected

_DRAWS = 10_000


@dataclass(frozen=True)
class Saving:
    """How many times as many labels a score takes.

    Attributes:
        times: From the means over seeds; infinite beyond the most labels of the curve, 0 below the fewest.
        low, high: The interval, likewise; None of one seed.
        least, most: What the ends of the curve are, in the same unit.
        n: The number of seeds.
    """

    times: float
    low: float | None
    high: float | None
    least: float
    most: float
    n: int

    def text(self) -> str:
        """``9.8 [6.1, more than 250]``; ``(n = 1)`` without an interval."""
        if self.low is None or self.high is None:
            return f"{self._one(self.times)} (n = {self.n})"
        return f"{self._one(self.times)} [{self._one(self.low)}, {self._one(self.high)}]"

    def _one(self, times: float) -> str:
        if math.isinf(times):
            return f"more than {self.most:.3g}"
        return f"less than {self.least:.3g}" if times == 0 else f"{times:.3g}"


def reached(labels: np.ndarray, scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """With how many labels a curve first reaches a score ``[...]``.

    Args:
        labels: Numbers of labels, which ascend ``[points]``.
        scores: The curves ``[..., points]``, better when higher.
        wanted: The scores ``[...]``.

    Returns:
        Infinity where no point of the curve is as high, 0 where the first is higher.

    >>> curve = np.array([0.6, 0.8, 0.9])
    >>> reached(np.array([100, 1_000, 10_000]), curve, np.array(0.7)).round(1).item()
    316.2
    >>> [reached(np.array([100, 1_000, 10_000]), curve, np.array(w)).item() for w in (0.5, 0.95)]
    [0.0, inf]
    """
    x, wanted = np.log(labels), np.asarray(wanted, dtype=float)
    above = scores >= wanted[..., None]
    after = above.argmax(axis=-1)
    before = np.maximum(after - 1, 0)
    low, high = (np.take_along_axis(scores, place[..., None], axis=-1)[..., 0] for place in (before, after))
    rise = np.where(high > low, high - low, 1.0)
    at = np.exp(x[before] + (x[after] - x[before]) * np.where(after > 0, (wanted - low) / rise, 0.0))
    at = np.where((after == 0) & (scores[..., 0] > wanted), 0.0, at)
    return np.where(above.any(axis=-1), at, np.inf)


def saving(labels: Sequence[int], scores: np.ndarray, count: int, reference: np.ndarray) -> Saving:
    """The saving of one way of training over another, whose curve is given.

    The interval is of percentiles of a bootstrap over seeds (Efron and Tibshirani 1993, chapter 13): a seed has its
    labels in all cells and is drawn with all its scores. With few seeds it is too narrow: of 4 seeds it covered the
    truth in 79 of 100 simulated studies, of 8 in 89, of 16 in 92.

    Args:
        labels: Numbers of labels of the curve, which ascend ``[points]``.
        scores: The curve of each seed, better when higher ``[seeds, points]``.
        count: The labels of the reference.
        reference: Its score in each seed ``[seeds]``.
    """
    numbers, n = np.asarray(labels, dtype=float), len(reference)
    times = float(reached(numbers, scores.mean(axis=0), reference.mean())) / count
    ends = float(numbers[0]) / count, float(numbers[-1]) / count
    if n < 2:
        return Saving(times, None, None, *ends, n)
    drawn = np.random.default_rng(0).integers(0, n, (_DRAWS, n))
    again = np.sort(reached(numbers, scores[drawn].mean(axis=1), reference[drawn].mean(axis=1))) / count
    tail = int(_DRAWS * (1 - LEVEL) / 2)
    return Saving(times, float(again[tail]), float(again[-1 - tail]), *ends, n)


TITLE = "The saving in labels"
_Curve = dict[int, dict[int, float]]  # labels -> seed -> score


def sheets(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row for each saving that the grid asks for and each number of labels; None where no two cells have a score."""
    found = [(asked, *row) for asked in measured.grid.savings for row in _savings(measured, asked)]
    if not found:
        return None
    reading = Sheet(
        ["labels", "with", "score", "as good as", "with this multiple of the labels", "seeds"],
        [
            [f"{count:,}", cell_text(asked.a), fixed(score, 3), cell_text(asked.b), one.text(), one.n]
            for asked, count, score, one, _ in found
        ],
        left=2,
        notes=_notes(measured),
        brief=["as good as", "with this multiple of the labels", "seeds"],
    )
    everything = Sheet(
        ["a", "b", "metric", "labels", "score", "times", "low", "high", "curve from", "curve to", "seeds"],
        [
            [cell_text(asked.a), cell_text(asked.b), asked.metric, count, score,
             *map(_end, (one.times, one.low, one.high)), one.least * count, one.most * count, one.n]
            for asked, count, score, one, _ in found
        ],
    )  # fmt: skip
    trace = [
        {"a": dict(asked.a), "b": dict(asked.b), "metric": asked.metric, "labels": count, "runs": runs}
        for asked, count, _, _, runs in found
    ]
    return reading, everything, {"savings": trace}


def _savings(measured: Measurements, asked: Asked) -> Iterator[tuple[int, float, Saving, list[str]]]:
    """For each number of labels of the first side: it, the mean score, the saving, and the runs behind it."""
    sides = [{count: measured.of(cell, asked.metric) for count, cell in _by_labels(measured, asked, side)}
             for side in (asked.a, asked.b)]  # fmt: skip
    first, curve = ({count: rows for count, rows in sorted(side.items()) if rows} for side in sides)
    for count, rows in first.items():
        seeds = sorted(set(rows).intersection(*curve.values()))
        if len(curve) < 2 or not seeds:
            continue
        scores = np.array([[of[seed].value for of in curve.values()] for seed in seeds])
        reference = np.array([rows[seed].value for seed in seeds])
        runs = [row.run for of in (rows, *curve.values()) for seed, row in of.items() if seed in seeds]
        yield count, float(reference.mean()), saving([*curve], scores, count, reference), runs


def _by_labels(measured: Measurements, asked: Asked, side: dict[str, Any]) -> Iterator[tuple[int, Cell]]:
    """The cells of a side, each with its number of labels; those whose search has not chosen have none yet."""
    task = asked.metric.partition(".")[0]
    for cell in matching(measured.cells, side):
        for tuning in [run.finetuning for run in cell.finetunings if run.task == task and run.finetuning][:1]:
            yield tuning.train_examples or expected(task)["train"].examples, cell


def _end(value: float | None) -> str | float | None:
    """A number for a file; what is beyond the ends of a curve in words."""
    return {float("inf"): "beyond the most", 0.0: "below the fewest"}.get(value, value) if value is not None else None


def _notes(measured: Measurements) -> list[str]:
    notes = [
        "No run has these numbers. They are read off the curve of scores over the logarithm of labels, between two "
        "measured numbers on a line and never beyond. More than, less than: the curve has no such score. Intervals "
        "are 95 % percentiles of a bootstrap over seeds. With few seeds they are too narrow: of four seeds such an "
        "interval covered the truth in 79 of 100 simulated studies."
    ]
    return [*notes, "Searched rates differ from cell to cell."] if any(c.search for c in measured.cells) else notes
