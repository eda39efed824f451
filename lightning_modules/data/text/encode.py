"""Fast encoding: each distinct word is tokenised once, then the text is assembled with numpy.

All tokenizers split text into words first and never join words, so the pieces of a sentence are those of its
space-separated words in order. A test compares every id with the library's encoding of whole sentences.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import tokenizers
import torch

from lightning_modules.batch import Example, Tokens
from lightning_modules.config import ConfigError
from lightning_modules.data.text.characters import spelt
from lightning_modules.data.text.masks import reading_masks
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.files import read_text

_MOST_WORDS = 3_000_000  # distinct words remembered, about 0.5 GB


def as_example(ids: Sequence[int], vocabulary: Vocabulary, *, characters: bool = False) -> Example:
    """One sequence for a backbone: the ids between [CLS] and [SEP], without corruption and targets.

    With ``characters`` for a model that reads words by these.
    """
    row = torch.tensor([[vocabulary.cls, *ids, vocabulary.sep]])
    special = torch.zeros_like(row, dtype=torch.bool)
    special[0, [0, -1]] = True
    tokens = Tokens(row, special, torch.ones_like(special), sample=torch.zeros(1, dtype=torch.int64))
    return Example.of(spelt(tokens, vocabulary) if characters else tokens)


class _Numbers(dict):
    """Word -> number, in order of appearance."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class Encoder:
    """Encodes sentences whose words are separated by single spaces.

    Raises:
        ConfigError: If the file of the tokenizer cannot be read.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        try:
            self.fast = tokenizers.Tokenizer.from_str(read_text(path))
        except Exception as error:  # the package raises bare Exception
            raise ConfigError([f"{path} holds no readable tokenizer ({str(error)[:200]}). Remove it."]) from None
        self._forget()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the ids."""
        pieces = sorted(self.fast.get_vocab().items(), key=lambda item: item[1])
        return Vocabulary.of((piece for piece, _ in pieces), self.kind)

    @cached_property
    def reading_masks(self) -> tokenizers.Tokenizer:
        """The tokenizer for texts with ``[MASK]`` in the place of words."""
        return reading_masks(self.fast, self.kind)

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._pieces = np.zeros(0, np.int32)  # the pieces of all known words, concatenated
        self._starts = np.zeros(1, np.int64)  # where each word's pieces start, and the end

    def __call__(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of all sentences, concatenated ``[n]``, and their number per sentence."""
        ids, words, texts = self.by_word(sentences)
        return ids, np.diff(words[texts])

    def by_word(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Token ids of all sentences, concatenated ``[m]``; start of each word in them, and the end ``[w + 1]``; first
        word of each sentence, and the end ``[n + 1]``.
        """
        if len(self._numbers) > _MOST_WORDS:
            self._forget()
        sizes = np.fromiter((sentence.count(" ") + 1 for sentence in sentences), np.int64, len(sentences))
        words = " ".join(sentences).split(" ")
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        self._learn()
        lengths = np.diff(self._starts)[numbers]
        ends = np.cumsum(lengths)
        shift = np.repeat(self._starts[numbers] - (ends - lengths), lengths)
        ids = self._pieces[shift + np.arange(len(shift))]
        return ids, np.concatenate([[0], ends]), np.concatenate([[0], np.cumsum(sizes)])

    def _learn(self) -> None:
        """Tokenises the words that are new since the last call."""
        known = len(self._starts) - 1
        new = list(self._numbers)[known:]
        if not new:
            return
        encoded = [encoding.ids for encoding in self.fast.encode_batch_fast(new, add_special_tokens=False)]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        pieces = np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum()))
        self._pieces = np.concatenate([self._pieces, pieces])
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(lengths)])


def piece_starts(encoder: Encoder, words: Sequence[str]) -> list[list[int]]:
    """Where each piece of each word starts in it, in bytes; 0 for the first, which holds the space before the word."""
    found = []
    for word, encoding in zip(words, encoder.fast.encode_batch(list(words), add_special_tokens=False), strict=True):
        letters = [len(letter.encode()) for letter in word]
        at = np.concatenate([[0], np.cumsum(letters, dtype=np.int64)])
        starts = [int(at[start]) + 1 for start, _ in encoding.offsets]  # after the space
        found.append([0, *starts[1:]] if starts else [])
    return found


def piece_bytes(encoder: Encoder, sentences: Sequence[str]) -> np.ndarray:
    """The bytes (UTF-8) behind each piece of sentences whose words are separated by single spaces ``[m]``.

    A piece owns the text from where it starts to where the next one starts; of pieces that cut a letter the last owns
    it. A word owns the space before it, and the first word of a sentence the break between sentences. The sum over a
    text is therefore the same for every tokenizer: its bytes, and one for each sentence's beginning. A word that a
    tokenizer drops belongs to the piece before it, or after it at the beginning.
    """
    words = " ".join(sentences).split(" ")
    known = {word: place for place, word in enumerate(dict.fromkeys(words))}
    starts = piece_starts(encoder, list(known))
    ends = np.cumsum([len(word.encode()) + 1 for word in words], dtype=np.int64)
    beginnings = np.concatenate([[0], ends])
    absolute = [beginnings[n] + start for n, word in enumerate(words) for start in starts[known[word]]]
    if not absolute:
        return np.zeros(0, dtype=np.int64)
    return np.diff(np.array([0, *absolute[1:], ends[-1]], dtype=np.int64))
