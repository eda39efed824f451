"""Text of several languages: rows of one language each, and rows of a sentence and its translation.

A row of running text is ``[CLS] text [SEP]`` in one language. A row of a pair is two such rows, one behind the other
(Conneau and Lample 2019, section 3.3 and Figure 1)::

    ids         [CLS]  the  cat  [SEP]  [CLS]  die  Katze  [SEP]
    language      0     0    0     0      1     1     1      1
    positions     0     1    2     3      0     1     2      3     those of the second sentence begin again

Neither sentence comes first: with the sentences swapped a transformer that reads both sides has the same states.

``language`` numbers the languages of a text in alphabetical order. The released code has one symbol, ``</s>``, where
[CLS] and [SEP] are here, and two of them between the sentences as well.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.config import ConfigError
from lightning_modules.data.corpora.parallel import SIDES
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.formats import running_text
from lightning_modules.data.formats.running_text import BreakMode, Sequences
from lightning_modules.data.store import TokenStore

RECIPE = 1  # raise when the same store and settings would give different sequences
SPECIALS = 4  # of a row with a pair
TABLE = "language"  # the name of the numbers of languages among the tables of a batch

LanguageRows = Literal["one_text", "apart", "pairs", "in_turn"]  # what rows are of a text of several languages


def languages(corpora: tuple[str, ...]) -> tuple[str, ...]:
    """The languages of some corpora, in alphabetical order.

    Raises:
        ConfigError: For a corpus whose language is not known.
    """
    unknown = [name for name in corpora if not corpus(name).languages]
    if unknown:
        text = f"the language of '{unknown[0]}' is not known. Name it, as in 'lines:<language>:<glob>'."
        raise ConfigError([text])
    return tuple(sorted({language for name in corpora for language in corpus(name).languages}))


@dataclass(frozen=True, eq=False)
class Divided:
    """The text of a store, one language after the other.

    Attributes:
        store: The sentences of the first language in their order, then those of the next. A sentence of a pair is a
            document of its own.
        sentences: The first sentence of each language, and the end ``[languages + 1]``.
        pairs: Where the tokens of each pair's sentences start and end ``[pairs 2 2]``.
        sides: The languages of both ``[pairs 2]``.
    """

    store: TokenStore
    names: tuple[str, ...]
    sentences: np.ndarray
    pairs: np.ndarray
    sides: np.ndarray

    def of(self, number: int) -> tuple[TokenStore, int]:
        """The text of one language as a store, and where it begins in that of all."""
        store, (first, end) = self.store, self.sentences[number : number + 2]
        start, stop = store.sentences[[first, end]]
        documents = store.documents[(store.documents >= first) & (store.documents <= end)] - first
        own = {"ids": store.ids[start:stop], "sentences": store.sentences[first : end + 1] - start}
        return replace(store, **own, documents=documents, corpora=(), mark_files={}), int(start)


def divided(store: TokenStore) -> Divided:
    """Divides a store by the languages of its corpora.

    Raises:
        ConfigError: For a corpus whose language is not known, and for pairs that are none.
    """
    names = languages(store.names)
    number, alone, firsts, sides = _by_sentence(store, names)
    order = np.argsort(number, kind="stable")
    ordered = store
    if len(firsts) or (np.diff(order) != 1).any():
        ordered = replace(_ordered(store, order, alone), made=_text_by_language)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    both = place[firsts[:, None] + np.arange(SIDES)]
    pairs = np.stack([ordered.sentences[both], ordered.sentences[both + 1]], -1)
    ends = np.searchsorted(number[order], np.arange(len(names) + 1))
    return Divided(ordered, names, ends, pairs, sides)


def _text_by_language(store: TokenStore) -> TokenStore:
    return divided(store).store


def _by_sentence(store: TokenStore, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Language of each sentence, and whether it begins a document; first sentence and languages of each pair."""
    edges = [0, *store.corpora, len(store.documents) - 1]
    if len(edges) != len(store.names) + 1:
        raise ConfigError([f"a corpus of {', '.join(store.names)} has no text in this part. Leave it out."])
    number = np.zeros(len(store.sentences) - 1, dtype=np.int64)
    begins = np.isin(np.arange(len(number)), store.documents[:-1])
    pairs, sides = [np.zeros(0, dtype=np.int64)], [np.zeros((0, SIDES), dtype=np.int64)]
    for name, first, end in zip(store.names, edges, edges[1:], strict=False):
        numbers = [names.index(language) for language in corpus(name).languages]
        start, stop = store.documents[[first, end]]
        if len(numbers) < SIDES:
            number[start:stop] = numbers[0]
            continue
        if (np.diff(store.documents[first : end + 1]) != SIDES).any():
            raise ConfigError([f"a document of '{name}' is not a sentence and its translation"])
        number[start:stop] = np.tile(numbers, end - first)
        begins[start:stop] = True
        pairs.append(np.arange(start, stop, SIDES))
        sides.append(np.tile(numbers, (end - first, 1)))
    return number, begins, np.concatenate(pairs), np.concatenate(sides)


