"""The control without order and without a network: ridge regression on the words of the texts.

It reads what the probes of states read, with TF-IDF weights of single words in place of states: those of a text, and
for two texts those of both, their absolute difference and their product. A vocabulary is too wide for the closed form;
conjugate gradients solve the same equations.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from lightning_modules.probing.parts import Parts
from lightning_modules.tasks.shapes.texts import TextExamples

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)  # per training example; rows of TF-IDF have norm 1
_TOKENS = r"\w+|[^\w\s]"


def outputs(
    parts: Parts, y: Float[np.ndarray, "n k"], fold: Int[np.ndarray, " n"], penalties: Sequence[float] = PENALTIES
) -> Float[np.ndarray, "m k"]:
    """The outputs of the regression for the test examples.

    Args:
        y: Targets of the training examples.
        fold: The inner fold of each training example.
        penalties: The penalties to choose from, per training example.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    weigh = TfidfVectorizer(sublinear_tf=True, token_pattern=_TOKENS).fit(parts.train.texts())
    seen, asked = (_features(weigh, part) for part in (parts.train, parts.test))
    errors = np.zeros(len(penalties))
    for number in np.unique(fold):
        inner = fold != number
        for place, penalty in enumerate(penalties):
            rest = y[~inner] - _solved(seen[inner], y[inner], penalty)(seen[~inner])
            errors[place] += (rest**2).sum()
    return _solved(seen, y, penalties[int(errors.argmin())])(asked)


def _solved(x: sparse.csr_matrix, y: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=penalty * len(y), solver="sparse_cg", tol=1e-4).fit(x, y)
    return lambda others: np.asarray(model.predict(others)).reshape(others.shape[0], -1)


def _features(weigh: Any, examples: TextExamples) -> sparse.csr_matrix:
    first = weigh.transform(examples.first)
    if examples.second is None:
        return first
    second = weigh.transform(examples.second)
    parts = [first, second, abs(first - second), first.multiply(second)]
    return cast(sparse.csr_matrix, sparse.hstack(parts, format="csr"))
