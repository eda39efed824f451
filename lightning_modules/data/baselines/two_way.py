"""Accuracy and AUC of answers to a two-way question, with standard errors that know which questions share text."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Answers:
    """Scores of items whose label is 0 or 1; a score above 0 answers 1.

    Attributes:
        scores: One per item ``[n]``.
        labels: The true labels ``[n]``.
        clusters: Items with the same number are not independent ``[n]``; by default all are.
    """

    scores: np.ndarray
    labels: np.ndarray
    clusters: np.ndarray | None = None

    @cached_property
    def right(self) -> np.ndarray:
        """Whether each item is answered correctly."""
        return (self.scores > 0) == (self.labels == 1)

    @property
    def accuracy(self) -> float:
        """The share of correct answers."""
        return float(self.right.mean())

    @property
    def accuracy_error(self) -> float:
        """The standard error of the accuracy."""
        return self._error((self.right - self.right.mean()) / len(self.right))

    @property
    def auc(self) -> float:
        """The probability that an item of label 1 scores higher than one of label 0, ties half; 0.5 for one label."""
        ones = self.labels == 1
        return float(self._above[ones].mean()) if 0 < ones.sum() < len(ones) else 0.5

    @property
    def auc_error(self) -> float:
        """The standard error of the AUC (DeLong et al. 1988; for clusters Obuchowski 1997); 0 for one label."""
        ones = self.labels == 1
        if not 0 < ones.sum() < len(ones):
            return 0.0
        return self._error((self._above - self.auc) / np.where(ones, ones.sum(), (~ones).sum()))

    @cached_property
    def _above(self) -> np.ndarray:
        """For each item, the share of items of the other label that it is on the right side of, ties half."""
        from scipy.stats import rankdata

        ones, share = self.labels == 1, np.empty(len(self.scores))
        everywhere = rankdata(self.scores)
        for own in (ones, ~ones):
            share[own] = (everywhere[own] - rankdata(self.scores[own])) / max((~own).sum(), 1)
        return np.where(ones, share, 1 - share)

    def _error(self, influence: np.ndarray) -> float:
        """The root of the summed squares of what each cluster contributes."""
        clusters = np.arange(len(influence)) if self.clusters is None else self.clusters
        _, number = np.unique(clusters, return_inverse=True)
        sums = np.bincount(number.reshape(-1), weights=influence)
        return float(np.sqrt((sums**2).sum() * len(sums) / max(len(sums) - 1, 1)))