def _ordered(store: TokenStore, order: np.ndarray, begins: np.ndarray) -> TokenStore:
    """The store with its sentences in another order, of which some begin a document."""
    sizes = np.diff(store.sentences)[order]
    sentences = np.append(0, np.cumsum(sizes))
    source = np.repeat(store.sentences[order] - sentences[:-1], sizes) + np.arange(sentences[-1])
    documents = np.append(np.flatnonzero(begins[order]), len(order))
    return replace(store, ids=store.ids[source], sentences=sentences, documents=documents, corpora=(), mark_files={})


def arrange(text: Divided, length: int, break_mode: BreakMode, short: float) -> np.ndarray:
    """Start of each sequence of one language after the other, and the end ``[sequences + 1]``.

    Args:
        break_mode: See `running_text.arrange`; here a sequence ends where a language does, too.
        short: Share of sequences that have a random shorter length.
    """
    parts = [np.zeros(1, dtype=np.int64)]
    for number in range(len(text.names)):
        store, start = text.of(number)
        parts.append(running_text.arrange(store, length, break_mode, short)[1:] + start)
    return np.concatenate(parts)


class Group(NamedTuple):
    """Sequences of one language, or pairs of two, which a step takes together.

    Attributes:
        name: The language, or both with a dash between them.
        first: Its first sequence.
        end: The sequence behind its last one.
    """

    name: str
    first: int
    end: int


@dataclass(frozen=True, eq=False)
class Monolingual(Sequences):
    """Sequences of running text, each in one language.

    Attributes:
        text_starts: Where the text of each language begins, and the end ``[languages + 1]``.
    """

    names: tuple[str, ...] = ()
    text_starts: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    @cached_property
    def firsts(self) -> np.ndarray:
        """The first sequence of each language, and the end ``[languages + 1]``."""
        return np.searchsorted(self.bounds, self.text_starts)

    def tokens_by_language(self) -> np.ndarray:
        """Positions of each sequence that are no padding, in the column of its language ``[sequences languages]``."""
        languages = np.repeat(np.arange(len(self.names)), np.diff(self.firsts))
        return self.sizes[:, None] * (languages[:, None] == np.arange(len(self.names)))

    @property
    def turns(self) -> tuple[tuple[Group, ...], ...]:
        """The groups of which a step takes one."""
        ends = self.firsts.tolist()
        return (tuple(Group(*group) for group in zip(self.names, ends, ends[1:], strict=False)),)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """See `Sequences.batch`."""
        tokens = super().batch(indices, length)
        language = np.searchsorted(self.firsts, indices, side="right") - 1
        numbers = torch.from_numpy(language.astype(np.int64))[:, None].expand(tokens.ids.shape)
        return replace(tokens, tables=tokens.tables | {TABLE: numbers.contiguous()})


