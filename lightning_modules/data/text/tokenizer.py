"""Tokenizers: WordPiece, BPE of bytes or of letters, or unigram, trained on the train split of a run's corpora.

They are cached by content. Training is deterministic. The trainer of the ``tokenizers`` package alone is not: it
numbers letters with a mark (``##e``, ``e</w>``) in the order of a randomly seeded hash map and breaks ties between
pairs by these numbers. Here the letters are counted first and passed to it in a fixed order. Unigram pieces have
another trainer (`data.text.unigram`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lightning_modules import cached
from lightning_modules.config import ConfigError, Settings, identity, knob
from lightning_modules.data.text import unigram
from lightning_modules.draws import permutation
from lightning_modules.files import read
from lightning_modules.places import cache
from lightning_modules.words import Edges, edges

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.models import Model
    from tokenizers.trainers import Trainer

END = "</w>"  # marks the last piece of a word in BPE of letters (Sennrich et al. 2016)
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 .. 4 of every vocabulary
TRAINING_WORDS = 6_000_000  # approximate maximum words for training a tokenizer
_RECIPE = 1  # raise when the same text and settings would give a different vocabulary
_LONGEST_WORD = 100  # characters; a longer word is [UNK], as in BERT
_LONGEST_TRAINED = 1 << 12  # letters of a word; a longer one is left out, since the time of a trainer is their square


class Tokenizer(Settings):
    """The settings of a tokenizer."""

    kind: Literal["wordpiece", "byte_bpe", "unigram", "letter_bpe"] = knob(
        "wordpiece",
        "Kind of tokenizer: BERT's WordPiece, GPT-2's byte-level BPE, ALBERT's unigram pieces, GPT's BPE of letters.",
    )
    vocab_size: int = knob(4096, "Pieces in the vocabulary, including the five special ones.", ge=64, le=1 << 20)
    lowercase: bool = knob(True, "Lower-case the text (and, but for either BPE, strip accents).")
    corpora: tuple[str, ...] = knob(
        (), "Corpora that it is trained on, where these are not those of the data. Empty for those.", neutral=()
    )


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The pieces of a tokenizer, in the order of their ids.

    Attributes:
        pieces: The pieces as strings ``[v]``.
        begins_word: Whether a piece starts a word ``[v]``; true for special pieces. Where the mark is of ends, all may.
        mark_of_words: What marks the pieces that continue words (``##``), begin them (``Ġ``, ``▁``) or end them
            (``</w>``).
        text: The ids of a text in these pieces, if there is one.
    """

    pieces: tuple[str, ...]
    begins_word: np.ndarray
    mark_of_words: str = "##"
    text: np.ndarray | None = None

    pad: int = 0
    unk: int = 1
    cls: int = 2
    sep: int = 3
    mask: int = 4

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    @cached_property
    def dtype(self) -> type[np.unsignedinteger]:
        """The smallest integer type that holds every id."""
        return np.uint16 if self.size <= 1 << 16 else np.uint32

    @classmethod
    def of(cls, pieces: Iterable[str], kind: str) -> "Vocabulary":
        """The vocabulary with words marked as the kind of tokenizer marks them (``##``, ``Ġ``, ``▁``, ``</w>``)."""
        pieces, mark = tuple(pieces), _MARKS[kind]
        begins = [mark == END or piece in SPECIALS or piece.startswith(mark) != (mark == "##") for piece in pieces]
        return cls(pieces, np.array(begins), mark)

    def begins(self, ids: np.ndarray) -> np.ndarray:
        """Whether each piece of some rows starts a word, by its own mark or that of the piece before it ``[... t]``."""
        if self.mark_of_words != END:
            return self.begins_word[ids]
        return np.concatenate([np.ones_like(ids[..., :1], dtype=bool), self.ends_word[ids[..., :-1]]], axis=-1)

    def bare(self, piece: str) -> str:
        """A piece without its mark."""
        return piece.removesuffix(END) if self.mark_of_words == END else piece.removeprefix(self.mark_of_words)

    @cached_property
    def ends_word(self) -> np.ndarray:
        """Whether a piece has the mark of a word's end ``[v]``."""
        return np.array([self.mark_of_words == END and piece.endswith(END) for piece in self.pieces])

    @property
    def ordinary(self) -> np.ndarray:
        """The ids of all pieces that are not special, in ascending order."""
        return self._ordinary

    @property
    def word_edges(self) -> Edges:
        """Which pieces begin and end words."""
        return self._word_edges

    @cached_property
    def _ordinary(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.size), [self.pad, self.unk, self.cls, self.sep, self.mask])

    @cached_property
    def texts(self) -> list[str]:
        """Each piece as its text, without its mark; the bytes of a letter that it holds in part are `words.is_part`."""
        return [_letters_of(self.bare(piece), self.mark_of_words) for piece in self.pieces]

    @cached_property
    def _word_edges(self) -> Edges:
        begins = np.zeros(self.size, dtype=bool) if self.mark_of_words == END else self.begins_word
        return edges(self.texts, begins, self.ends_word)


