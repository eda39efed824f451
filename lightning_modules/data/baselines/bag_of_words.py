"""Segment pairs as word counts, for classifiers that know no word order.

If word counts solve a sentence objective, it teaches topics rather than coherence, which is the argument of Lan et al.
(2020, section 3.1) for sentence order and against next-sentence prediction. The features are the TF-IDF weights of A
and B, their minimum (shared words) and their cosine similarity. Minimum and similarity alone are the shared topic,
which is the same in either order. Text repeats itself over short distances, so two sets of shared words show the order
of swapped segments. One is the words that the end of A shares with the beginning of B. The other is those that the end
of B shares with the beginning of A.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import sparse

from lightning_modules.data.formats.pairs import PairSequences

_AT_ONCE = 1000  # pairs counted at once
WIDTHS = (10, 20, 40)  # tokens at the ends of segments that are compared


@dataclass(frozen=True, eq=False)
class Counted:
    """Pairs as word counts.

    Attributes:
        a: Counts of A ``[pairs v]``.
        b: Counts of B ``[pairs v]``.
        labels: Their labels ``[pairs]``.
        across: For each of `WIDTHS` the words that the end of A shares with the beginning of B, then those that the end
            of B shares with the beginning of A, each 1 ``[pairs v]``.
    """

    a: sparse.csr_matrix
    b: sparse.csr_matrix
    labels: np.ndarray
    across: tuple[sparse.csr_matrix, ...]

    @classmethod
    def of(cls, pairs: PairSequences, chosen: np.ndarray) -> "Counted":
        """Counts the tokens of each segment in the sequences with these numbers, without special tokens."""
        parts = [_counts(pairs, part) for part in np.array_split(chosen, -(-len(chosen) // _AT_ONCE))]
        matrices, labels = zip(*parts, strict=True)
        a, b, *across = (cast(sparse.csr_matrix, sparse.vstack(of, format="csr")) for of in zip(*matrices, strict=True))
        return cls(a, b, np.concatenate(labels), tuple(across))


def _counts(pairs: PairSequences, chosen: np.ndarray) -> tuple[list[sparse.csr_matrix], np.ndarray]:
    """Counts of A, counts of B and the words shared across the boundary, with the labels."""
    tokens = pairs.batch(chosen)
    ids, segment, special = tokens.ids.numpy(), tokens.tables["segment"].numpy(), tokens.special.numpy()

    def counted(where: np.ndarray) -> sparse.csr_matrix:
        row, column = np.nonzero(where)
        shape = (len(chosen), pairs.store.vocabulary.size)
        counts = sparse.coo_matrix((np.ones(len(row)), (row, ids[row, column])), shape=shape).tocsr()
        return cast(sparse.csr_matrix, counts)

    def present(where: np.ndarray) -> sparse.csr_matrix:
        words = counted(where)
        words.data[:] = 1
        return words

    inside = [~special & (segment == number) for number in (0, 1)]
    before = [where.cumsum(1) for where in inside]  # of the segment's tokens, this one included
    after = [where.sum(1, keepdims=True) - passed for where, passed in zip(inside, before, strict=True)]
    across = []
    for width in WIDTHS:
        begins, ends = (
            [present(where & near) for where, near in zip(inside, nears, strict=True)]
            for nears in ([passed <= width for passed in before], [left < width for left in after])
        )
        across += [ends[0].multiply(begins[1]).tocsr(), ends[1].multiply(begins[0]).tocsr()]
    return [*map(counted, inside), *across], tokens.labels["sentence"].numpy()


def words(weights: Any, pairs: Counted) -> sparse.csr_matrix:
    """All words: weights of A, of B, of what they share, and the similarity.

    Args:
        weights: A fitted ``TfidfTransformer``.
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


def shared_across(weights: Any, pairs: Counted) -> np.ndarray:
    """The summed inverse document frequencies of the words of each of `Counted.across` ``[pairs k]``, as in `words`."""
    return np.stack([matrix @ weights.idf_ for matrix in pairs.across], axis=1)
