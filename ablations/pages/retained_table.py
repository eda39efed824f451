"""The shares that smaller models retain, as a table of a page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablations.core.formatting import Entry, Sheet, cell_text, difference_text, fixed, range_text
from ablations.core.statistics import LEVEL, Interval, mean_interval
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import reference, references
from ablations.schema.cell import Cell
from lightning_modules.tasks import TASKS, FineTuning


@dataclass(frozen=True)
class Retained:
    """One smaller model on one task.

    Attributes:
        cell: The smaller model.
        whole: The model that it was made from.
        metric: The main score of the task.
        method: The best simple method.
        level: Its score.
        gain: The score of the whole model minus that, over the seeds of both.
        share: The gain of the smaller model divided by that of the whole; None where the interval of the latter is not
            clear of 0, for then there is nothing to retain.
        runs: The fine-tunings behind both.
    """

    cell: Cell
    whole: Cell
    metric: str
    method: str
    level: float
    gain: Interval
    share: Interval | None
    runs: tuple[str, ...]


def is_smaller(cell: Cell) -> bool:
    """Whether a cell is a student, or has a model that loses heads, weights or bits after it was trained."""
    tunings = [run.finetuning for run in cell.finetunings if run.finetuning]
    is_student = cell.system.objectives.distilled is not None or bool(cell.system.training.start_layers)
    return is_student or any(not one.trains or one.masking for one in tunings)


def whole_of(cells: Sequence[Cell], cell: Cell) -> Cell | None:
    """The cell whose model a smaller one was made from.

    That is the same fine-tuning with all heads, weights and bits, or the pretraining that a student starts or learns
    from.
    """
    behind = {member.id for run in cell.runs for member in run.lineage[1:]}
    ours = [run.id for run in cell.runs]
    for other in cells:
        theirs = [run.id for run in other.runs]
        is_same = theirs == ours and _unchanged(cell) == _unchanged(other)
        if not is_smaller(other) and (is_same or (theirs and behind.issuperset(theirs))):
            return other
    return None


def _unchanged(cell: Cell) -> list[FineTuning]:
    """The fine-tunings of a cell with all heads, weights and bits."""
    whole = dict.fromkeys(("head_pruning", "weight_pruning", "quantization"))
    return [run.finetuning.but(**whole).resolved() for run in cell.finetunings if run.finetuning]


def retained(measured: Measurements) -> Iterator[Retained]:
    """What each smaller model retains on the main score of each task, as far as runs have finished."""
    for cell in measured.cells:
        whole = whole_of(measured.cells, cell) if is_smaller(cell) else None
        for task in dict.fromkeys(run.task for run in cell.finetunings) if whole else ():
            assert whole is not None
            metric = f"{task}.{TASKS[task].main}"
            methods = {text: reference(measured, [cell, whole], name) for text, name in references(metric).items()}
            known = {text: level[0] for text, level in methods.items() if level is not None}
            ours, theirs = measured.of(cell, metric), measured.of(whole, metric)
            seeds = sorted(ours.keys() & theirs.keys())
            if not known or not seeds:
                continue
            method = max(known, key=lambda text: known[text])
            a, b = (np.array([of[seed].value for seed in seeds]) - known[method] for of in (ours, theirs))
            gain = mean_interval(b.tolist())
            share = ratio(a, b) if gain.low is not None and gain.low > 0 else None
            runs = tuple(of[seed].run for of in (ours, theirs) for seed in seeds)
            yield Retained(cell, whole, metric, method, known[method], gain, share, runs)


def ratio(a: np.ndarray, b: np.ndarray) -> Interval:
    """The ratio of two means of pairs, with its interval by Fieller (1954, equation 9).

    Args:
        a: The numerators, ``[n]``.
        b: The denominators, ``[n]``, whose mean has an interval clear of 0.
    """
    from scipy import stats  # half a second to import

    n, middle = len(a), float(a.mean() / b.mean())
    (va, vab), (_, vb) = (np.cov(a, b) / n).tolist()
    t = float(stats.t.ppf((1 + LEVEL) / 2, n - 1))
    g = t * t * vb / float(b.mean()) ** 2
    centre = middle - (g * vab / vb if vb else 0.0)
    left = va - 2 * middle * vab + middle**2 * vb - g * (va - (vab**2 / vb if vb else 0.0))
    half = t / abs(float(b.mean())) * math.sqrt(max(0.0, left))
    return Interval(middle, (centre - half) / (1 - g), (centre + half) / (1 - g), n)


TITLE = "What smaller models retain"
NOTHING = "nothing to retain"


def sheets(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row for each smaller model and task; None without any that has finished."""
    found = list(retained(measured))
    if not found:
        return None
    labels = {metric.name: metric.label or metric.name for metric in measured.grid.metrics}
    rows: list[list[Entry]] = [
        [cell_text(one.cell.values), labels.get(one.metric, one.metric), f"{one.method}: {one.level:.3f}",
         difference_text(one.gain), _share(one)]
        for one in found
    ]  # fmt: skip
    wholes = dict.fromkeys(cell_text(one.whole.values) for one in found)
    reading = Sheet(
        ["model", "score", "best simple method", "gain of the whole model", "share retained"],
        rows,
        left=3,
        notes=[
            f"The whole model: {', '.join(wholes)}. Its gain is its score minus that of the best simple method, over "
            "the seeds of both models, with the 95 % interval. The share is the gain of the smaller model divided by "
            f"that gain, with Fieller's interval. Where the gain is not clear of 0 there is {NOTHING}."
        ],
    )
    every: list[list[Entry]] = [
        [one.cell.label, one.whole.label, one.metric, one.method, one.level, *one.gain.ends,
         *(one.share.ends if one.share else (None,) * 3), one.gain.n]
        for one in found
    ]  # fmt: skip
    numbers = Sheet(
        ["model", "whole", "metric", "method", "level", "gain", "gain low", "gain high", "share", "share low",
         "share high", "seeds"],
        every,
    )  # fmt: skip
    trace = [{"model": one.cell.label, "metric": one.metric, "runs": list(one.runs)} for one in found]
    return reading, numbers, {"retained": trace}


def _share(one: Retained) -> str:
    if one.gain.low is None:
        return f"n/a (n = {one.gain.n})"
    if one.share is None or one.share.mean is None:
        return NOTHING
    return f"{fixed(one.share.mean, 2)} {range_text(one.share)}"
