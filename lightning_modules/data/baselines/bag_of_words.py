"""The word-count baseline of segment pairs: how far words alone, in any order, tell a pair's label.

A sentence objective that word counts solve teaches a model topics rather than coherence: Lan et al. (2020, section
3.1) explain by this why sentence order is worth learning and next-sentence prediction is not. Logistic regression on
the tf-idf weights of A and of B, on their minimum (the words that both have) and on their cosine similarity; the
strength of its penalty is chosen by cross-validation on the training pairs. A second one sees minimum and similarity
alone: the shared topic, which is the same in either order.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass

import numpy as np
from scipy import sparse

from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.draws import permutation

MOST_PAIRS = 20_000  # learned from at most, drawn from all of the training text
_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0)  # inverse of the penalty
_FOLDS = 3
_AT_ONCE = 1000  # pairs counted at once
_RECIPE = 2  # bumped when the same pairs would give other numbers


@dataclass(frozen=True)
class Baseline:
    """Shares of right answers: by all words, by the words that both segments have, and by the commoner answer."""

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
        """Counts what the sequences with these numbers show of each segment, special tokens left out."""
        parts = [_counts(pairs, part) for part in np.array_split(chosen, -(-len(chosen) // _AT_ONCE))]
        a, b, labels = zip(*parts, strict=True)
        return cls(sparse.vstack(a, format="csr"), sparse.vstack(b, format="csr"), np.concatenate(labels))

    def digest(self) -> bytes:
        """A hash of everything here."""
        digest = hashlib.sha256(self.labels.tobytes())
        for counts in (self.a, self.b):
            for array in (counts.indptr, counts.indices, counts.data):
                digest.update(np.ascontiguousarray(array))
        return digest.digest()


def _counts(pairs: PairSequences, chosen: np.ndarray) -> tuple[sparse.csr_matrix, sparse.csr_matrix, np.ndarray]:
    tokens = pairs.batch(chosen)
    ids, segment, special = tokens.ids.numpy(), tokens.tables["segment"].numpy(), tokens.special.numpy()
    shape, found = (len(chosen), pairs.store.vocabulary.size), []
    for number in (0, 1):
        row, column = np.nonzero(~special & (segment == number))
        found.append(sparse.coo_matrix((np.ones(len(row)), (row, ids[row, column])), shape=shape).tocsr())
    return found[0], found[1], tokens.labels["sentence"].numpy()


def baseline(train: Counted, heldout: Counted) -> Baseline:
    """How well a classifier that has learned from some pairs answers for others.

    With fewer than three training pairs of either label there is nothing to learn from: it gives the majority's.
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

    def features(pairs: Counted) -> sparse.csr_matrix:
        a, b = weights.transform(pairs.a), weights.transform(pairs.b)  # rows of norm 1
        shared = [a.minimum(b), sparse.csr_matrix(a.multiply(b).sum(1))]
        return sparse.hstack(shared if shared_only else [a, b, *shared], format="csr")

    regression = LogisticRegression(solver="liblinear", random_state=0)
    search = GridSearchCV(regression, {"C": _STRENGTHS}, cv=_FOLDS)
    return float(search.fit(features(train), train.labels).score(features(heldout), heldout.labels))


def cached_baseline(train: PairSequences, heldout: PairSequences, chosen: np.ndarray) -> Baseline:
    """`baseline` for some held-out pairs, kept beside the training text under a hash of what it was computed from.

    Args:
        train: Pairs of the training text; `MOST_PAIRS` of them are learned from.
        heldout: Pairs of the held-out text.
        chosen: Which of these are asked for.
    """
    learned = Counted.of(train, permutation(0, "bag of words", 0, len(train))[:MOST_PAIRS])
    asked = Counted.of(heldout, chosen)
    digest = hashlib.sha256(repr([_RECIPE, _STRENGTHS, _FOLDS]).encode() + learned.digest() + asked.digest())
    path = train.store.folder / f"pair-baseline-{digest.hexdigest()[:16]}.json"
    try:
        return Baseline(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        found = baseline(learned, asked)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(found)), encoding="utf-8")
    os.replace(temporary, path)
    return found
