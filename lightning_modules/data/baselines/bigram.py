"""The bigram baseline: a masked token predicted from the two tokens next to it.

A masked LM that is no better has learned nothing from the wider context: it is on the plateau. The baseline
interpolates three count models, ``p(w) = l1 P(w | left) + l2 P(w | right) + l3 P(w)``, with weights fitted by
expectation maximisation on text that is left out of the counts (deleted interpolation; Jelinek and Mercer 1980). It
sees what the model sees: a neighbour that is masked, special or padding, or that was never counted, is unknown, and its
weight is distributed over the others in proportion. The token shown at the predicted position is not used. If a model
sees one side only, so does the baseline, with weights fitted for that.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
from scipy import sparse
from torch import Tensor

from lightning_modules import cached
from lightning_modules.batch import STEP, Example, Visibility
from lightning_modules.data.store import TokenStore

MOST_TOKENS = 20_000_000  # maximum tokens counted, evenly spread over the store
STRETCH = 1 << 14  # tokens that are counted, or used for the weights, together
_KEPT = 20  # every 20th stretch fits the weights
_MOST_FITTED = 500_000  # maximum positions for fitting the weights
_RECIPE = 1  # raise when the same text would give different numbers
_UNKNOWN = -1  # an unknown neighbour
MASKED = ("mlm", "permuted")
OF_TOKENS = (*MASKED, *STEP)  # the targets that this baseline predicts too


@dataclass(frozen=True)
class Baseline:
    """Held-out losses in nats per prediction."""

    bigram: float
    unigram: float


@dataclass(frozen=True)
class Bigrams:
    """Counts of a text: pairs of adjacent tokens ``[left right]`` within documents, and single tokens ``[v]``.

    Where ends of documents are predicted, they are tokens as all others.
    """

    pairs: sparse.csr_matrix
    tokens: np.ndarray
    weights: tuple[float, float, float] = (0.4, 0.4, 0.2)

    def chances(self, word: np.ndarray, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The probability of ``word`` by each of the three models, and whether the model applies ``[n 3]``."""
        after, before = (np.asarray(self.pairs.sum(axis)).ravel() for axis in (1, 0))
        known_left = (left >= 0) & (after[left] > 0)
        known_right = (right >= 0) & (before[right] > 0)
        from_left = _at(self.pairs, left, word) / np.maximum(after[left], 1)
        from_right = _at(self.pairs, word, right) / np.maximum(before[right], 1)
        alone = (self.tokens[word] + 1) / (self.tokens.sum() + len(self.tokens))
        known = np.stack([known_left, known_right, np.ones_like(known_left)], axis=1)
        return np.stack([from_left, from_right, alone], axis=1) * known, known

    def probability(self, word: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """``p(word | left, right)`` ``[n]``; -1 is an unknown neighbour."""
        chances, known = self.chances(word, left, right)
        shares = known * np.array(self.weights)
        return (chances * shares).sum(1) / shares.sum(1)

    def fitted(self, word: np.ndarray, left: np.ndarray, right: np.ndarray) -> "Bigrams":
        """This model with the weights that maximise the probability of some text; an unknown side gets weight 0."""
        chances, known = self.chances(word, left, right)
        chances = chances[known[:, known.any(0)].all(1)]
        weights = np.array(self.weights)
        for _ in range(50 if len(chances) else 0):
            responsibility = chances * weights
            responsibility /= responsibility.sum(1, keepdims=True)
            weights = responsibility.mean(0)
        return Bigrams(self.pairs, self.tokens, tuple(weights.tolist()))


def _at(pairs: sparse.csr_matrix, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    if not len(rows):  # scipy returns a matrix for empty indices
        return np.zeros(0)
    return np.asarray(pairs[rows, columns], dtype=np.float64).ravel()


def count(store: TokenStore, sides: tuple[bool, bool] = (True, True), marked: bool = False) -> Bigrams:
    """The bigram model of a store's text, with weights fitted for left and right neighbours, or for one side.

    Args:
        sides: Whether the left neighbour is seen, and the right one.
        marked: Whether documents end with a ``[SEP]`` that is predicted.
    """
    starts = np.unique(store.document_starts)
    ids, size = store.ids, store.vocabulary.size
    if marked:  # one text, whose documents are parted by pieces of their own
        ids, starts = np.insert(ids, starts[1:], store.vocabulary.sep), starts[:0]
    stretches = -(-len(ids) // STRETCH)
    most = min(stretches, -(-MOST_TOKENS // STRETCH))
    chosen = np.unique(np.linspace(0, stretches - 1, most).astype(np.int64))
    kept = chosen[_KEPT // 2 :: _KEPT]
    counted = np.setdiff1d(chosen, kept)
    ends = np.zeros(len(ids) + 1, dtype=bool)  # where a document starts
    ends[starts] = True
    pairs = sparse.csr_matrix((size, size), dtype=np.int64)
    tokens = np.zeros(size, dtype=np.int64)
    for group in np.array_split(counted, max(1, len(counted) // 64)):  # a million tokens per group
        places = _places(group, len(ids))
        first = places[(places + 1 < len(ids)) & ~ends[places + 1]]
        first = first[first % STRETCH != STRETCH - 1]  # both tokens in the same stretch
        left, right = ids[first].astype(np.int32), ids[first + 1].astype(np.int32)
        pairs = pairs + sparse.coo_matrix((np.ones(len(first), np.int64), (left, right)), shape=(size, size)).tocsr()
        tokens += np.bincount(ids[places], minlength=size)
    model = Bigrams(pairs, tokens)
    places = _places(kept, len(ids))
    inner = places[(places > 0) & (places + 1 < len(ids))]
    inner = inner[~ends[inner] & ~ends[inner + 1]]
    inner = inner[:: max(1, len(inner) // _MOST_FITTED)]
    word, left, right = (ids[inner + shift].astype(np.int64) for shift in (0, -1, 1))
    shown = (np.where(used, side, _UNKNOWN) for side, used in zip((left, right), sides, strict=True))
    return model.fitted(word, *shown)


def _places(stretches: np.ndarray, end: int) -> np.ndarray:
    places = (stretches[:, None] * STRETCH + np.arange(STRETCH)).ravel()
    return places[places < end]


def seen(example: Example, target: str, mask: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The target tokens of an example and their visible neighbours, -1 if unknown ``[n]`` each.

    The next token is predicted at its left neighbour's position, the previous one at its right neighbour's.
    """
    inputs, sides = example.inputs, seen_sides(target, example.visible)
    known = inputs.real & ~inputs.special & (inputs.ids != mask)
    if inputs.ends is not None:
        known = known | inputs.ends
    visible = np.where(known.numpy(), inputs.ids.numpy(), _UNKNOWN)
    padded = np.pad(visible, ((0, 0), (1, 1)), constant_values=_UNKNOWN)
    asked = example.targets[target].queries
    row, column = np.divmod(example.targets[target].where.numpy(), visible.shape[1])
    column = column + STEP.get(target, 0)
    left, right = (
        padded[row, column + shift] if used else np.full(len(column), _UNKNOWN)
        for shift, used in zip((0, 2), sides, strict=True)
    )
    if asked is not None:
        left, right = (
            np.where(sees, side, _UNKNOWN)
            for sees, side in zip(_seen(example, asked, column), (left, right), strict=True)
        )
    return example.targets[target].ids.numpy(), left, right


def _seen(example: Example, asked: Tensor, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether queries about some columns see the position on their left, and that on their right ``[n]`` each."""
    assert example.queries is not None
    sees = np.pad(example.queries.visible.flatten(0, 1)[asked].numpy(), ((0, 0), (1, 1)))
    number = np.arange(len(column))
    return sees[number, column], sees[number, column + 2]


def _marked(examples: Iterable[Example]) -> bool:
    """Whether examples have ends of documents that are predicted."""
    return any(example.inputs.ends is not None for example in examples)


def seen_sides(target: str, visible: Visibility) -> tuple[bool, bool]:
    """Whether a model sees the left neighbour of its target, and the right one."""
    step = STEP.get(target, 0)
    return step >= 0 and not visible.anticausal, step <= 0 and not visible.causal


def prefix(target: str) -> str:
    """The prefix of the names of a target's measures."""
    return "" if target == "mlm" else f"{target}_"


def baseline(train: TokenStore, heldout: Iterable[Example], target: str = "mlm") -> Baseline:
    """The losses of the bigram model and of token frequencies on held-out examples.

    Args:
        train: The counted text: at most ``MOST_TOKENS`` tokens, evenly spread.
    """
    examples = list(heldout)
    seen_parts = [seen(example, target, train.vocabulary.mask) for example in examples]
    word, left, right = (np.concatenate(part) for part in zip(*seen_parts, strict=True))
    model = count(train, seen_sides(target, examples[0].visible), marked=_marked(examples))
    alone = (model.tokens[word] + 1) / (model.tokens.sum() + len(model.tokens))
    return Baseline(
        bigram=float(-np.log(model.probability(word, left, right)).mean()),
        unigram=float(-np.log(alone).mean()),
    )


def cached_baseline(train: TokenStore, heldout: list[Example], target: str = "mlm") -> Baseline:
    """`baseline`, cached in the folder of the store under a hash of its examples."""
    digest = hashlib.sha256(repr([_RECIPE, MOST_TOKENS]).encode())
    if not all(sides := seen_sides(target, heldout[0].visible)):
        digest.update(repr((target, sides)).encode())
    if _marked(heldout):
        digest.update(b"ends of documents")
    for example in heldout:
        predicted = example.targets[target]
        for tensor in (example.inputs.ids, example.inputs.special, predicted.where, predicted.ids):
            digest.update(np.ascontiguousarray(tensor.numpy()).data)
        if predicted.queries is not None and example.queries is not None:
            digest.update(example.queries.visible.flatten(0, 1)[predicted.queries].numpy().tobytes())
    path = train.folder / f"baseline-{digest.hexdigest()[:16]}.json"
    return Baseline(**cached.kept_json(path, lambda: asdict(baseline(train, heldout, target))))
