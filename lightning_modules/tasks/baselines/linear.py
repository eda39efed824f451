"""TF-IDF + logistic regression (ridge for real labels): the simplest text classifier worth beating."""

from typing import Any, Protocol, cast

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge


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


def linear(train: Labelled, dev: Labelled) -> np.ndarray:
    """Logistic regression, or ridge regression for real labels, on TF-IDF weights of word unigrams and bigrams.

    For pairs of texts, on the differences and products of the two weight vectors.

    Returns:
        Class numbers, or real numbers ``[n]``.
    """
    weigh = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    weigh.fit(train.texts())
    model = LogisticRegression(max_iter=1000) if train.labels.dtype.kind == "i" else Ridge()
    return model.fit(_features(weigh, train), train.labels).predict(_features(weigh, dev))


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
