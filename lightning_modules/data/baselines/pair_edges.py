"""What a pair of segments shows besides its words: lengths, edges, corpora, beginnings of documents.

None of it is about whether two texts belong together. A construction of pairs in which it predicts the label asks
another question than it seems to.
"""

import numpy as np

from lightning_modules.data.formats.pairs import PairSequences
from lightning_modules.data.store import TokenStore
from lightning_modules.words import is_part

_AT_ONCE = 1000  # pairs
# kind of tokenizer -> raise when its pieces are of other classes; part of the identity of runs with held-out pairs
RECIPES = {"byte_bpe": 2, "unigram": 2}
_CLASSES = 7  # of pieces; see `_piece_classes`
_QUOTES = frozenset("\"'`“”‘’«»")


def lengths(pairs: PairSequences) -> np.ndarray:
    """Tokens of A and of B, their sum, difference, ratio and order ``[pairs k]``."""
    a, b = _sizes(pairs)
    columns = (a, b, a + b, a - b, abs(a - b), np.log((a + 1) / (b + 1)), np.sign(a - b), a == b)
    return np.stack(columns, axis=1).astype(float)


def edges(pairs: PairSequences) -> np.ndarray:
    """Where segments begin and end, and with what kind of piece ``[pairs k]``.

    For A and for B: whether it begins and ends as a sentence does, the class of its first and of its last piece.
    """
    begins, classes = np.unique(pairs.store.sentences), _piece_classes(pairs.store)
    columns = [np.isin(place, begins) for place in pairs.index[:4]]
    for piece in _outer_pieces(pairs).T:
        found = np.where(piece < 0, _CLASSES, classes[piece])
        columns += [found == number for number in range(_CLASSES + 1)]
    return np.stack(columns, axis=1).astype(float)


def _outer_pieces(pairs: PairSequences) -> np.ndarray:
    """First and last piece of A, then of B, as they are shown ``[pairs 4]``; -1 where a segment is empty."""
    a, b = _sizes(pairs)
    middle, last = 1 + a, 2 + a + b
    places = np.stack([np.ones_like(a), middle - 1, middle + 1, last - 1], axis=1)
    pieces = np.empty_like(places)
    for start in range(0, len(a), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(a)))
        pieces[rows] = np.take_along_axis(pairs.batch(rows).ids.numpy(), places[rows], axis=1)
    return np.where(np.stack([a, a, b, b], axis=1) > 0, pieces, -1)


def starts(pairs: PairSequences) -> np.ndarray:
    """Whether A and B begin a document, and whether they end one ``[pairs 4]``."""
    documents = np.unique(pairs.store.document_starts)
    return np.stack([np.isin(place, documents) for place in pairs.index[:4]], axis=1).astype(float)


def corpora(pairs: PairSequences) -> np.ndarray:
    """The corpora of A and of B, and whether they differ ``[pairs k]``."""
    begins = pairs.store.document_starts[list(pairs.store.corpora)]
    a, b = (np.searchsorted(begins, place, side="right") for place in (pairs.index[0], pairs.index[2]))
    columns = [one == number for number in range(len(begins) + 1) for one in (a, b)]
    return np.stack([*columns, a != b], axis=1).astype(float)


def clusters(pairs: PairSequences) -> np.ndarray:
    """Numbers of groups of pairs ``[pairs]``; pairs that share a segment are in one group."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    count = pairs.index.shape[1]
    _, segment = np.unique(pairs.index[[0, 2]], return_inverse=True)
    a, b = segment.reshape(2, count)
    size = int(segment.max(initial=-1)) + 1
    _, group = connected_components(coo_matrix((np.ones(count), (a, b)), shape=(size, size)), directed=False)
    return group[a]


def _sizes(pairs: PairSequences) -> tuple[np.ndarray, np.ndarray]:
    a_start, a_end, b_start, b_end = pairs.index[:4]
    return a_end - a_start, b_end - b_start


def _piece_classes(store: TokenStore) -> np.ndarray:
    """The class of each piece ``[v]``: inside a word, capitalised, digit, end of a sentence, quotation mark, other
    sign, word.

    It is that of its first letter; a letter of which it holds a part, or the space before alone, is one of a word.
    """
    vocabulary = store.vocabulary
    marked = (vocabulary.mark_of_words == "##") & ~vocabulary.begins_word
    return np.array(list(map(_piece_class, vocabulary.texts, vocabulary.begins_word, marked)))


def _piece_class(text: str, begins_word: bool, goes_on: bool) -> int:
    first = text[:1]
    is_unknown = not first or is_part(first)
    tests = (
        goes_on or (not begins_word and (first.isalnum() or is_unknown)),
        first.isupper(),
        first.isdigit(),
        first in tuple(".!?…"),
        first in _QUOTES,
        not (first.isalpha() or is_unknown),
    )
    return tests.index(True) if any(tests) else len(tests)
