"""Metrics of answers. All are better when higher; correlations of constant labels or answers are 0 by convention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from lightning_modules.tasks.scores.by_example import correlation, f1_of_classes, rank_correlation


@dataclass(frozen=True)
class Metric:
    """A metric ``of(labels, answers)``.

    Attributes:
        description: What it is and its range, in a line.
        by_example: What each example adds to it ``[n]``; see `scores.by_example`.
    """

    description: str
    of: Callable[[np.ndarray, np.ndarray], float]
    by_example: Callable[[np.ndarray, np.ndarray], np.ndarray]


def accuracy(labels: np.ndarray, answers: np.ndarray) -> float:
    """The share of correct answers."""
    return float((labels == answers).mean())


def f1(labels: np.ndarray, answers: np.ndarray) -> float:
    """The harmonic mean of precision and recall of class 1; 0 if it is never predicted correctly."""
    from sklearn.metrics import f1_score  # seconds to import, which planning does without

    return float(f1_score(labels, answers, zero_division=0.0))  # pyright: ignore[reportArgumentType]  # floats too


def matthews(labels: np.ndarray, answers: np.ndarray) -> float:
    """The correlation of two classifications (Matthews 1975)."""
    from sklearn.metrics import matthews_corrcoef

    return 0.0 if _is_constant(labels, answers) else float(matthews_corrcoef(labels, answers))


def spearman(labels: np.ndarray, answers: np.ndarray) -> float:
    """The correlation of ranks."""
    from scipy.stats import spearmanr

    return 0.0 if _is_constant(labels, answers) else float(cast(Any, spearmanr(labels, answers)).statistic)


def pearson(labels: np.ndarray, answers: np.ndarray) -> float:
    """The linear correlation."""
    return 0.0 if _is_constant(labels, answers) else float(np.corrcoef(labels, answers)[0, 1])


def _is_constant(*columns: np.ndarray) -> bool:
    return any(np.ptp(values) == 0 for values in columns)


METRICS: dict[str, Metric] = {
    "accuracy": Metric(
        "share of correct answers, 0 to 1", accuracy, lambda labels, answers: (labels == answers).astype(float)
    ),
    "f1": Metric("harmonic mean of precision and recall of class 1, 0 to 1", f1, f1_of_classes),
    "matthews": Metric("Matthews correlation of answers and labels, -1 to 1", matthews, correlation),
    "spearman": Metric("rank correlation of answers and labels, -1 to 1", spearman, rank_correlation),
    "pearson": Metric("linear correlation of answers and labels, -1 to 1", pearson, correlation),
}
