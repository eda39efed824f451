"""The saving in labels: with how many times as many labels one side of a grid's curves is as good as the other."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ablations.core.formatting import Sheet, cell_text, fixed
from ablations.core.saving import Saving, saving
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import matching
from ablations.schema.cell import Cell
from ablations.schema.grid import Saving as Asked
from lightning_modules.tasks.pins import expected

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
            [cell_text(asked.a), cell_text(asked.b), asked.metric, count, score, *map(_end, _numbers(one)),
             one.least * count, one.most * count, one.n]
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


def _numbers(one: Saving) -> tuple[float | None, float | None, float | None]:
    return one.times, one.low, one.high


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
