"""The noise of a fixed held-out set: all runs share it, so no number of seeds shows it."""

import numpy as np
from numpy.typing import ArrayLike

from ablations.core.moderation import Variance


def example_variance(differences: ArrayLike, documents: ArrayLike, weights: ArrayLike | None = None) -> Variance:
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

    Returns:
        The variance with one degree of freedom less than documents.

    Raises:
        ValueError: For fewer than two documents, which cannot say how much documents differ.

    >>> example_variance([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], ["a", "a", "b", "b", "c", "c"])
    Variance(value=0.08333333333333333, df=2.0, most=inf)
    """
    values = np.asarray(differences, dtype=float)
    counts = np.ones_like(values) if weights is None else np.asarray(weights, dtype=float)
    names, place = np.unique(np.asarray(documents), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"examples of {len(names)} document(s); the spread over documents needs at least two")
    mean = (counts * values).sum() / counts.sum()
    residuals = np.bincount(place, weights=counts * (values - mean), minlength=len(names))
    groups = len(names)
    variance = groups / (groups - 1) * (residuals**2).sum() / counts.sum() ** 2
    return Variance(float(variance), float(groups - 1))
