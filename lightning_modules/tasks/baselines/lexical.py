"""A TF-IDF baseline for multiple choice: a model that reads should beat it."""

from itertools import chain
from typing import Any, Protocol

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression


class Options(Protocol):
    """The texts of multiple-choice questions."""

    @property
    def context(self) -> np.ndarray | None:
        """Number of each question's context ``[n]``; None where contexts are hidden."""
        ...

    @property
    def rows(self) -> np.ndarray:
        """Number of each option among the texts ``[n k]``."""
        ...

    @property
    def labels(self) -> np.ndarray:
        """Number of the right option ``[n]``."""
        ...

    @property
    def questions(self) -> list[tuple[str, tuple[str, ...]]]:
        """Question and options, not joined ``n x (question, options)``."""
        ...

    def __len__(self) -> int:
        """Questions."""
        ...

    def contexts(self) -> list[str]:
        """The context of each question."""
        ...

    def texts(self) -> list[str]:
        """The distinct texts of contexts and options."""
        ...


def by_words(train: Options, dev: Options) -> np.ndarray:
    """Number of the option whose TF-IDF vector is most similar to that of context and question ``[n]``.

    The IDF weights are fitted on the training texts; similarity is the cosine, and the first of equal options wins.
    No labels are used. Without contexts there is nothing to compare with: then a logistic regression on the
    differences between right and wrong options learns which words right options have.
    """
    weigh = _weights(train)
    count = dev.rows.shape[1]
    options = weigh.transform(chain.from_iterable(options for _, options in dev.questions))
    if dev.context is None:
        return _learned(weigh, train).decision_function(options).reshape(-1, count).argmax(1)
    queries = weigh.transform(
        f"{text} {question}" for text, (question, _) in zip(dev.contexts(), dev.questions, strict=True)
    )
    similarity = options.multiply(queries[np.repeat(np.arange(len(dev)), count)]).sum(1)
    # rounded, so that ties do not depend on the order of summation
    return np.round(np.asarray(similarity), 9).reshape(-1, count).argmax(1)


def _weights(train: Options) -> Any:
    """A fitted ``TfidfVectorizer``, whose types do not say that it makes sparse matrices."""
    return TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]").fit(train.texts())


def _learned(weigh: Any, train: Options) -> LogisticRegression:
    """A logistic regression on the differences between right and wrong options, each in both directions."""
    count = train.rows.shape[1]
    options = weigh.transform(chain.from_iterable(options for _, options in train.questions))
    place = np.arange(count * len(train)).reshape(-1, count)
    wrong = np.arange(count) != train.labels[:, None]
    right = np.repeat(place[np.arange(len(train)), train.labels], count - 1)
    differences = options[right] - options[place[wrong]]
    signs = np.where(np.arange(differences.shape[0]) % 2, -1, 1)
    model = LogisticRegression(max_iter=1000, fit_intercept=False)
    return model.fit(differences.multiply(signs[:, None]).tocsr(), signs)
