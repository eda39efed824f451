"""The sentences that made probes start from, and how examples are drawn so that shallow features say nothing.

A sentence is kept if it begins with a capital and ends with a full stop, exclamation or question mark, without
quotation marks, brackets or a colon inside.
"""

import re
from collections.abc import Container, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from lightning_modules.draws import permutation

LENGTHS = range(5, 41)  # words of a sentence
_SENTENCE = re.compile(r"[A-Z][^\"“”()\[\]:]*[.!?]")
_WORD = re.compile(r"[a-z]+")
T = TypeVar("T")


class Example(NamedTuple):
    """An example of a made probe.

    Attributes:
        place: The word that is read; -1 where all are.
    """

    words: Sequence[str]
    label: int
    place: int = -1


class Sentence(NamedTuple):
    """A sentence of the text.

    Attributes:
        words: Its words with their punctuation.
        number: Its number among the distinct sentences of its part.
    """

    words: tuple[str, ...]
    number: int


def kept_sentences(documents: Iterable[Sequence[str]], known: Container[str] = ()) -> list[Sentence]:
    """The distinct sentences of some documents that probes use, in order, without those ``known``."""
    distinct = {text: None for document in documents for text in document if text.count(" ") + 1 in LENGTHS}
    fitting = (tuple(text.split()) for text in distinct if text not in known and _SENTENCE.fullmatch(text))
    return [Sentence(words, number) for number, words in enumerate(fitting)]


def short(sentences: Iterable[Sentence], most: int) -> list[Sentence]:
    """The sentences of at most so many words: where most sentences will do, short ones are quicker to encode."""
    return [sentence for sentence in sentences if len(sentence.words) <= most]


def is_plain(word: str) -> bool:
    """Whether a word is made of small letters alone, so that it may be anywhere but in front."""
    return _WORD.fullmatch(word) is not None


def shuffled(items: Sequence[T], purpose: str) -> list[T]:
    """The items in an order that is a function of ``purpose`` and their number."""
    return [items[place] for place in permutation(0, purpose, 0, len(items)).tolist()]


def chance(purpose: str, number: int, size: int) -> int:
    """A number below ``size`` that is a function of the arguments."""
    return int(permutation(0, purpose, number, size)[0])


def matched(candidates: Iterable[tuple[Example, Hashable]], count: int, purpose: str) -> list[Example]:
    """As many examples of either class for each key.

    Whatever the key holds, such as the length, then says nothing about the class.

    Args:
        count: The most examples in all.
        purpose: Names the draw.
    """
    groups: dict[Hashable, tuple[list[Example], list[Example]]] = {}
    for example, key in candidates:
        groups.setdefault(key, ([], []))[example.label].append(example)
    pairs = [pair for group in groups.values() for pair in zip(*group, strict=False)]
    return [example for pair in shuffled(pairs, f"{purpose} pairs")[: count // 2] for example in pair]
