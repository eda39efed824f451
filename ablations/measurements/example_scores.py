"""The scores of a cell's runs by held-out example: examples are a sample too, and all seeds share them.

A fine-tuning's record keeps one score for each dev example, a pretraining's one for each test example of its probes.
Next to a pretraining's record lie its held-out losses by sequence (`Records.sums`), whose documents are the clusters.
Of a fine-tuning's F1 or correlation, which is no mean over examples, the scores are what each example adds to it
(`scores.by_example`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ablations.core.disk import heldout
from ablations.core.disk.reading import Flawed
from ablations.core.examples import run_variance
from ablations.measurements.measurements import Measurements
from ablations.schema.metrics import BY_SEQUENCE
from ablations.schema.record import Record
from lightning_modules.config import canonical, identity
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.scores.by_example import correlation, f1
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
        by_run: The score of each run on each example ``[runs, examples]``.
        documents: The document of each example ``[examples]``; each its own where none are known.
        weights: How often each example counts ``[examples]``.
        text: What the examples are; scores of two cells compare only if it is the same.
    """

    by_run: np.ndarray
    documents: np.ndarray
    weights: np.ndarray
    text: str

    @cached_property
    def by_example(self) -> np.ndarray:
        """The mean over runs ``[examples]``."""
        return self.by_run.mean(axis=0)

    @cached_property
    def runs(self) -> float:
        """What the runs contribute to the variance over documents; it is in the noise of runs already."""
        return run_variance(self.by_run, self.documents, self.weights)


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
        against: The metric of a simple method whose score is subtracted; see `_minus_majority`.

    Returns:
        Empty unless every run has scores, and all have the same examples.
    """
    labels = _labels([record for runs in sides for run in runs if (record := measured.get(run))], metric)
    found = [[_of_run(run, metric, measured, against, labels) for run in runs] for runs in sides]
    known = [[one for one in side if one is not None] for side in found]
    same = {(one.text, len(one.by_example)) for side in known for one in side}
    if len(same) != 1 or any(not side or len(side) < len(all_) for side, all_ in zip(known, found, strict=True)):
        return ()
    return tuple(map(_of_cell, known))


def _of_cell(runs: Sequence[_Run]) -> Scores:
    first = runs[0]
    return Scores(np.stack([run.by_example for run in runs]), first.documents, first.weights, first.text)


def _of_run(
    run: str, metric: str, measured: Measurements, against: str, labels: np.ndarray | None = None
) -> _Run | None:
    record = measured.get(run)
    if record is None or metric not in record.metrics:
        return None
    if metric in BY_SEQUENCE:
        kept = measured.sums(run)
        return _of_sequences(kept, metric, float(record.metrics[metric])) if kept and not against else None
    return _of_examples(record, metric, against, labels)


def _of_sequences(kept: Mapping[str, Any], metric: str, value: float) -> _Run | None:
    try:
        found = heldout.losses(kept, metric, value)
    except Flawed:
        return None
    if len(np.unique(found.documents)) < 2:
        return None
    return _Run(found.nats / np.maximum(found.counts, 1.0), found.documents, found.counts, found.text)


def _of_examples(record: Record, metric: str, against: str, labels: np.ndarray | None) -> _Run | None:
    """The scores of a fine-tuning, measurement or probe by example; None if the metric is not their mean."""
    task, _, name = metric.partition(".")
    kept = next((record.examples[key] for key in (metric, name, _RIGHT) if key in record.examples), "")
    if not kept:
        return None
    of = unpack(kept).astype(float)
    value = float(record.metrics[metric])
    rounding = _ROUNDING.get(kept.partition(":")[0], 0.0) * max(1.0, abs(value))
    if labels is not None and (added := _added(record, task, name, value, labels)) is not None:
        of, rounding = added, _ROUNDING["bits"]
    weights = unpack(record.examples[_WEIGHT]).astype(float) if _WEIGHT in record.examples else np.ones(len(of))
    documents = unpack(record.examples[_DOCUMENT]) if _DOCUMENT in record.examples else np.arange(len(of))
    if of.size < 2 or not (len(of) == len(weights) == len(documents)) or weights.sum() <= 0:
        return None
    if abs(np.average(of, weights=weights) - value) > rounding or len(np.unique(documents)) < 2:
        return None
    if against:
        of = _minus_majority(record, of, task, against)
    return _Run(of, documents, weights, _text(record, task))


def _labels(records: Sequence[Record], metric: str) -> np.ndarray | None:
    """Which classes each dev example may have, by the answers of some fine-tunings and whether they are right.

    Returns:
        Booleans ``[examples, classes]``; None unless the metric is an F1 or correlation of classes, and all records
        have answers to the same examples.
    """
    task, _, name = metric.partition(".")
    if task not in TASKS or name not in ("f1", "matthews") or not TASKS[task].shape.keeps_answers:
        return None
    answered = [r.examples for r in records if r.kind == "finetune" and {_ANSWER, _RIGHT} <= r.examples.keys()]
    told = [(unpack(of[_ANSWER]), unpack(of[_RIGHT]).astype(bool)) for of in answered]
    if len(told) < len(records) or len({len(part) for both in told for part in both}) != 1:
        return None
    known = max(2, 1 + max(int(answers.max()) for answers, _ in told))
    possible = np.ones((len(told[0][0]), known), bool)
    for answers, right in told:
        is_answer = answers[:, None] == np.arange(known)
        possible &= is_answer == right[:, None]
    return possible


def _added(record: Record, task: str, name: str, value: float, possible: np.ndarray) -> np.ndarray | None:
    """What each example adds to an F1 or correlation of a fine-tuning. None if its answers do not show it.

    Answers reveal the label of an example that some run has right, or all classes but one wrong. Of more than two
    classes some labels stay unknown. As the F1 shows how many examples are wanted in all, they count as wanted in that
    share.
    """
    positive = np.isin(np.arange(possible.shape[1]), TASKS[task].shape.positive)
    answers, right = unpack(record.examples[_ANSWER]), unpack(record.examples[_RIGHT]).astype(bool)
    found, may, may_not = positive[answers], possible[:, positive].any(axis=1), possible[:, ~positive].any(axis=1)
    wanted, unknown = may.astype(float), may & may_not
    if unknown.any():
        if name != "f1" or not value:
            return None
        total = round(2 * int((right & found).sum()) / value - int(found.sum()))
        wanted[unknown] = min(1.0, max(0.0, (total - int((may & ~may_not).sum())) / int(unknown.sum())))
    return f1(right & found, found, wanted) if name == "f1" else correlation(wanted, found.astype(float))


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
