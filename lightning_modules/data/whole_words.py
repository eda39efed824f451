"""Held-out text in which the same words are hidden under every tokenizer, for losses that compare tokenizers.

Where single pieces are hidden at random, encodings hide different text, and show half of long words, the more the more
pieces they make of a word. Here text, hidden words and what is seen of them do not depend on the tokenizer:

* The text is cut into stretches of whole words by its bytes, two a position, so that nearly all fit into a sequence
  under any tokenizer; one that does not is divided between words.
* Words to hide begin after a space, are ASCII letters (digits may precede the last letter), and end at a space or a
  punctuation mark: there every kind of tokenizer ends a piece. Punctuation after a word stays visible.
* All hidden words of a row are hidden whole. Pieces of a word are predicted from left to right, each given those
  before it (Kauf and Ivanova 2023), in a row of its own, in which all other words stay hidden. The sum is the log
  probability of the word, given how many pieces it has.
* How many pieces a word has is seen from the number of [MASK]: it is charged at its entropy over the text's words,
  whatever the context says of it.
"""

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lightning_modules import cached
from lightning_modules.batch import Direction, Example, Target, Tokens
from lightning_modules.config import ConfigError, identity
from lightning_modules.data import pins
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.settings import MOST_STRETCHES, Data
from lightning_modules.data.text.encode import Encoder, piece_starts
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.draws import Draws, permutation
from lightning_modules.places import cache

_BYTES_A_POSITION = 2
_SEED = 0  # stretches and hidden words are the same for every run
_RECIPE = 1  # raise when the same text would give other stretches
_WORD = re.compile(rf"[A-Za-z0-9]*[A-Za-z](?=$|[{re.escape(string.punctuation)}])")


@dataclass(frozen=True)
class HiddenWords:
    """The hidden words of a text and their examples.

    Attributes:
        examples: Batches whose target ``mlm`` is pieces of hidden words, each piece once: the first of all words, then
            the others.
        words: Number of hidden words.
        bytes: Their bytes, each with the space before it.
        length_nats: The charge for the numbers of their pieces.
        unknown: Number of those whose pieces have an unknown one.
        begins: Whether a piece of the vocabulary begins a word ``[v]``.
    """

    examples: tuple[Example, ...]
    words: int
    bytes: int
    length_nats: float
    unknown: int
    begins: np.ndarray


@dataclass(frozen=True)
class _Row:
    """A sequence between its special pieces: ids, and start and size of each hidden word."""

    sample: int
    ids: list[int]
    hidden: list[tuple[int, int]]


def stretches(data: Data, length: int, count: int) -> list[str]:
    """Stretches of held-out text for sequences of ``length`` positions, the same for every tokenizer.

    Raises:
        DataMismatch: When the text differs from its pin.
    """
    size = _BYTES_A_POSITION * (length - 2)
    name = identity({"corpora": pins.fingerprints(data), "bytes": size, "recipe": _RECIPE})[:24]

    def chosen() -> list[str]:
        found = [text for text, _ in cut(data, size)]
        return [found[n] for n in permutation(_SEED, "whole words", 0, len(found))[:MOST_STRETCHES]]

    path = cache() / "stretches" / name / "stretches.json"
    return cached.kept_json(path, chosen)[:count]


def cut(data: Data, size: int) -> Iterator[tuple[str, int]]:
    """Held-out text in stretches of whole words of one document, of at most ``size`` bytes and more than half of them.

    Yields:
        The text and the number of its document.

    Raises:
        DataMismatch: At the end of a corpus whose text differs from its pin.
    """
    number = itertools.count()
    for name in data.corpora:
        meter = pins.Meter()
        for document in meter(corpus(name).documents("heldout")):
            place = next(number)
            words = " ".join(document).split(" ")
            ends = np.cumsum([len(word.encode()) + 1 for word in words])
            start = 0
            while start < len(words):
                before = ends[start - 1] if start else 0
                end = max(start + 1, int(np.searchsorted(ends, before + size, side="right")))
                if size / 2 < ends[end - 1] - before <= size:
                    yield " ".join(words[start:end]), place
                start = end
        pins.check(name, "heldout", meter.part)


def hidden_words(
    texts: Sequence[str],
    encoder: Encoder,
    *,
    length: int,
    rate: float,
    batch_size: int,
    direction: Direction = "both",
) -> HiddenWords:
    """The examples of some stretches of text.

    Args:
        texts: Words separated by single spaces.
        rate: Share of the words that can be hidden that are.
        direction: In which the text is visible.

    Raises:
        ConfigError: When no word can be hidden.
    """
    split = [text.split(" ") for text in texts]
    able = [[_able(word, length - 3) for word in words] for words in split]  # room for a piece that is the space alone
    chosen = _chosen(able, rate)
    pieces = _Pieces(encoder, split)
    lengths = Counter(pieces.inside(word, size) for word, size in _flat(split, able) if size)
    hidden = [(word, size) for word, size in _flat(split, chosen) if size]
    if not hidden:
        text = "the held-out text has no word to hide: evaluation.words needs words of ASCII letters. Set it to 0."
        raise ConfigError([text])
    rows = []
    for n, (words, sizes) in enumerate(zip(split, chosen, strict=True)):
        spelt = [(pieces.of(word), pieces.inside(word, size)) for word, size in zip(words, sizes, strict=True)]
        rows += _rows(n, spelt, length - 2)
    unknown = encoder.vocabulary.unk
    return HiddenWords(
        examples=tuple(_examples(rows, encoder.vocabulary, length, batch_size, direction)),
        words=len(hidden),
        bytes=sum(size + 1 for _, size in hidden),
        length_nats=len(hidden) * _entropy(lengths),
        unknown=sum(unknown in pieces.of(word)[: pieces.inside(word, size)] for word, size in hidden),
        begins=encoder.vocabulary.begins_word,
    )


