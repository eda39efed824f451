"""Where words begin: one definition for all kinds of pieces.

Spaces separate words, and every mark of punctuation is a word of its own, as in BERT's tokenizer before it cuts words
into pieces. Pieces of byte-level BPE and of unigram models that follow punctuation carry no mark of a word's start, so
that the piece before decides as well. Two things differ between encodings, because a piece is never cut: marks of
punctuation that one piece holds together (``...``) are one word, and so are the apostrophe and letters of ``'t``.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np

OPENS, CLOSES, SPACE = np.uint8(1), np.uint8(2), np.uint8(4)  # a word begins here; the next begins; a space alone


def is_punctuation(letter: str) -> bool:
    """Whether a letter is punctuation for BERT: all of ASCII but letters, digits and spaces, and Unicode's own."""
    if letter.isascii():
        return letter.isprintable() and not letter.isalnum() and letter != " "
    return unicodedata.category(letter).startswith("P")


def edges(texts: Sequence[str], begins_word: np.ndarray, ends_word: np.ndarray | None = None) -> np.ndarray:
    """Flags of pieces ``[v]``, from which `beginnings` knows where words begin.

    Args:
        texts: The letters of each piece, without marks of word starts.
        begins_word: Whether a piece has such a mark ``[v]``, or begins a word for want of a mark of continuation.
        ends_word: Whether a piece has a mark of a word's end ``[v]``; None where ends have none.
    """
    flags = np.where(begins_word, OPENS, np.uint8(0))
    if ends_word is not None:
        flags |= np.where(ends_word, CLOSES, np.uint8(0))
    for number, text in enumerate(texts):
        if not text:
            flags[number] |= SPACE
        elif is_punctuation(text[0]):
            flags[number] |= OPENS
        if text and is_punctuation(text[-1]):
            flags[number] |= CLOSES
    return flags


def beginnings(edges: np.ndarray, ids: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Whether a word begins at each position, a bool array ``[b t]``.

    Args:
        edges: Flags of pieces ``[v]``.
        ids: Ids of pieces ``[b t]``.
        inside: Where there is text rather than padding or a special piece ``[b t]``; no word crosses what is not.
    """
    flags = edges[ids]
    before = np.zeros_like(flags)
    before[:, 1:] = flags[:, :-1]
    begins = ((flags & OPENS) > 0) & ((before & SPACE) == 0) | ((before & CLOSES) > 0)
    begins[:, 0] = True
    begins[:, 1:] |= ~inside[:, :-1]
    return begins & inside