@dataclass(frozen=True, eq=False)
class Pairs(Sequences):
    """Rows of a sentence and its translation. ``bounds`` are those of `fitting`, and ``sides`` their languages.

    Attributes:
        sides: The languages of both sentences of each row ``[pairs 2]``.
        resets: Whether the positions of the second sentence begin again.
    """

    names: tuple[str, ...] = ()
    sides: np.ndarray = field(default_factory=lambda: np.zeros((0, SIDES), dtype=np.int64))
    resets: bool = True

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def starts(self) -> np.ndarray:
        """See `Sequences.starts`."""
        return self.bounds[:, 0, 0]

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Sequences.stretches`: those of both sentences."""
        return [(self.bounds[:, side, 0], self.bounds[:, side, 1]) for side in range(SIDES)]

    @property
    def documents(self) -> np.ndarray:
        """See `Sequences.documents`."""
        return np.full(len(self), SIDES)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions of each row that are no padding ``[pairs]``."""
        return np.diff(self.bounds)[:, :, 0].sum(1) + SPECIALS

    def tokens_by_language(self) -> np.ndarray:
        """Positions of each row in the columns of both languages ``[pairs languages]``."""
        sizes = np.diff(self.bounds)[:, :, 0] + SPECIALS // SIDES
        return (sizes[:, :, None] * (self.sides[:, :, None] == np.arange(len(self.names)))).sum(1)

    @property
    def turns(self) -> tuple[tuple[Group, ...], ...]:
        """The groups of which a step takes one; rows of a group follow each other."""
        if not len(self):
            return ((),)
        edges = np.flatnonzero(np.any(np.diff(self.sides, axis=0), axis=1)) + 1
        ends = [0, *edges.tolist(), len(self)]
        named = ("-".join(self.names[side] for side in self.sides[first]) for first in ends[:-1])
        return (tuple(Group(*group) for group in zip(named, ends, ends[1:], strict=False)),)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The pairs with these numbers, as rows ``[b t]``; of so many positions, by default of all."""
        indices = np.asarray(indices, dtype=np.int64)
        (start, end), (other, last) = self.bounds[indices].transpose(1, 2, 0)[:, :, :, None]
        column, vocabulary = np.arange(length or self.length), self.store.vocabulary
        middle = end - start + SPECIALS // SIDES  # where the second sentence's [CLS] is
        size = middle + last - other + SPECIALS // SIDES
        second, real = column >= middle, column < size
        source = np.where(second, other + column - middle - 1, start + column - 1)
        ids = self.store.ids[np.clip(source, 0, len(self.store.ids) - 1)].astype(np.int64)
        begins, ends = (column == 0) | (column == middle), (column == middle - 1) | (column == size - 1)
        ids[begins], ids[ends], ids[~real] = vocabulary.cls, vocabulary.sep, vocabulary.pad
        sides = self.sides[indices]
        tables = {"segment": np.zeros_like(ids), TABLE: np.where(second, sides[:, 1:], sides[:, :1])}
        positions = np.where(second & self.resets, column - middle, np.broadcast_to(column, ids.shape))
        places = torch.from_numpy(positions) if self.resets else None
        return Tokens.of(ids, begins | ends | ~real, real, indices, tables, positions=places)

    def both_ways(self) -> "Pairs":
        """The pairs, then the same ones with their sentences in the other order."""
        bounds, sides = (np.concatenate([one, one[:, ::-1]]) for one in (self.bounds, self.sides))
        return replace(self, bounds=bounds, sides=sides)

    def mismatched(self) -> "Pairs":
        """The same first sentences, each with the second one of another pair of the same languages, about as long.

        Those of one direction are in a circle by the length of their second sentence. A row may be too long then.
        """
        bounds = self.bounds.copy()
        for sides in np.unique(self.sides, axis=0):
            own = np.flatnonzero((self.sides == sides).all(1))
            order = own[np.argsort(np.diff(self.bounds[own, 1])[:, 0], kind="stable")]
            bounds[order, 1] = self.bounds[np.roll(order, 1), 1]
        return replace(self, bounds=bounds)

    def taken(self, chosen: np.ndarray) -> "Pairs":
        """Some of the pairs."""
        return replace(self, bounds=self.bounds[chosen], sides=self.sides[chosen])


def hidden_first(tokens: Tokens, cls: int) -> Tokens:
    """Rows of pairs of whose second sentence no word is hidden."""
    return replace(tokens, special=tokens.special | ((tokens.ids == cls).cumsum(1) > 1))


def fitting(text: Divided, length: int) -> np.ndarray:
    """Which pairs of a text have room in a row, both with at least a token ``[pairs]``: others are left out."""
    sizes = np.diff(text.pairs)[:, :, 0]
    return (sizes > 0).all(1) & (sizes.sum(1) + SPECIALS <= length)


@dataclass(frozen=True, eq=False)
class InTurn:
    """Running text and pairs, of which steps take turns. Pairs are numbered behind the sequences of running text."""

    texts: Monolingual
    pairs: Pairs
    goes_on: bool = False

    def __len__(self) -> int:
        return len(self.texts) + len(self.pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """The languages."""
        return self.texts.names

    @property
    def store(self) -> TokenStore:
        """The tokens."""
        return self.texts.store

    @property
    def length(self) -> int:
        """Positions of a sequence."""
        return self.texts.length

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions that are no padding of each sequence."""
        return np.concatenate([self.texts.sizes, self.pairs.sizes])

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start and end of the stretches of text that sequences show: of running text, then of pairs."""
        return [*self.texts.stretches, *self.pairs.stretches]

    @property
    def documents(self) -> np.ndarray:
        """How many documents each sequence shows parts of ``[sequences]``."""
        return np.concatenate([self.texts.documents, self.pairs.documents])

    def tokens_by_language(self) -> np.ndarray:
        """Positions of each sequence in the columns of languages ``[sequences languages]``."""
        return np.concatenate([self.texts.tokens_by_language(), self.pairs.tokens_by_language()])

    @property
    def turns(self) -> tuple[tuple[Group, ...], ...]:
        """The groups of each turn, of which a step takes one."""
        (pairs,) = self.pairs.turns
        behind = tuple(Group(name, first + len(self.texts), end + len(self.texts)) for name, first, end in pairs)
        return (*self.texts.turns, behind)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The sequences with these numbers, all of one turn, as rows ``[b t]``."""
        indices = np.asarray(indices, dtype=np.int64)
        if (indices < len(self.texts)).all():
            return self.texts.batch(indices, length)
        return self.pairs.batch(indices - len(self.texts), length)


SeveralLanguages = Monolingual | Pairs | InTurn


def numbered(tokens: Tokens, numbers: tuple[int, ...] | None) -> Tokens:
    """The rows with the numbers that a model has for their languages; without them for a model that has none."""
    tables = dict(tokens.tables)
    language = tables.pop(TABLE, None)
    if language is not None and numbers is not None:
        tables[TABLE] = torch.tensor(numbers)[language]
    return replace(tokens, tables=tables)