def _letters_of(piece: str, mark: str) -> str:
    """The letters of a piece without mark; of a byte-level piece, those that its bytes spell."""
    if mark != _MARKS["byte_bpe"] or not _BYTES.keys() >= set(piece):
        return piece
    return "".join(_BYTES[letter] for letter in piece).encode("latin-1").decode("utf-8", "surrogateescape")


def byte_letters() -> dict[str, str]:
    """The letter by which byte-level BPE writes each byte (Radford et al. 2019) -> the character of that number."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [number for number in range(256) if number not in shown]
    return {chr(n): chr(n) for n in shown} | {chr(256 + place): chr(n) for place, n in enumerate(hidden)}


_BYTES = byte_letters()
# "##" marks what begins no word
_MARKS = {"wordpiece": "##", "byte_bpe": "Ġ", "unigram": unigram.SPACE, "letter_bpe": END}


def train(settings: Tokenizer, sentences: Iterable[str]) -> "tokenizers.Tokenizer":
    """A tokenizer trained on sentences whose words are separated by single spaces.

    Words of more than 4,096 letters, such as base64 and minified code, are left out.

    Raises:
        ConfigError: When the text is too small for the vocabulary, with the largest possible size.
    """
    found = _shell(settings, _MODELS[settings.kind](settings, _without_endless(settings, sentences)))
    if found.get_vocab_size() < settings.vocab_size:
        raise ConfigError(
            [
                f"the corpus supports at most {found.get_vocab_size()} pieces of a {settings.kind} vocabulary, but "
                f"vocab_size is {settings.vocab_size}. Lower vocab_size or add a corpus."
            ]
        )
    return found


def _without_endless(settings: Tokenizer, sentences: Iterable[str]) -> list[str]:
    """The sentences without words that are too long, as the tokenizer splits words; SentencePiece leaves them out."""
    if settings.kind == "unigram":
        return list(sentences)
    shell = _shell(settings, _empty_model())

    def shortened(word: str) -> str:
        if len(word) <= _LONGEST_TRAINED:
            return word
        clean = shell.normalizer.normalize_str(word) if shell.normalizer else word
        parts = shell.pre_tokenizer.pre_tokenize_str(clean)
        short = [clean[start:end].strip() for part, (start, end) in parts if len(part) <= _LONGEST_TRAINED]
        return word if len(short) == len(parts) else " ".join(short)

    return [
        " ".join(map(shortened, sentence.split(" "))) if len(sentence) > _LONGEST_TRAINED else sentence
        for sentence in sentences
    ]


def _wordpiece(settings: Tokenizer, sentences: list[str]) -> "Model":
    """A WordPiece model, trained with its letters in a fixed order."""
    from tokenizers import models, trainers

    letters, inner = _letters(settings, sentences)
    _check_room(settings, len(letters) + len(inner))
    trainer = trainers.WordPieceTrainer(
        **_common(settings),
        special_tokens=[*SPECIALS, *letters, *("##" + letter for letter in inner)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix="##",
    )
    model = _trained(_shell(settings, models.WordPiece(unk_token="[UNK]")), trainer, sentences)
    return models.WordPiece(model["vocab"], unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD)


def _letter_bpe(settings: Tokenizer, sentences: list[str]) -> "Model":
    """A BPE model of letters, of which the last of a word has a mark and is another one."""
    from tokenizers import models, trainers

    letters, last = _letters(settings, sentences, ends=True)
    _check_room(settings, len(letters) + len(last))
    trainer = trainers.BpeTrainer(
        **_common(settings),
        special_tokens=[*SPECIALS, *letters, *(letter + END for letter in last)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        end_of_word_suffix=END,
    )
    model = _trained(_shell(settings, models.BPE(unk_token="[UNK]", end_of_word_suffix=END)), trainer, sentences)
    merges = [tuple(pair) for pair in model["merges"]]
    return models.BPE(model["vocab"], merges, unk_token="[UNK]", end_of_word_suffix=END)


def _common(settings: Tokenizer) -> dict[str, Any]:
    return {"vocab_size": settings.vocab_size, "min_frequency": 2, "show_progress": False}


def _check_room(settings: Tokenizer, count: int, what: str = "letters of the text") -> None:
    least = len(SPECIALS) + count
    if settings.vocab_size < least:
        text = f"vocab_size {settings.vocab_size} is too small for the {what}. It needs at least {least}."
        raise ConfigError([text])


def _byte_bpe(settings: Tokenizer, sentences: list[str]) -> "Model":
    """A byte-level BPE model; the alphabet includes every byte."""
    from tokenizers import models, trainers
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = sorted(ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(**_common(settings), special_tokens=list(SPECIALS), initial_alphabet=alphabet)
    _check_room(settings, len(ByteLevel.alphabet()), "bytes")
    model = _trained(_shell(settings, models.BPE()), trainer, sentences)
    return models.BPE(model["vocab"], [tuple(pair) for pair in model["merges"]])


def _unigram(settings: Tokenizer, sentences: list[str]) -> "Model":
    clean = unigram.normalizer(settings.lowercase)
    words: Counter[str] = Counter()
    for word, count in _words(sentences).items():
        for part in clean.normalize_str(word).split():  # a character may be decomposed into a space and another
            words[part] += count
    return unigram.train(words, settings.vocab_size, SPECIALS)


_MODELS: dict[str, "Callable[[Tokenizer, list[str]], Model]"] = {
    "wordpiece": _wordpiece,
    "byte_bpe": _byte_bpe,
    "unigram": _unigram,
    "letter_bpe": _letter_bpe,
}


def _trained(empty: "tokenizers.Tokenizer", trainer: "Trainer", sentences: list[str]) -> dict[str, Any]:
    """The model of a trained tokenizer as data.

    A tokenizer is rebuilt from it, so that no piece is matched before the text is split into words: "[MASK]" in an
    article is encoded as ordinary pieces.
    """
    empty.train_from_iterator(sentences, trainer)
    return json.loads(empty.to_str())["model"]


def _shell(settings: Tokenizer, model: "Model") -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer as Fast
    from tokenizers import decoders, normalizers, pre_tokenizers

    fast = Fast(model)
    if settings.kind == "wordpiece":
        fast.normalizer = normalizers.BertNormalizer(lowercase=settings.lowercase)
        fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        fast.decoder = decoders.WordPiece(prefix="##")
    elif settings.kind == "letter_bpe":
        fast.normalizer = normalizers.BertNormalizer(lowercase=settings.lowercase, strip_accents=False)
        fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        fast.decoder = decoders.BPEDecoder(suffix=END)
    elif settings.kind == "unigram":
        fast.normalizer = unigram.normalizer(settings.lowercase)
        fast.pre_tokenizer = unigram.pre_tokenizer(SPECIALS)
        fast.decoder = decoders.Metaspace(replacement=unigram.SPACE, prepend_scheme="always")
    else:
        if settings.lowercase:
            fast.normalizer = normalizers.Lowercase()
        fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        fast.decoder = decoders.ByteLevel()
    return fast


def _letters(settings: Tokenizer, sentences: list[str], *, ends: bool = False) -> tuple[list[str], list[str]]:
    """The letters of the vocabulary, and those that also occur with a mark, each in a fixed order.

    At most a sixteenth of the vocabulary and at most 1,000 (as in BERT) are letters; words with rarer ones are [UNK].

    Args:
        ends: Whether the last letter of a word has a mark; else all but the first have one.
    """
    shell = _shell(settings, _empty_model())
    everywhere: Counter[str] = Counter()
    marked: Counter[str] = Counter()
    for word, count in _words(sentences).items():
        for piece, _ in shell.pre_tokenizer.pre_tokenize_str(shell.normalizer.normalize_str(word)):
            for letter in piece:
                everywhere[letter] += count
            for letter in piece[-1:] if ends else piece[1:]:
                marked[letter] += count
    most = max(64, min(1000, settings.vocab_size // 16))
    letters = sorted(sorted(everywhere, key=lambda letter: (-everywhere[letter], letter))[:most])
    return letters, [letter for letter in letters if marked[letter]]


def _words(sentences: list[str]) -> Counter[str]:
    return Counter(word for sentence in sentences for word in sentence.split(" "))


def _empty_model() -> "Model":
    from tokenizers import models

    return models.WordPiece(unk_token="[UNK]")


def trained(settings: Tokenizer, key: dict[str, str], sentences: Iterator[str]) -> Path:
    """The file of the tokenizer for some corpora, from the cache or trained now.

    Args:
        key: The fingerprints of the corpora.
        sentences: The training text, read only if the tokenizer is not cached.

    Returns:
        The path of a ``tokenizer.json`` in the format of the ``tokenizers`` package.
    """
    path = place(settings, key)
    return cached.kept(path, lambda file: file.write(train(settings, sentences).to_str().encode()), lambda path: path)


def place(settings: Tokenizer, key: dict[str, str]) -> Path:
    """Where `trained` keeps the tokenizer; the arguments are its."""
    learnt = settings.model_copy(update={"corpora": ()})  # the key names them
    name = identity({"settings": learnt.essence(), "corpora": key, "recipe": _RECIPE})[:24]
    return cache() / "tokenizers" / name / "tokenizer.json"


def fingerprint(path: Path) -> str:
    """SHA-256 of a tokenizer's file."""
    return hashlib.sha256(read(path)).hexdigest()


def sampled(number: int, share: float) -> bool:
    """Whether document ``number`` belongs to the fixed sample of ``share`` of the documents."""
    block, place = divmod(number, 100)
    return bool(permutation(0, "tokenizer documents", block, 100)[place] < 100 * share)
