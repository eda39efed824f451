"""The bag-of-words baseline of segment pairs: TF-IDF + logistic regression, without word order.

If word counts solve a sentence objective, it teaches topics rather than coherence, which is the argument of Lan et al.
(2020, section 3.1) for sentence order and against next-sentence prediction. The features of the logistic regression
are the TF-IDF weights of A and B, their minimum (shared words) and their cosine similarity; cross-validation on the
training pairs chooses its regularisation. A second model has only minimum and similarity: the shared topic, which is
the same in either order.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, cast

import numpy as np
from scipy import sparse

from lightning_modules import cached
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.draws import permutation

MOST_PAIRS = 20_000  # maximum training pairs, drawn from all of the training text
_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0)  # inverse regularisation strengths
_FOLDS = 3
_AT_ONCE = 1000  # pairs counted at once
_RECIPE = 2  # raise when the same pairs would give different numbers


@dataclass(frozen=True)
class Baseline:
    """Accuracies of the model on all words, of the model on shared words, and of the majority class."""

    bow: float
    overlap: float
    majority: float


@dataclass(frozen=True, eq=False)
class Counted:
    """Pairs as word counts: of A and of B ``[pairs v]``, with their labels ``[pairs]``."""

    a: sparse.csr_matrix
    b: sparse.csr_matrix
    labels: np.ndarray

    @classmethod
    def of(cls, pairs: PairSequences, chosen: np.ndarray) -> "Counted":
        """Counts the tokens of each segment in the sequences with these numbers, without special tokens."""
        parts = [_counts(pairs, part) for part in np.array_split(chosen, -(-len(chosen) // _AT_ONCE))]
        a, b, labels = zip(*parts, strict=True)
        return cls(_stacked(a), _stacked(b), np.concatenate(labels))

    def digest(self) -> bytes:
        """A hash of counts and labels."""
        digest = hashlib.sha256(self.labels.tobytes())
        for counts in (self.a, self.b):
            for array in (counts.indptr, counts.indices, counts.data):
                digest.update(np.ascontiguousarray(array).data)
        return digest.digest()


def _stacked(parts: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
    return cast(sparse.csr_matrix, sparse.vstack(parts, format="csr"))


def _counts(pairs: PairSequences, chosen: np.ndarray) -> tuple[sparse.csr_matrix, sparse.csr_matrix, np.ndarray]:
    tokens = pairs.batch(chosen)
    ids, segment, special = tokens.ids.numpy(), tokens.tables["segment"].numpy(), tokens.special.numpy()
    shape, counts = (len(chosen), pairs.store.vocabulary.size), []
    for number in (0, 1):
        row, column = np.nonzero(~special & (segment == number))
        counts.append(sparse.coo_matrix((np.ones(len(row)), (row, ids[row, column])), shape=shape).tocsr())
    return counts[0], counts[1], tokens.labels["sentence"].numpy()


def baseline(train: Counted, heldout: Counted) -> Baseline:
    """Held-out accuracies of the classifiers trained on some pairs.

    With fewer than three training pairs of either label they are those of the majority class.
    """
    share = float(heldout.labels.mean())
    majority = max(share, 1 - share)
    if np.bincount(train.labels, minlength=2).min() < _FOLDS:
        return Baseline(majority, majority, majority)
    return Baseline(_learned(train, heldout), _learned(train, heldout, shared_only=True), majority)


def _learned(train: Counted, heldout: Counted, *, shared_only: bool = False) -> float:
    """The held-out accuracy of the logistic regression."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    weights = TfidfTransformer(sublinear_tf=True).fit(sparse.vstack([train.a, train.b]))
    seen, asked = (_features(weights, pairs, shared_only) for pairs in (train, heldout))
    regression = LogisticRegression(solver="liblinear", random_state=0)
    search = GridSearchCV(regression, {"C": _STRENGTHS}, cv=_FOLDS)
    return cast(float, search.fit(seen, train.labels).score(asked, heldout.labels))


def _features(weights: Any, pairs: Counted, shared_only: bool) -> sparse.csr_matrix:
    """What the regression reads, by a fitted ``TfidfTransformer``, whose types do not say what it returns."""
    a, b = weights.transform(pairs.a), weights.transform(pairs.b)  # rows of norm 1
    shared = [a.minimum(b), sparse.csr_matrix(a.multiply(b).sum(1))]
    return cast(sparse.csr_matrix, sparse.hstack(shared if shared_only else [a, b, *shared], format="csr"))


def cached_baseline(train: PairSequences, heldout: PairSequences, chosen: np.ndarray) -> Baseline:
    """`baseline` for some held-out pairs, cached in the folder of the training store under a hash of its inputs.

    Args:
        train: Pairs of the training text; at most `MOST_PAIRS` of them are used.
        heldout: Pairs of the held-out text.
        chosen: Numbers of the held-out pairs to classify.
    """
    train_counts = Counted.of(train, permutation(0, "bag of words", 0, len(train))[:MOST_PAIRS])
    heldout_counts = Counted.of(heldout, chosen)
    digest = hashlib.sha256(
        repr([_RECIPE, _STRENGTHS, _FOLDS]).encode() + train_counts.digest() + heldout_counts.digest()
    )
    path = train.store.folder / f"pair-baseline-{digest.hexdigest()[:16]}.json"

    def compute(file: BinaryIO) -> None:
        cached.put_json(file, asdict(baseline(train_counts, heldout_counts)))

    return Baseline(**cached.kept(path, compute, cached.get_json))
