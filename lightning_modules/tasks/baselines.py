"""What a task gives without any pretraining: the commonest answer, and a linear model of word counts."""

import json
from typing import TYPE_CHECKING

import numpy as np
from filelock import FileLock

from ..config import identity
from ..files import write_atomically
from ..places import cache
from .pins import checked, fingerprint
from .table import task_named
from .task import Examples, Task

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

_RECIPE = 1  # bumped when the same examples would give other scores


def baselines(name: str) -> dict[str, dict[str, float]]:
    """The metrics of a task on its dev examples for two answerers, computed once and cached.

    ``majority`` answers with the commonest class of the training examples, in regression with their mean. ``tfidf`` is
    a logistic regression, in regression a ridge, on TF-IDF weights of words and pairs of neighbouring words; for pairs
    of texts on how the weights of the two differ and agree.
    """
    path = cache() / "task-baselines" / f"{identity([fingerprint(name), _RECIPE])[:24]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            found = _measured(task_named(name), checked(name, "train"), checked(name, "dev"))
            write_atomically(path, lambda file: file.write(json.dumps(found).encode()))
    return json.loads(path.read_text(encoding="utf-8"))


def _measured(task: Task, train: Examples, dev: Examples) -> dict[str, dict[str, float]]:
    constant = np.bincount(train.labels).argmax() if task.labels else train.labels.mean()
    answers = {"majority": np.full(len(dev), constant), "tfidf": _linear(task, train, dev)}
    return {name: task.measure(given, dev.labels) for name, given in answers.items()}


def _linear(task: Task, train: Examples, dev: Examples) -> np.ndarray:
    """The answers of the linear model ``[n]``."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # seconds to import, which planning does without
    from sklearn.linear_model import LogisticRegression, Ridge

    weigh = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    weigh.fit(train.first + (train.second or []))
    model = LogisticRegression(max_iter=1000) if task.labels else Ridge()
    return model.fit(_features(weigh, train), train.labels).predict(_features(weigh, dev))


def _features(weigh: "TfidfVectorizer", examples: Examples) -> "csr_matrix":
    """Weights of the text; of a pair how far they differ, their products, and the sum of those: the cosine."""
    from scipy.sparse import hstack

    first = weigh.transform(examples.first)
    if examples.second is None:
        return first
    second = weigh.transform(examples.second)
    both = first.multiply(second)
    return hstack([abs(first - second), both, both.sum(1)], format="csr")
