"""Simple methods that answer a question about segment pairs, without a network and without grammar.

Each is a logistic regression on features of its own. Cross-validation on the training pairs chooses its regularisation.
What they reach is what can be known of a pair's label from them. Only what a model reaches beyond the best of them may
be called coherence or order.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
from scipy import sparse

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.data.baselines import bag_of_words, pair_edges
from lightning_modules.data.baselines.bag_of_words import Counted
from lightning_modules.data.baselines.two_way import Answers
from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.draws import permutation

MOST_PAIRS = 20_000  # maximum training pairs, drawn from all of the training text
_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0)  # inverse regularisation strengths
_FOLDS = 3
_RECIPE = 5  # raise when the same pairs would give different numbers

_SHOWN: dict[str, Callable[[PairSequences], np.ndarray]] = {
    "lengths": pair_edges.lengths,
    "edges": pair_edges.edges,
    "starts": pair_edges.starts,
    "corpora": pair_edges.corpora,
}
METHODS: dict[str, tuple[str, ...]] = {  # method -> its groups of features
    "majority": (),
    "lengths": ("lengths",),
    "edges": ("lengths", "edges", "starts"),
    "starts": ("starts",),
    "corpora": ("corpora",),
    "overlap": ("shared words",),
    "boundary": ("words across",),
    "bow": ("words",),
    "together": ("words", "words across", "lengths", "edges", "starts", "corpora"),
}
BEST = "best_simple"


@dataclass(frozen=True)
class Score:
    """How well a method answers, with standard errors."""

    accuracy: float
    auc: float
    accuracy_error: float
    auc_error: float


@dataclass(frozen=True, eq=False)
class Described:
    """Pairs by all that the methods read: word counts, and features by group ``[pairs k]``."""

    counted: Counted
    shown: dict[str, np.ndarray]
    clusters: np.ndarray

    @classmethod
    def of(cls, pairs: PairSequences, chosen: np.ndarray) -> "Described":
        """Describes the sequences with these numbers."""
        some = replace(pairs, index=pairs.index[:, chosen])
        shown = {name: features(some) for name, features in _SHOWN.items()}
        return cls(Counted.of(pairs, chosen), shown, pair_edges.clusters(some))

    @property
    def labels(self) -> np.ndarray:
        """The labels ``[pairs]``."""
        return self.counted.labels


def scores(train: Described, heldout: Described) -> dict[str, Score]:
    """The scores of all methods of `METHODS` on held-out pairs after learning from training pairs.

    With fewer than three training pairs of either label they are those of the majority class.
    """
    majority = _score(np.full(len(heldout.labels), 1.0 if heldout.labels.mean() > 0.5 else -1.0), heldout)
    if np.bincount(train.labels, minlength=2).min() < _FOLDS:
        return dict.fromkeys(METHODS, majority)
    features = _Features(train)
    learned = {name: groups for name, groups in METHODS.items() if groups}
    return {"majority": majority} | {
        name: _score(_learned(features.of(train, groups), train.labels, features.of(heldout, groups)), heldout)
        for name, groups in learned.items()
    }


def _score(answers: np.ndarray, heldout: Described) -> Score:
    found = Answers(answers, heldout.labels, heldout.clusters)
    return Score(found.accuracy, found.auc, found.accuracy_error, found.auc_error)


def _learned(seen: sparse.csr_matrix, labels: np.ndarray, asked: sparse.csr_matrix) -> np.ndarray:
    """What a logistic regression says about pairs after learning from others: above 0 for label 1."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    regression = LogisticRegression(solver="liblinear", random_state=0, max_iter=1000)
    search = GridSearchCV(regression, {"C": _STRENGTHS}, cv=_FOLDS)
    return cast(np.ndarray, search.fit(seen, labels).decision_function(asked))


class _Features:
    """Features in the units of some training pairs: TF-IDF weights, and columns of mean 0 and variance 1."""

    def __init__(self, train: Described) -> None:
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.preprocessing import StandardScaler

        self.weights: Any = TfidfTransformer(sublinear_tf=True).fit(sparse.vstack([train.counted.a, train.counted.b]))
        self.scalers: Any = {name: StandardScaler().fit(columns) for name, columns in self._columns(train).items()}

    def of(self, pairs: Described, groups: tuple[str, ...]) -> sparse.csr_matrix:
        """Some groups of features, side by side."""
        return cast(sparse.csr_matrix, sparse.hstack([self._group(pairs, name) for name in groups], format="csr"))

    def _group(self, pairs: Described, name: str) -> sparse.csr_matrix:
        if name == "words":
            return bag_of_words.words(self.weights, pairs.counted)
        if name == "shared words":
            return bag_of_words.shared_words(self.weights, pairs.counted)
        return sparse.csr_matrix(self.scalers[name].transform(self._columns(pairs)[name]))

    def _columns(self, pairs: Described) -> dict[str, np.ndarray]:
        """The groups of few features ``[pairs k]``."""
        return pairs.shown | {"words across": bag_of_words.shared_across(self.weights, pairs.counted)}


def cached_scores(train: PairSequences, heldout: PairSequences, chosen: np.ndarray) -> dict[str, Score]:
    """`scores` for some held-out pairs, cached in the folder of the training store under a hash of their inputs.

    Args:
        train: Pairs of the training text; at most `MOST_PAIRS` of them are used.
        chosen: Numbers of the held-out pairs to classify.
    """
    learned = permutation(0, "bag of words", 0, len(train))[:MOST_PAIRS]
    key = [_RECIPE, _STRENGTHS, _FOLDS, METHODS, _state(train, learned), _state(heldout, chosen)]
    path = train.store.folder / f"pair-methods-{identity(key)[:16]}.json"

    def compute() -> dict[str, dict[str, float]]:
        found = scores(Described.of(train, learned), Described.of(heldout, chosen))
        return {name: asdict(score) for name, score in found.items()}

    return {name: Score(**score) for name, score in cached.kept_json(path, compute).items()}


def _state(pairs: PairSequences, chosen: np.ndarray) -> list:
    """What the pairs with these numbers are, without reading them: their text is named by the folder of its store."""
    folder, index = pairs.store.folder, np.ascontiguousarray(pairs.index[:, chosen])
    kind = [type(pairs).__name__, pairs.length, folder.parent.name, folder.name]
    return [*kind, hashlib.sha256(index.tobytes()).hexdigest()]


def as_metrics(found: dict[str, Score]) -> dict[str, float]:
    """The accuracy of each method, and accuracy and AUC of the best: ``best_simple`` and ``best_simple_auc``."""
    best = {BEST: max(score.accuracy for score in found.values())}
    best[f"{BEST}_auc"] = max(score.auc for score in found.values())
    return {name: score.accuracy for name, score in found.items()} | best
