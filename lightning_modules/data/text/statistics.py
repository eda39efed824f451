"""What a tokenizer makes of a text: pieces a word, unknown pieces, bytes a piece, speed."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import SPECIALS, Vocabulary
from lightning_modules.words import is_part

_LONGEST = 5  # pieces that are named


@dataclass(frozen=True)
class Statistics:
    """What a tokenizer makes of a text.

    Words are separated by spaces and hold their punctuation. *Plain* words have letters and digits alone, so that they
    are words under every kind of tokenizer.

    Attributes:
        one_piece_words: Share of the plain words that are one piece.
        continuations: Share of the pieces of plain words that do not begin them.
        unknown: Share of the pieces that are [UNK].
        bytes_per_piece: Bytes of the text (UTF-8, each word with the space before it) a piece.
        unused: Share of the vocabulary, special pieces aside, that the text does not use.
        letters: Pieces of one letter or sign, whether inside a word or not; of byte-level BPE, bytes.
        longest: The pieces of most letters, without the marks of their kind; of byte-level BPE, of whole letters.
        words_per_second: Encoding speed, each distinct word encoded once.
    """

    words: int
    pieces_per_word: float
    one_piece_words: float
    continuations: float
    unknown: float
    bytes_per_piece: float
    unused: float
    specials: int
    letters: int
    longest: tuple[str, ...]
    words_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def measured(encoder: Encoder, sentences: Sequence[str]) -> Statistics:
    """The statistics of a text.

    Args:
        encoder: A new one, since words that an encoder has met before cost no time.
        sentences: At least one, of words separated by single spaces.
    """
    listed, vocabulary = list(sentences), encoder.vocabulary
    started = time.perf_counter()
    ids, starts, _ = encoder.by_word(listed)
    seconds = time.perf_counter() - started
    words = " ".join(listed).split(" ")
    sizes = np.diff(starts)
    plain = sizes[np.fromiter((word.isalnum() for word in words), bool, len(words))]
    used = np.unique(ids[ids >= len(SPECIALS)])
    whole = {text for text in vocabulary.texts[len(SPECIALS) :] if not any(map(is_part, text))}
    return Statistics(
        words=len(words),
        pieces_per_word=len(ids) / len(words),
        one_piece_words=_share((plain == 1).sum(), len(plain)),
        continuations=_share((plain - 1).clip(0).sum(), plain.sum()),
        unknown=_share((ids == vocabulary.unk).sum(), len(ids)),
        bytes_per_piece=sum(len(word.encode()) + 1 for word in words) / max(1, len(ids)),
        unused=1 - _share(len(used), vocabulary.size - len(SPECIALS)),
        specials=len(SPECIALS),
        letters=len({piece for piece in _bare(vocabulary) if len(piece) == 1}),
        longest=tuple(sorted(whole, key=lambda piece: (-len(piece), piece))[:_LONGEST]),
        words_per_second=len(words) / seconds,
    )


def _share(part: float, whole: float) -> float:
    return float(part) / max(1.0, float(whole))


def _bare(vocabulary: Vocabulary) -> list[str]:
    """The pieces that are not special, without the marks of word starts and of pieces inside words."""
    return [vocabulary.bare(piece) or piece for piece in vocabulary.pieces[len(SPECIALS) :]]
