"""Segment pairs as word counts, for classifiers that know no word order.

If word counts solve a sentence objective, it teaches topics rather than coherence, which is the argument of Lan et al.
(2020, section 3.1) for sentence order and against next-sentence prediction. The features are the TF-IDF weights of A
and B, their minimum (shared words) and their cosine similarity. Minimum and similarity alone are the shared topic,
which is the same in either order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import sparse

from lightning_modules.data.formats.pairs import PairSequences

_AT_ONCE = 1000  # pairs counted at once


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


def words(weights: Any, pairs: Counted) -> sparse.csr_matrix:
    """All words: weights of A, of B, of what they share, and the similarity.

    Args:
        weights: A fitted ``TfidfTransformer``.
        pairs: The pairs.
    """
    a, b = weights.transform(pairs.a), weights.transform(pairs.b)  # rows of norm 1
    return cast(sparse.csr_matrix, sparse.hstack([a, b, *_shared(a, b)], format="csr"))


def shared_words(weights: Any, pairs: Counted) -> sparse.csr_matrix:
    """The weights of the words that both segments have, and the similarity; arguments as in `words`."""
    return cast(
        sparse.csr_matrix,
        sparse.hstack(_shared(weights.transform(pairs.a), weights.transform(pairs.b)), format="csr"),
    )


def _shared(a: sparse.csr_matrix, b: sparse.csr_matrix) -> list[sparse.csr_matrix]:
    return [cast(sparse.csr_matrix, a.minimum(b)), sparse.csr_matrix(a.multiply(b).sum(1))]
