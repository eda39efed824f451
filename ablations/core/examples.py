"""The noise of a fixed held-out set: all runs share it, so no number of seeds shows it."""

import numpy as np
from numpy.typing import ArrayLike

from ablations.core.moderation import Variance


def example_variance(
    differences: ArrayLike, documents: ArrayLike, weights: ArrayLike | None = None, runs: float = 0.0
) -> Variance:
    """The variance of a mean difference over new documents.

    Examples of one document are alike, so documents are the sample: the mean is a ratio of two sums over documents, of
    differences and of weights, and its variance is the linearised one (Cochran 1977, Sampling Techniques, section
    6.3 and 9A; cluster-robust with the factor G / (G - 1)).

    Args:
        differences: What each example adds to the compared value ``[examples]``, such as the mean score of one cell's
            runs on it minus that of another's.
        documents: The document (or other cluster) of each example ``[examples]``; any labels.
        weights: How often each example counts in the mean ``[examples]``, such as its number of predictions; by default
            once.
        runs: What the runs contribute to this variance, by :func:`run_variance`: the squared weight of each cell times
            that of its mean. It is in the noise of seeds already, so it is subtracted.

    Returns:
        The variance, not negative, with one degree of freedom less than documents.

    Raises:
        ValueError: For fewer than two documents, which cannot say how much documents differ.

    >>> example_variance([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], ["a", "a", "b", "b", "c", "c"])
    Variance(value=0.08333333333333333, df=2.0, most=inf)
    """
    values = np.asarray(differences, dtype=float)
    counts = np.ones_like(values) if weights is None else np.asarray(weights, dtype=float)
    sums = _residuals(values[None], documents, counts)
    groups = sums.shape[1]
    if groups < 2:
        raise ValueError(f"examples of {groups} document(s). The spread over documents needs at least two.")
    variance = groups / (groups - 1) * float((sums**2).sum()) / counts.sum() ** 2
    return Variance(max(0.0, float(variance) - runs), float(groups - 1))


def run_variance(scores: ArrayLike, documents: ArrayLike, weights: ArrayLike | None = None) -> float:
    """What the runs of a cell contribute to the variance over documents of their mean score.

    Runs of one cell are right on different examples, so a mean over few of them differs between documents by chance.
    The spread of the runs' means has that in it; counted with the examples too, intervals of answers to 300 questions
    cover 99 % instead of 95 %.

    Args:
        scores: The score of each run on each example ``[runs, examples]``.
        documents: As for :func:`example_variance`.
        weights: As for :func:`example_variance`.

    Returns:
        0 for a single run, which does not show it.
    """
    values = np.asarray(scores, dtype=float)
    counts = np.ones(values.shape[1]) if weights is None else np.asarray(weights, dtype=float)
    if len(values) < 2:
        return 0.0
    sums = _residuals(values, documents, counts)
    groups = sums.shape[1]
    return float(groups / max(1, groups - 1) * (sums.var(axis=0, ddof=1).sum() / len(values)) / counts.sum() ** 2)


def _residuals(scores: np.ndarray, documents: ArrayLike, counts: np.ndarray) -> np.ndarray:
    """The weighted sums of each document about the mean of each run ``[runs, documents]``."""
    names, place = np.unique(np.asarray(documents), return_inverse=True)
    about = counts * (scores - (scores * counts).sum(axis=1, keepdims=True) / counts.sum())
    return np.stack([np.bincount(place, weights=row, minlength=len(names)) for row in about])