def _chosen(able: Sequence[Sequence[int]], rate: float) -> list[list[int]]:
    """The letters of the words that are hidden, 0 elsewhere: at a higher rate the words of a lower one and others."""
    sample = np.arange(len(able))
    draws = Draws(_SEED, rows=sample, sample=sample, epoch=np.zeros_like(sample))
    noise = draws.uniform("whole words", max(map(len, able), default=0))
    return [[size * bool(noise[n, k] < rate) for k, size in enumerate(sizes)] for n, sizes in enumerate(able)]


def _able(word: str, most: int) -> int:
    """The letters at the beginning of a word that can be hidden; 0 if it cannot."""
    match = _WORD.match(word)
    return len(match[0]) if match and len(match[0]) <= most else 0


def _flat(split: Sequence[Sequence[str]], sizes: Sequence[Sequence[int]]) -> Iterator[tuple[str, int]]:
    return zip(itertools.chain.from_iterable(split), itertools.chain.from_iterable(sizes), strict=True)


def _entropy(counts: Counter[int]) -> float:
    """In nats."""
    shares = np.array([*counts.values()]) / counts.total()
    return float(-(shares * np.log(shares)).sum())


class _Pieces:
    """The pieces of the words of some texts, and how many of them lie within a word's first letters."""

    def __init__(self, encoder: Encoder, split: Sequence[Sequence[str]]) -> None:
        words = list(dict.fromkeys(itertools.chain.from_iterable(split)))
        ids, starts, _ = encoder.by_word([" ".join(words)] if words else [])
        self._ids = dict(zip(words, np.split(ids, starts[1:-1]), strict=True))
        self._starts = dict(zip(words, piece_starts(encoder, words), strict=True))

    def of(self, word: str) -> list[int]:
        """The ids of a word's pieces."""
        return self._ids[word].tolist()

    def inside(self, word: str, letters: int) -> int:
        """How many pieces begin within the first letters of a word."""
        return sum(start <= letters for start in self._starts[word]) if letters else 0


def _rows(sample: int, words: Sequence[tuple[list[int], int]], room: int) -> Iterator[_Row]:
    """One stretch as rows, nearly always one: words with the number of their first pieces that are hidden together."""
    ids: list[int] = []
    hidden: list[tuple[int, int]] = []
    for pieces, count in words:
        units = [pieces[:count]] * bool(count) + [[piece] for piece in pieces[count:]]
        for place, unit in enumerate(units):
            if len(ids) + len(unit) > room:
                yield _Row(sample, ids, hidden)
                ids, hidden = [], []
            if count and not place:
                hidden.append((len(ids), count))
            ids = ids + unit
    yield _Row(sample, ids, hidden)


def _examples(
    rows: Sequence[_Row], vocabulary: Vocabulary, length: int, batch_size: int, direction: Direction
) -> Iterator[Example]:
    """Each row with all words hidden and their first pieces predicted. Then, of longer words, row by row the others."""
    asked = [(row, 0, [start for start, _ in row.hidden]) for row in rows if row.hidden]
    asked += [(row, place, [start]) for row in rows for start, size in row.hidden for place in range(1, size)]
    for first in range(0, len(asked), batch_size):
        part = asked[first : first + batch_size]
        yield _example(part, vocabulary, length, direction)


def _example(
    part: Sequence[tuple[_Row, int, list[int]]], vocabulary: Vocabulary, length: int, direction: Direction
) -> Example:
    """One batch.

    Args:
        part: Row, number of pieces that are shown of the words that are predicted, and where these words start.
    """
    ids = np.full((len(part), length), vocabulary.pad, dtype=np.int64)
    special = np.ones_like(ids, dtype=bool)
    real = np.zeros_like(special)
    where, wanted = [], []
    for n, (row, shown, starts) in enumerate(part):
        end = len(row.ids) + 2
        seen = np.array(row.ids, dtype=np.int64)
        for start, size in row.hidden:
            seen[start + (shown if start in starts else 0) : start + size] = vocabulary.mask
        ids[n, :end] = [vocabulary.cls, *seen, vocabulary.sep]
        special[n, 1 : end - 1], real[n, :end] = False, True
        where += [n * length + 1 + start + shown for start in starts]
        wanted += [row.ids[start + shown] for start in starts]
    samples = np.array([row.sample for row, _, _ in part], dtype=np.int64)
    example = Example.of(Tokens.of(ids, special, real, samples, {"segment": np.zeros_like(ids)}))
    target = Target(where=torch.tensor(where), ids=torch.tensor(wanted))
    return replace(example, visible=example.visible.toward(direction), targets={"mlm": target})
