"""What surrounds a pronoun and two names, without a model of language: where they are, how long they are."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

_NEAR = 40  # words; names that are farther from the pronoun are as far as this


class Mentions(Protocol):
    """Texts with a pronoun and two names."""

    @property
    def passages(self) -> list[str]:
        """Texts, words separated by single spaces ``[n]``."""
        ...

    @property
    def spans(self) -> np.ndarray:
        """Bounds of pronoun, A and B in words ``[n 3 2]``."""
        ...

    @property
    def labels(self) -> np.ndarray:
        """Numbers of the answers ``[n]``."""
        ...


def by_surface(train: Mentions, dev: Mentions) -> np.ndarray:
    """Numbers of the answers ``[n]`` of a logistic regression that reads no more than the surface.

    It sees the pronoun. Of each name it sees whether it is before the pronoun, how many words away, and how long it is.
    It also sees how often the last word of the name occurs. Of each mention it sees the words next to it. These suffice
    for most pronouns of GAP. Where all training examples have one answer, it gives that.
    """
    if len(np.unique(train.labels)) == 1:
        return np.full(len(dev.labels), train.labels[0])
    from sklearn.feature_extraction import DictVectorizer  # seconds to import, and every process reads this module
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    model = make_pipeline(DictVectorizer(), MaxAbsScaler(), LogisticRegression(max_iter=2000))
    return model.fit(list(_features(train)), train.labels).predict(list(_features(dev)))


def _features(examples: Mentions) -> Iterator[dict[str, str | float]]:
    for passage, (pronoun, *names) in zip(examples.passages, examples.spans.tolist(), strict=True):
        words = passage.lower().split(" ")
        found: dict[str, str | float] = {"pronoun": words[pronoun[0]]}
        for mention, (start, end) in (("pronoun", pronoun), *zip("ab", names, strict=True)):
            found[f"{mention} after"] = words[start - 1] if start else ""
            found[f"{mention} before"] = words[end] if end < len(words) else ""
        for name, (start, end) in zip("ab", names, strict=True):
            away = pronoun[0] - end if end <= pronoun[0] else start - pronoun[1]
            found[f"{name} comes"] = "first" if end <= pronoun[0] else "later"
            found[f"{name} near"] = float(np.log1p(max(0, min(away, _NEAR))))
            found[f"{name} words"] = float(end - start)
            found[f"{name} letters"] = float(sum(map(len, words[start:end])))
            found[f"{name} count"] = float(words.count(words[end - 1]))
        yield found
