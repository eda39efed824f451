"""Words by their characters, made of the pieces of a batch (Peters et al. 2018; released code: bilm-tf).

A word is what `words.beginnings` makes of pieces, and its characters are its bytes in UTF-8. A word has 50 characters:
a mark of its beginning, at most 48 bytes, a mark of its end, and padding. A special piece is a word of one character
of its own, and an unknown piece has none.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from lightning_modules.batch import Characters, Tokens
from lightning_modules.data.text.tokenizer import SPECIALS, Vocabulary
from lightning_modules.words import CLOSES, LONGEST, NO_CHARACTER, OPENS, beginnings

_FIRST, _LAST, _OPEN, _CLOSE = range(256, 260)  # marks of a text, [CLS] and [SEP], and of a word
_ROOM = LONGEST - 2  # for the bytes of a word


def spelt(tokens: Tokens, vocabulary: Vocabulary) -> Tokens:
    """The same rows with the characters of their words.

    A word that a row cuts is as long as what the row shows of it.

    Args:
        tokens: The rows; all ids are of the vocabulary.
    """
    ids, special, real = (part.numpy() for part in (tokens.ids, tokens.special, tokens.real))
    inside = real & ~special
    begins = beginnings(vocabulary.word_edges, ids, inside) | (real & special)
    words = np.where(begins, begins.ravel().cumsum().reshape(ids.shape) - 1, -1)
    rows, which = np.unique(_rows(ids[real], begins[real], vocabulary).view(_AS_ONE), return_inverse=True)
    words[begins] = which.ravel()
    known = _known(vocabulary)
    own = np.array([known.get(row.tobytes(), vocabulary.unk) for row in rows.ravel()])
    table = rows.view(np.int16).reshape(-1, LONGEST).copy()
    spelling = Characters(torch.from_numpy(table), torch.from_numpy(own), torch.from_numpy(words))
    return replace(tokens, characters=spelling)


_AS_ONE = np.dtype((np.void, 2 * LONGEST))


@lru_cache(maxsize=8)
def _known(vocabulary: Vocabulary) -> dict[bytes, int]:
    """The characters of each word that is a piece, as bytes of int16 -> the first of its pieces.

    Of longer words there is room for the beginning alone, so that none of them is known.
    """
    pieces = np.flatnonzero(vocabulary.word_edges.flags & (OPENS | CLOSES))
    pieces = pieces[(pieces >= len(SPECIALS)) & (np.diff(_spelling(vocabulary)[1])[pieces] <= _ROOM)]
    pieces = np.concatenate([[vocabulary.cls, vocabulary.sep], pieces])
    rows = _rows(pieces, np.ones(len(pieces), dtype=bool), vocabulary).view(_AS_ONE).ravel()
    return {row.tobytes(): piece for row, piece in zip(rows[::-1], pieces[::-1].tolist(), strict=True)}


def _rows(ids: np.ndarray, begins: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The characters of each word, int16 ``[w 50]``, of pieces one after the other ``[n]``."""
    characters, starts = _spelling(vocabulary)
    lengths = np.diff(starts)[ids]
    ends = lengths.cumsum()
    word = begins.cumsum() - 1
    total = np.bincount(word, lengths, minlength=int(begins.sum())).astype(np.int64)
    table = np.full((len(total), LONGEST), NO_CHARACTER, np.int16)
    of, column = np.repeat(word, lengths), np.arange(int(lengths.sum()))
    source = np.repeat(starts[ids] - (ends - lengths), lengths) + column
    column = column - (total.cumsum() - total)[of]
    kept = column < _ROOM
    table[of[kept], 1 + column[kept]] = characters[source[kept]]
    table[:, 0] = _OPEN
    table[np.arange(len(total)), 1 + np.minimum(total, _ROOM)] = _CLOSE
    return table


@lru_cache(maxsize=8)
def _spelling(vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The characters of all pieces, one after the other, and where those of each piece start, and the end ``[v + 1]``.

    Of a piece that is longer than a word has room for, one more is enough.
    """
    own = {vocabulary.cls: [_FIRST], vocabulary.sep: [_LAST]}
    spelt = [
        own.get(number, []) if number < len(SPECIALS) else [*text.encode("utf-8", "surrogateescape")][: _ROOM + 1]
        for number, text in enumerate(vocabulary.texts)
    ]
    flat = np.array([character for piece in spelt for character in piece], np.int16)
    return flat, np.cumsum([0, *map(len, spelt)])
