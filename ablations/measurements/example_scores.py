"""The scores of a cell's runs by held-out example: examples are a sample too, and all seeds share them.

A fine-tuning's record keeps one score for each dev example, a pretraining's one for each test example of its probes;
beside a pretraining's record lie its held-out losses by sequence (`Records.sums`), whose documents are the clusters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablations.core.disk import heldout
from ablations.core.disk.reading import Flawed
from ablations.core.examples import run_variance
from ablations.core.metrics import BY_SEQUENCE
from ablations.measurements.measurements import Measurements
from ablations.schema.record import Record
from lightning_modules.config import canonical, identity
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT

_RIGHT, _ANSWER = "right", "answer"
_WEIGHT, _DOCUMENT = "weight", "document"  # of a measurement's examples, where they do not all count alike
# of a record's metric, and of scores kept in steps of 1/255
_ROUNDING = {"bits": 1e-6, "share": 1 / 510, "half": 2e-3, "single": 2e-3}


@dataclass(frozen=True)
class Scores:
    """What each example adds to the metric of a cell.

    Attributes:
        by_example: The mean over runs ``[examples]``.
        documents: The document of each example ``[examples]``; each its own where none are known.
        weights: How often each example counts ``[examples]``.
        runs: What the runs contribute to the variance over documents; it is in the noise of runs already.
        text: What the examples are; scores of two cells compare only if it is the same.
    """

    by_example: np.ndarray
    documents: np.ndarray
    weights: np.ndarray
    runs: float
    text: str


@dataclass(frozen=True)
class _Run:
    """The scores of one run; as in `Scores`."""

    by_example: np.ndarray
    documents: np.ndarray
    weights: np.ndarray
    text: str


def scores(
    sides: Sequence[Sequence[str]], metric: str, measured: Measurements, against: str = ""
) -> tuple[Scores, ...]:
    """The scores of the runs of each side on common examples.

    Args:
        sides: The run ids of each side.
        metric: The metric; its value must be the mean of the scores.
        measured: Holds the records.
        against: The metric of a simple method whose score is subtracted; see `_minus_majority`.

    Returns:
        Empty unless every run has scores, and all have the same examples.
    """
    found = [[_of_run(run, metric, measured, against) for run in runs] for runs in sides]
    known = [[one for one in side if one is not None] for side in found]
    same = {(one.text, len(one.by_example)) for side in known for one in side}
    if len(same) != 1 or any(not side or len(side) < len(all_) for side, all_ in zip(known, found, strict=True)):
        return ()
    return tuple(map(_of_cell, known))


def _of_cell(runs: Sequence[_Run]) -> Scores:
    rows, first = np.stack([run.by_example for run in runs]), runs[0]
    noise = run_variance(rows, first.documents, first.weights)
    return Scores(rows.mean(axis=0), first.documents, first.weights, noise, first.text)


def _of_run(run: str, metric: str, measured: Measurements, against: str) -> _Run | None:
    record = measured.get(run)
    if record is None or metric not in record.metrics:
        return None
    if metric in BY_SEQUENCE:
        kept = measured.sums(run)
        return _of_sequences(kept, metric, float(record.metrics[metric])) if kept and not against else None
    return _of_examples(record, metric, against)


def _of_sequences(kept: Mapping[str, Any], metric: str, value: float) -> _Run | None:
    """The losses of a pretraining by sequence."""
    try:
        found = heldout.losses(kept, metric, value)
    except Flawed:
        return None
    if len(np.unique(found.documents)) < 2:
        return None
    return _Run(found.nats / np.maximum(found.counts, 1.0), found.documents, found.counts, found.text)


def _of_examples(record: Record, metric: str, against: str) -> _Run | None:
    """The scores of a fine-tuning, measurement or probe by example; None if the metric is not their mean."""
    kept, task = record.examples.get(metric, record.examples.get(_RIGHT, "")), metric.partition(".")[0]
    if not kept:
        return None
    of = unpack(kept).astype(float)
    value = float(record.metrics[metric])
    rounding = _ROUNDING.get(kept.partition(":")[0], 0.0) * max(1.0, abs(value))
    weights = unpack(record.examples[_WEIGHT]).astype(float) if _WEIGHT in record.examples else np.ones(len(of))
    documents = unpack(record.examples[_DOCUMENT]) if _DOCUMENT in record.examples else np.arange(len(of))
    if of.size < 2 or not (len(of) == len(weights) == len(documents)) or weights.sum() <= 0:
        return None
    if abs(np.average(of, weights=weights) - value) > rounding or len(np.unique(documents)) < 2:
        return None
    if against:
        of = _minus_majority(record, of, task, against)
    return _Run(of, documents, weights, _text(record, task))


def _text(record: Record, task: str) -> str:
    """What the examples of a task are: its own, or what a measurement or a probe makes from the text of a run."""
    prints, asked = record.config.get("fingerprints", {}), ZERO_SHOT.get(task)
    if asked is not None and asked.of_run:  # such as a stream in order, or with its sentences shuffled
        run = record.run()
        return identity([prints, asked.text(run.system, run.measuring or Measurement())])
    return str(prints[task]) if task in prints else canonical(prints)


def _minus_majority(record: Record, right: np.ndarray, task: str, against: str) -> np.ndarray:
    """The scores minus those of the majority class.

    With two classes the labels follow from the answers and whether they are right. Elsewhere the simple method's scores
    are not known by example, and only the model's count.
    """
    if not against.endswith("majority") or task not in TASKS or TASKS[task].shape.classes != 2:
        return right
    if _ANSWER not in record.examples or against not in record.metrics:
        return right
    answers = unpack(record.examples[_ANSWER])
    labels = np.where(right > 0.5, answers, 1 - answers)
    shares = {label: abs(float((labels == label).mean()) - float(record.metrics[against])) for label in (0, 1)}
    return right - (labels == min(shares, key=shares.__getitem__))
