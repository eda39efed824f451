"""What each example adds to a metric that is no mean over examples: F1 and correlations.

The values have the metric as their mean, and vary over examples as the metric does over new examples: the metric plus
its influence function at each example (Hampel 1974; the infinitesimal jackknife of Efron 1982, chapter 6). So metrics
of any kind have scores by example, and are compared in one way. Their variance is that of a bootstrap of examples with
ever more draws, and unlike it depends on neither draws nor the order of examples.
"""

import numpy as np


def f1(right: np.ndarray, found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The harmonic mean of precision and recall, by example ``[n]``.

    Args:
        right: What is found and wanted, such as 1 for a true positive, or the number of names of a sentence ``[n]``.
        found: What is found ``[n]``.
        wanted: What is wanted ``[n]``.

    Returns:
        0 everywhere where nothing is found or wanted.

    >>> f1(np.array([1, 0, 0]), np.array([1, 1, 0]), np.array([1, 0, 1])).round(3).tolist()
    [1.25, 0.125, 0.125]
    """
    both, twice = found.astype(float) + wanted, 2.0 * right
    if not both.sum():
        return np.zeros(len(both))
    value = twice.sum() / both.sum()
    return value + (twice - value * both) / both.mean()


def f1_of_classes(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """The F1 of class 1 by example ``[n]``."""
    return f1((labels == 1) & (answers == 1), answers == 1, labels == 1)


def correlation(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """The linear correlation by example ``[n]``; of two classes that is Matthews' correlation.

    Returns:
        0 everywhere where labels or answers are all the same.
    """
    if np.ptp(labels) == 0 or np.ptp(answers) == 0:
        return np.zeros(len(labels))
    x, y = ((values - values.mean()) / values.std() for values in (labels, answers))
    value = (x * y).mean()
    return value + x * y - value * (x**2 + y**2) / 2


def rank_correlation(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """The correlation of ranks by example ``[n]``; an example also moves the ranks of those above it.

    Returns:
        0 everywhere where labels or answers are all the same.
    """
    if np.ptp(labels) == 0 or np.ptp(answers) == 0:
        return np.zeros(len(labels))
    above = [_above(np.asarray(values, dtype=float)) for values in (labels, answers)]
    x, y = ranks = [one.mean(axis=0) - 0.5 for one in above]  # the rank of each example as a share, about its mean
    together, spreads = (x * y).mean(), [(rank**2).mean() for rank in ranks]
    value = together / np.sqrt(spreads[0] * spreads[1])

    def moved(by: np.ndarray, other: np.ndarray) -> np.ndarray:
        """How the mean product of moved ranks with others changes, for each example that moves them."""
        return by @ other / len(other) - (by.mean(axis=0) * other).mean()

    of_product = x * y - together + moved(above[0], y) + moved(above[1], x)
    of_spreads = [
        (rank**2 + 2 * moved(by, rank)) / spread - 1 for rank, spread, by in zip(ranks, spreads, above, strict=True)
    ]
    return value + of_product / np.sqrt(spreads[0] * spreads[1]) - value * (of_spreads[0] + of_spreads[1]) / 2


def _above(values: np.ndarray) -> np.ndarray:
    """Whether the second of two examples is above the first, or half where they are equal ``[n n]``."""
    return (values[:, None] < values) + 0.5 * (values[:, None] == values)
