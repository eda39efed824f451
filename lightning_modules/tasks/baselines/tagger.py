"""A linear tagger that sees the letters of words: the simplest one of names worth beating."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

VERSION = 1  # raise when the same sentences would have other tags
_EDGES = range(1, 5)  # letters at either end of a word


def by_letters(
    train: Sequence[Sequence[str]], tags: Sequence[np.ndarray], dev: Sequence[Sequence[str]]
) -> list[np.ndarray]:
    """The tags of the words of each sentence ``n x [k]``, by a linear support vector machine.

    It sees the word, its first and last letters, its shape (capitals, small letters, digits, others), and the word and
    shape of both neighbours. Each word is tagged by itself, so that it knows no tags of neighbours. Where all training
    words have one tag, it gives that.

    Args:
        tags: The tags of these words, a number each.
    """
    known = np.concatenate(tags)
    if len(np.unique(known)) == 1:
        return [np.full(len(words), known[0]) for words in dev]
    from sklearn.feature_extraction import DictVectorizer  # seconds to import, and every process reads this module
    from sklearn.svm import LinearSVC

    seen = DictVectorizer()
    model = LinearSVC(random_state=0).fit(
        _indexed(seen.fit_transform(chain.from_iterable(map(_features, train)))), known
    )
    answers = model.predict(_indexed(seen.transform(chain.from_iterable(map(_features, dev)))))
    return np.split(answers, np.cumsum([len(words) for words in dev])[:-1])


def _indexed(features: Any) -> Any:
    """A sparse matrix with indices of 32 bits, the only ones that liblinear takes."""
    features.indices, features.indptr = features.indices.astype(np.int32), features.indptr.astype(np.int32)
    return features


def _features(words: Sequence[str]) -> Iterator[dict[str, str | bool]]:
    around = ["", *words, ""]
    shapes = [_shape(word) for word in around]
    for place, word in enumerate(words, start=1):
        found: dict[str, str | bool] = {"word": word, "small": word.lower(), "shape": shapes[place]}
        for size in _EDGES:
            found[f"first {size}"], found[f"last {size}"] = word[:size].lower(), word[-size:].lower()
        for name, at in (("before", place - 1), ("after", place + 1)):
            found[f"word {name}"], found[f"shape {name}"] = around[at].lower(), shapes[at]
        yield found


def _shape(word: str) -> str:
    """``Xx``, ``X``, ``x'x``, ``dd``: the kinds of letters, runs of one kind cut to one.

    >>> _shape("McDonald's"), _shape("2017"), _shape("")
    ("XxXx'x", 'd', '')
    """
    kinds = ["X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word]
    return "".join(kind for place, kind in enumerate(kinds) if place == 0 or kind != kinds[place - 1])
