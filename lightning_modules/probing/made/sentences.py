"""The sentences that made probes start from, and how examples are drawn so that shallow features say nothing.

A sentence is kept if it begins with a capital and ends with a full stop, exclamation or question mark, without
quotation marks, brackets or a colon inside.
"""

import re
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from lightning_modules.draws import permutation
from lightning_modules.tasks.shapes.texts import Row

LENGTHS = range(5, 41)  # words of a sentence
_SENTENCE = re.compile(r"[A-Z][^\"“”()\[\]:]*[.!?]")
_WORD = re.compile(r"[a-z]+")
T = TypeVar("T")


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
    """Whether a word is made of small letters alone, so that it may stand anywhere but in front."""
    return _WORD.fullmatch(word) is not None


def shuffled(items: Sequence[T], purpose: str) -> list[T]:
    """The items in an order that is a function of ``purpose`` and their number."""
    return [items[place] for place in permutation(0, purpose, 0, len(items)).tolist()]


def chance(purpose: str, number: int, size: int) -> int:
    """A number below ``size`` that is a function of the arguments."""
    return int(permutation(0, purpose, number, size)[0])


def matched(
    classes: Sequence[Sequence[T]], key: Callable[[T], Hashable], count: int, purpose: str
) -> list[tuple[T, int]]:
    """Examples of each class with their class numbers, as many of each class for each value of ``key``.

    Whatever ``key`` holds, such as the length, then says nothing about the class.

    Args:
        classes: The candidates of each class.
        key: What must be distributed alike in all classes.
        count: The most examples in all.
        purpose: Names the draw.
    """
    groups: dict[Hashable, list[list[T]]] = {}
    for number, candidates in enumerate(classes):
        for item in shuffled(candidates, f"{purpose} {number}"):
            groups.setdefault(key(item), [[] for _ in classes])[number].append(item)
    rounds = [one for group in groups.values() for one in zip(*group, strict=False)]
    chosen = shuffled(rounds, f"{purpose} rounds")[: count // len(classes)]
    return [(item, number) for one in chosen for number, item in enumerate(one)]


def rows(examples: Iterable[tuple[Sequence[str], int]]) -> list[Row]:
    """Words and class as examples of a task."""
    return [Row(" ".join(words), None, str(label)) for words, label in examples]
