"""TF-IDF + logistic regression (ridge for real labels): the simplest text classifier worth beating."""

from typing import Any, Protocol, cast

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score


class Labelled(Protocol):
    """Texts with labels."""

    @property
    def first(self) -> list[str]:
        """The texts ``[n]``."""
        ...

    @property
    def second(self) -> list[str] | None:
        """The second texts of pairs ``[n]``; None where texts are single."""
        ...

    @property
    def labels(self) -> np.ndarray:
        """Class numbers, or real numbers in regression ``[n]``."""
        ...

    def texts(self) -> list[str]:
        """First and second texts."""
        ...


PENALTIES = (1.0, 10.0, 100.0, 1000.0)  # inverse, of which cross-validation chooses
_FOLDS = 3


def linear(train: Labelled, dev: Labelled, *, tuned: bool = False) -> np.ndarray:
    """Logistic regression, or ridge regression for real labels, on TF-IDF weights of word unigrams and bigrams.

    For pairs of texts, on the differences and products of the two weight vectors.

    Args:
        tuned: Whether the penalty of the logistic regression is that of `PENALTIES` with the highest accuracy in three
            folds of the training examples, of equal ones the strongest. A class with fewer examples than folds has the
            default one.

    Returns:
        Class numbers, or real numbers ``[n]``.
    """
    weigh = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    weigh.fit(train.texts())
    known, labels = _features(weigh, train), train.labels
    model = LogisticRegression(max_iter=1000) if labels.dtype.kind == "i" else Ridge()
    if tuned and min(np.unique(labels, return_counts=True)[1]) >= _FOLDS:
        scores = [
            cross_val_score(LogisticRegression(C=penalty, max_iter=1000), known, labels, cv=_FOLDS).mean()
            for penalty in PENALTIES
        ]
        model = LogisticRegression(C=PENALTIES[int(np.argmax(scores))], max_iter=1000)
    return model.fit(known, labels).predict(_features(weigh, dev))


def _features(weigh: Any, examples: Labelled) -> csr_matrix:
    """TF-IDF weights of a text; for a pair their absolute differences, their products and their cosine.

    ``weigh`` is a fitted ``TfidfVectorizer``, whose types do not say that it makes sparse matrices.
    """
    first = weigh.transform(examples.first)
    if examples.second is None:
        return first
    second = weigh.transform(examples.second)
    both = first.multiply(second)
    return cast(csr_matrix, hstack([abs(first - second), both, both.sum(1)], format="csr"))
