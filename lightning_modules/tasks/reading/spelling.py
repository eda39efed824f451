"""The alignment of a word's pieces with its characters.

Tokenizers lower-case, strip accents and split at punctuation, so the pieces of "(São)" are "(", "sao", ")". The
alignment turns predicted pieces into text of the passage, and marked answers into pieces.
"""

import itertools
import re
import string
import unicodedata
from collections.abc import Callable, Iterator
from typing import Literal

from lightning_modules.data.text import unigram
from lightning_modules.data.text.tokenizer import END, Vocabulary, byte_letters

_MOST_UNKNOWN = 4  # unknown pieces of a word that are aligned


class Spelling:
    """Aligns words with the pieces of a vocabulary: WordPiece, BPE of bytes or letters, or unigram.

    `get_final_text` of BERT's ``run_squad.py`` does the same by comparing an answer without its spaces with its source
    text. As there, the whole word is used if pieces and characters cannot be matched.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from tokenizers.pre_tokenizers import ByteLevel

        bytes_ = byte_letters()
        self._byte_level = set(ByteLevel.alphabet()) <= set(vocabulary.pieces)
        self._unigram = not self._byte_level and unigram.SPACE in vocabulary.pieces
        self._ends = vocabulary.mark_of_words == END
        self._unknown = vocabulary.unk
        if self._unigram:
            self._pieces = [piece.replace(unigram.SPACE, " ") for piece in vocabulary.pieces]
        elif self._byte_level:
            self._pieces = ["".join(bytes_.get(letter, letter) for letter in piece) for piece in vocabulary.pieces]
        else:
            bare = vocabulary.bare if self._ends else lambda piece: piece.removeprefix("##")
            self._pieces = [bare(piece) or piece for piece in vocabulary.pieces]
        self._known: dict[tuple[str, tuple[int, ...]], list[tuple[int, int]]] = {}

    def characters(self, word: str, ids: tuple[int, ...]) -> list[tuple[int, int]]:
        """Start and end of each piece in its word; the whole word for every piece if they cannot be matched.

        An unknown piece covers what its neighbours leave. The space that byte-level BPE and unigram pieces put before
        a word is not a character of it.

        >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "(", ")", "sa", "##o"]
        >>> vocabulary = Vocabulary.of(pieces, "wordpiece")
        >>> Spelling(vocabulary).characters("(São)", (5, 7, 8, 6))
        [(0, 1), (1, 3), (3, 4), (4, 5)]
        """
        key = (word, ids)
        if key not in self._known:
            matches = (self._match(word, ids, change) for change in self._changes())
            self._known[key] = next((match for match in matches if match), [(0, len(word))] * len(ids))
        return self._known[key]

    @property
    def _spaced(self) -> bool:
        """Whether the first piece of a word holds the space before it."""
        return self._byte_level or self._unigram

    def _changes(self) -> Iterator[Callable[[str], str]]:
        """What a tokenizer may do to a character: keep it, lower-case it, or lower-case it and strip its accents."""
        if self._byte_level:
            yield lambda letter: letter.encode("utf-8", "surrogatepass").decode("latin-1")
            yield lambda letter: letter.lower().encode("utf-8", "surrogatepass").decode("latin-1")
        elif self._unigram:
            yield lambda letter: letter
            yield lambda letter: _without_accents(letter, "NFKD")
        else:
            yield lambda letter: "" if _control(letter) else letter
            if self._ends:
                yield lambda letter: "" if _control(letter) else letter.lower()
            yield lambda letter: "" if _control(letter) else _without_accents(letter)

    def _match(self, word: str, ids: tuple[int, ...], change: Callable[[str], str]) -> list[tuple[int, int]] | None:
        changed = [change(letter) for letter in word]
        owner = [place for place, letters in enumerate(changed) for _ in letters]
        text = "".join(changed)
        if self._spaced:
            text, owner = " " + text, [0, *owner]
        if self._unknown not in ids:
            spelt = [self._pieces[n] for n in ids]
            if "".join(spelt) != text:
                return None
            ends = list(itertools.accumulate(map(len, spelt)))
            spans = list(zip([0, *ends], ends, strict=False))
        else:
            if ids.count(self._unknown) > _MOST_UNKNOWN:
                return None
            marks = "".join(re.escape(letter) for letter in set(text) if _mark(letter))
            unknown = f"([{marks}]|[^{marks}]+)" if marks and not self._spaced else "(.+)"  # BERT's words end at marks
            pattern = "".join(unknown if n == self._unknown else f"({re.escape(self._pieces[n])})" for n in ids)
            if not (match := re.fullmatch(pattern, text, re.DOTALL)):
                return None
            spans = [match.span(n + 1) for n in range(len(ids))]
        return [self._owned(owner, start, end) for start, end in spans]

    def _owned(self, owner: list[int], start: int, end: int) -> tuple[int, int]:
        if self._spaced and start == 0:
            start = min(1, end - 1)
        return owner[start], owner[end - 1] + 1


def _control(letter: str) -> bool:
    return letter == "\ufffd" or unicodedata.category(letter).startswith("C")


def _mark(letter: str) -> bool:
    return letter in string.punctuation or unicodedata.category(letter).startswith("P")


def _without_accents(letter: str, form: Literal["NFD", "NFKD"] = "NFD") -> str:
    """Lower-cased and without accents, as in BERT's tokenizer, or with NFKD as in ALBERT's."""
    decomposed = unicodedata.normalize(form, letter)
    return "".join(part for part in decomposed if unicodedata.category(part) != "Mn").lower()
