"""Where words begin: one definition for all kinds of pieces.

Spaces separate words, and every mark of punctuation is a word of its own, as in BERT's tokenizer before it cuts words
into pieces. Pieces of byte-level BPE and of unigram models that follow punctuation carry no mark of a word's start, so
that the piece before decides as well. A letter or a mark whose bytes are in several pieces of byte-level BPE is put
together first. Two things differ between encodings, because a piece is never cut: marks of punctuation that one piece
holds together (``...``) are one word, and so are the apostrophe and letters of ``'t``.
"""

import codecs
import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

OPENS, CLOSES, SPACE = np.uint8(1), np.uint8(2), np.uint8(4)  # a word begins here; the next begins; a space alone
LONGEST = 50  # characters of a word that is read by its characters, a mark at either end included
CHARACTERS, NO_CHARACTER = 261, 260  # 256 bytes, four marks and padding; padding
OF_BYTES = 2  # raise when words begin at other pieces of byte-level BPE; part of the identity of runs that read words
_INNER = bytes(range(0x80, 0xC0))  # bytes that go on with a letter, in UTF-8
_WHOLE = b" "  # represents the whole letters of a piece where only parts of letters are looked at
_WIDTH = 7  # at most three bytes of a letter that begins before a piece, a space, three of one that ends after it


@dataclass(frozen=True, eq=False)
class Edges:
    """Which pieces begin and end words.

    Attributes:
        flags: `OPENS`, `CLOSES` and `SPACE` by a piece's own mark and whole letters, uint8 ``[v]``.
        parts: The bytes of letters that a piece holds in part, and a space for its whole letters, the rest 0, uint8
            ``[v 7]``; None where no piece cuts a letter.
    """

    flags: np.ndarray
    parts: np.ndarray | None = None


def is_punctuation(letter: str) -> bool:
    """Whether a letter is punctuation for BERT: all of ASCII but letters, digits and spaces, and Unicode's own."""
    if letter.isascii():
        return letter.isprintable() and not letter.isalnum() and letter != " "
    return unicodedata.category(letter).startswith("P")


def is_part(letter: str) -> bool:
    """Whether a character represents a byte of a letter that a piece holds in part, as in PEP 383 (surrogateescape).

    It is no letter, no digit and no sign: which of them it belongs to is seen only with the pieces around it.
    """
    return "\udc80" <= letter <= "\udcff"


def edges(texts: Sequence[str], begins_word: np.ndarray, ends_word: np.ndarray | None = None) -> Edges:
    """What `beginnings` needs to know of the pieces of a vocabulary.

    Args:
        texts: The letters of each piece ``[v]``, without marks of word starts; parts of letters as in `is_part`.
        begins_word: Whether a piece has such a mark ``[v]``, or begins a word for want of a mark of continuation.
        ends_word: Whether a piece has a mark of a word's end ``[v]``; None where ends have none.
    """
    flags = np.where(begins_word, OPENS, np.uint8(0))
    if ends_word is not None:
        flags |= np.where(ends_word, CLOSES, np.uint8(0))
    parts = np.zeros((len(texts), _WIDTH), dtype=np.uint8)
    for number, piece in enumerate(texts):
        head, text, tail = _divided(piece.encode("utf-8", "surrogateescape"))
        held = head + _WHOLE * bool(text or begins_word[number] or not piece) + tail
        parts[number, : len(held)] = [*held]
        if not piece:
            flags[number] |= SPACE
        if text and is_punctuation(text[0]):
            flags[number] |= OPENS
        if text and is_punctuation(text[-1]):
            flags[number] |= CLOSES
    return Edges(flags, parts if (parts > _WHOLE[0]).any() else None)


def _divided(piece: bytes) -> tuple[bytes, str, bytes]:
    """The rest of a letter at the beginning of a piece, its whole letters, and the part of a letter at its end."""
    rest = piece.lstrip(_INNER)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(rest)
    return piece[: len(piece) - len(rest)][:3], text, decoder.getstate()[0]


def beginnings(edges: Edges, ids: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Whether a word begins at each position, a bool array ``[b t]``.

    Args:
        ids: Ids of pieces ``[b t]``.
        inside: Where there is text rather than padding or a special piece ``[b t]``; no word crosses what is not.
    """
    flags, cut = edges.flags[ids], np.zeros(ids.shape, dtype=bool)
    if edges.parts is not None and (rows := (edges.parts.max(axis=1) > _WHOLE[0])[ids].any(axis=1)).any():
        found, cut[rows] = _put_together(edges.parts[ids[rows]])
        flags[rows] |= found
    before = np.zeros_like(flags)
    before[:, 1:] = flags[:, :-1]
    begins = ((flags & OPENS) > 0) & ((before & SPACE) == 0) | ((before & CLOSES) > 0)
    begins &= ~cut
    begins[:, 0] = True
    begins[:, 1:] |= ~inside[:, :-1]
    return begins & inside


def _put_together(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flags of positions by the letters whose bytes lie in several pieces, and which positions begin within a letter.

    Args:
        parts: The parts of letters at each position ``[b t 7]``.
    """
    rows, length, width = parts.shape
    ended = np.pad(parts.reshape(rows, -1), ((0, 0), (0, width)), constant_values=_WHOLE[0])  # no letter crosses rows
    place = np.flatnonzero(ended)
    held, position = ended.reshape(-1)[place], place // width
    inner = held & 0xC0 == 0x80
    letter = np.cumsum(~inner) - 1
    starts = np.flatnonzero(~inner)
    spelt = held[starts].astype(np.int64)
    for step in (1, 2, 3):
        at = np.minimum(starts + step, len(held) - 1)
        spelt = np.where(letter[at] == letter[starts], spelt << 8 | held[at], spelt)
    kinds, which = np.unique(spelt, return_inverse=True)
    marks = np.array([_is_mark(kind) for kind in kinds.tolist()])[which][letter]
    first = np.flatnonzero(np.diff(position, prepend=-1))
    last = np.append(first[1:], len(held)) - 1
    flags = np.where(marks[first] & ~inner[first], OPENS, np.uint8(0)) | np.where(marks[last], CLOSES, np.uint8(0))
    return flags.reshape(rows, -1)[:, :length], inner[first].reshape(rows, -1)[:, :length]


@functools.cache
def _is_mark(spelt: int) -> bool:
    """Whether some bytes, as a number, are a mark of punctuation beyond ASCII."""
    letter = spelt.to_bytes(4, "big").lstrip(b"\0").decode("utf-8", "replace")
    return len(letter) == 1 and not letter.isascii() and is_punctuation(letter)
