"""Choosing between options by their words: what is worth beating by a model that reads."""

from itertools import chain
from typing import Protocol

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression


class Options(Protocol):
    """Questions with options, as far as their words go.

    Attributes:
        context: Number of each question's context ``[n]``; None where contexts are hidden.
        rows: Number of each option among the texts ``[n k]``.
        labels: Number of the right option ``[n]``.
        questions: Question and options apart ``n x (question, options)``.
    """

    context: np.ndarray | None
    rows: np.ndarray
    labels: np.ndarray
    questions: list[tuple[str, tuple[str, ...]]]

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
    """Number of the option whose TF-IDF weights are most like those of context and question ``[n]``.

    Weights of words are fitted on the training texts; likeness is the cosine, the first of equals is chosen. Nothing
    is learnt of which options are right. Where contexts are hidden nothing is there to be like: then a logistic
    regression on the difference between right and wrong options says which words right options have.
    """
    weigh = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]").fit(train.texts())
    count = dev.rows.shape[1]
    options = weigh.transform(chain.from_iterable(options for _, options in dev.questions))
    if dev.context is None:
        return _learned(weigh, train).decision_function(options).reshape(-1, count).argmax(1)
    asked = weigh.transform(
        f"{text} {question}" for text, (question, _) in zip(dev.contexts(), dev.questions, strict=True)
    )
    likeness = options.multiply(asked[np.repeat(np.arange(len(dev)), count)]).sum(1)
    # rounded, so that which of equals comes first does not depend on the order of a sum
    return np.round(np.asarray(likeness), 9).reshape(-1, count).argmax(1)


def _learned(weigh: TfidfVectorizer, train: Options) -> LogisticRegression:
    """A linear model of how right options differ from wrong ones, each difference in both directions."""
    count = train.rows.shape[1]
    options = weigh.transform(chain.from_iterable(options for _, options in train.questions))
    place = np.arange(count * len(train)).reshape(-1, count)
    wrong = np.arange(count) != train.labels[:, None]
    right = np.repeat(place[np.arange(len(train)), train.labels], count - 1)
    differences = options[right] - options[place[wrong]]
    signs = np.where(np.arange(differences.shape[0]) % 2, -1, 1)
    model = LogisticRegression(max_iter=1000, fit_intercept=False)
    return model.fit(differences.multiply(signs[:, None]).tocsr(), signs)
