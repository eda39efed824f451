"""Running text: ``[CLS] text [SEP]``, with an extra ``[SEP]`` where a new document begins inside, or blocks of text.

Either whole sentences, packed until the next does not fit, across documents or not (FULL-SENTENCES and DOC-SENTENCES of
Liu et al. 2019, section 4.2), or stretches of a fixed length. A block is such a stretch without ``[CLS]``, every
position of which is text. Documents follow each other without a mark (GPT: Radford et al. 2018), or each ends with a
``[SEP]`` that belongs to the text and is predicted as any other token (``<|endoftext|>`` of GPT-2: Radford et al.
2019).

A text of several languages has rows of one language each, and rows of a sentence and its translation.

A row of running text is ``[CLS] text [SEP]`` in one language. A row of a pair is two such rows, one behind the other
(Conneau and Lample 2019, section 3.3 and Figure 1)::

    ids         [CLS]  the  cat  [SEP]  [CLS]  die  Katze  [SEP]
    language      0     0    0     0      1     1     1      1
    positions     0     1    2     3      0     1     2      3     those of the second sentence begin again

Neither sentence comes first: with the sentences swapped a transformer that reads both sides has the same states.

``language`` numbers the languages of a text in alphabetical order. The released code has one symbol, ``</s>``, where
[CLS] and [SEP] are here, and two of them between the sentences as well.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import model_validator

from lightning_modules.batch import Tokens
from lightning_modules.config import ConfigError, knob
from lightning_modules.data.corpora.parallel import SIDES
from lightning_modules.data.corpora.registry import corpus
from lightning_modules.data.formats.format import InputFormat, Sequences
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import Draws

_SEED = 0  # as for pairs, all runs see the same sequences
_RECIPE = 1  # raise when the same store and settings would give different sequences
_RECIPE_OF_BLOCKS = 1
_RECIPE_OF_LANGUAGES = 1
_SPECIALS = 4  # of a row with a pair
TABLE = "language"  # the name of the numbers of languages among the tables of a batch

BreakMode = Literal["sentences", "documents", "none"]  # where sequences end


class TextFormat(InputFormat):
    """One segment of running text.

    Whole sentences are packed until the next does not fit, across documents (``sentences``) or not (``documents``). A
    sentence longer than a sequence is split; nothing is dropped. SpanBERT's single sequence is that of ``documents``,
    but its released code drops sentences that are longer than a sequence. With ``break_mode="none"`` (fairseq's name;
    used by Wettig et al. 2023) text is cut at fixed lengths instead: this needs no padding, where short sequences of
    whole sentences are a fifth padding. Only then can ``frame`` leave out ``[CLS]`` and ``[SEP]``, as GPT and GPT-2 do.
    """

    _same: ClassVar[Mapping[str, Any]] = {"share": 1.0, "cls": "first"}

    kind: Literal["full_sentences"] = knob("full_sentences", "Layout.", neutral="full_sentences")
    break_mode: BreakMode = knob(
        "sentences",
        "Sequences end at sentence boundaries (sentences), also wherever a document ends (documents), or "
        "at a fixed length (none).",
        neutral="sentences",
    )
    frame: Literal["cls_sep", "document_ends", "none"] = knob(
        "cls_sep",
        "Special tokens of a sequence. With cls_sep [CLS] is before it, [SEP] after it, and [SEP] between documents. "
        "With document_ends a [SEP] is after each document, which a language model predicts (GPT-2). GPT has none.",
        neutral="cls_sep",
    )
    languages: Literal["one_text", "apart", "pairs", "in_turn"] = knob(
        "one_text",
        "What rows are in a text of several languages. With one_text nothing is known of languages. With apart "
        "each row, and each step, has one language, parallel text included. With pairs a row is a sentence and its "
        "translation (XLM's TLM). With in_turn every second step has pairs.",
        neutral="one_text",
    )
    language_exponent: float = knob(
        1.0,
        "Several languages: a step has one with a probability that is its share of the tokens to this power, divided "
        "by the sum over languages. With 1 languages come as often as in the text, with 0 all as often (XLM: 0.5).",
        neutral=1.0,
        ge=0,
        le=1,
    )
    reset_positions: bool = knob(
        True,
        "Rows of a sentence and its translation: the positions of the second begin again (XLM).",
        neutral=True,
    )
    cls: Literal["first", "last"] = knob(
        "first",
        "Place of [CLS] in sequences that have one: last is behind the last [SEP], as a segment of its own (XLNet). "
        "Held-out running text keeps it first, so that the same tokens are predicted.",
        neutral="first",
    )
    short_sequences: float = knob(
        0.0,
        "Share of sequences with a random shorter length, as short_fraction is for pairs. Held-out text "
        "keeps its full length.",
        neutral=0.0,
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _only_blocks_lack_cls(self) -> Self:
        if self.frame != "cls_sep" and self.break_mode != "none":
            raise ValueError(
                f"frame {self.frame} is of running text that is cut at a fixed length: set break_mode to none, or "
                "frame to cls_sep"
            )
        needed = {"frame": "cls_sep", "cls": "first", "share": 1.0, "first_share": 0.0}
        wrong = [f"set {name} to {value}" for name, value in needed.items() if getattr(self, name) != value]
        if wrong and self.languages != "one_text":
            raise ValueError(
                f"languages {self.languages} is of running text, all of it, with [CLS] first: {' and '.join(wrong)}, "
                "or languages to one_text"
            )
        return self

    def _idle(self) -> dict[str, Any]:
        idle: dict[str, Any] = {"cls": "first"} if self.frame != "cls_sep" else {}
        idle |= {"language_exponent": 1.0} if self.languages == "one_text" else {}
        return idle if self.languages in ("pairs", "in_turn") else idle | {"reset_positions": True}

    def unpredicted(self, positions: int) -> int:
        """See `InputFormat.unpredicted`."""
        return 2 if self.frame == "cls_sep" else 1

    def heldout(self, *, blocks: bool = False) -> Self:
        """See `InputFormat.heldout`."""
        shown: dict[str, Any] = {"break_mode": "none" if blocks or self.break_mode != "sentences" else "sentences"}
        shown |= {"short_sequences": 0.0, "share": 1.0, "cls": "first"}
        shown["languages"] = "one_text" if self.languages == "one_text" else "apart"
        return self._of_one_length(self.sequence_length).model_copy(update=shown)

    def arrange(self, store: TokenStore) -> Sequences:
        """See `InputFormat.arrange`."""
        length = self.sequence_length
        if self.languages != "one_text":
            return _arranged_by_language(self, store)
        if self.frame != "cls_sep":
            ends = self.frame == "document_ends"
            edges = self._cached(
                store, "blocks", _RECIPE_OF_BLOCKS, lambda: cut_blocks(store, length, ends, self.short_sequences)
            )
            return Blocks.of(store, edges, length, ends)
        bounds = self._cached(
            store, "sequences", _RECIPE, lambda: arrange(store, length, self.break_mode, self.short_sequences)
        )
        return RunningText(store, bounds, length)


def arrange(store: TokenStore, length: int, break_mode: BreakMode, short: float = 0.0) -> np.ndarray:
    """Start of each sequence of a store, and the end ``[sequences + 1]``.

    Args:
        length: Positions of a sequence, of which ``[CLS]`` and the last ``[SEP]`` take two.
        break_mode: Whether sequences end at sentence boundaries, also where a document ends, or at the fixed length.
        short: Share of sequences that have a random shorter length, as BERT's short pairs: uniform from 2 tokens up,
            and at least one sentence where sentences are kept whole.
    """
    if break_mode == "none":
        return _fixed(store, length - 2, short)
    return _packed(store, length - 2, short, within_documents=break_mode == "documents")


def cut_blocks(store: TokenStore, length: int, ends: bool, short: float = 0.0) -> np.ndarray:
    """Start of each block, and the end ``[blocks + 1]``, in the text with its ends of documents.

    A last token that would be alone is left out: there is nothing from which it could be predicted.

    Args:
        ends: Whether a ``[SEP]`` follows each document.
        short: Share of blocks that have a random shorter length.
    """
    total = len(store.ids) + len(_ends(store, ends))
    edges = np.append(_starts(total, length, short), total)
    return edges[:-1] if len(edges) > 2 and edges[-1] - edges[-2] == 1 else edges


def chain(after: np.ndarray, first: int = 0) -> np.ndarray:
    """The items from ``first`` on, of which item ``i`` is followed by item ``after[i]``."""
    jumps, items = after.tolist(), []
    while first < len(jumps):
        items.append(first)
        first = jumps[first]
    return np.array(items, dtype=np.int64)


def _rooms(room: int, short: float, count: int) -> np.ndarray:
    """The tokens that each of some sequences has room for ``[count]``."""
    number = np.arange(count)
    noise = Draws(_SEED, number, number, np.zeros_like(number), stream="short sequences")
    shorter = 2 + noise.integers("room", 1, room - 1)[:, 0]
    return np.where(noise.uniform("short", 1)[:, 0] < short, shorter, room)


def _inner_starts(store: TokenStore) -> np.ndarray:
    """Starts of documents except the first; inside a sequence a ``[SEP]`` precedes them."""
    return np.setdiff1d(store.document_starts, [0, len(store.ids)])


def _ends(store: TokenStore, ends: bool) -> np.ndarray:
    """Where documents end in the text with its ends of documents; nowhere if it has none."""
    after = np.setdiff1d(store.document_starts, [0]) if ends else np.zeros(0, dtype=np.int64)
    return after + np.arange(len(after))


def _fixed(store: TokenStore, room: int, short: float) -> np.ndarray:
    """Bounds of stretches of ``room`` tokens, where a document's start counts as one extra token (its separator).

    A separator at the edge of a stretch is omitted, which makes that sequence one token shorter.
    """
    starts = _inner_starts(store)
    separators = starts + np.arange(len(starts))  # their positions in the text with separators
    edges = _starts(len(store.ids) + len(starts), room, short)
    bounds = edges - np.searchsorted(separators, edges, side="left")
    return np.unique(np.append(bounds, len(store.ids)))


def _starts(total: int, room: int, short: float) -> np.ndarray:
    """Starts of stretches of ``room`` tokens of so many in total, a share of them shorter."""
    if not short:
        return np.arange(0, total, room)
    edges = np.cumsum(np.append(0, _rooms(room, short, -(-total // 2))))  # the shortest has two tokens
    return edges[edges < total]


def _packed(store: TokenStore, room: int, short: float, *, within_documents: bool) -> np.ndarray:
    """Bounds of greedily packed whole sentences, long ones cut into pieces of ``room`` tokens."""
    sentences = np.unique(store.sentences)  # without empty ones
    pieces = -(-np.diff(sentences) // room)
    inside = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(sentences[:-1], pieces) + inside * room  # of each unit, a sentence or a piece of one
    opens = np.isin(starts, _inner_starts(store)).astype(np.int64)  # units after a separator
    cost = np.concatenate([[0], np.cumsum(np.diff(np.append(starts, len(store.ids))) + opens)])
    # A sequence that starts with unit i ends before the first unit that does not fit; the separator of its own first
    # unit is omitted.
    unit = np.arange(len(starts))
    rooms = _rooms(room, short, len(starts)) if short else room
    after = np.maximum(np.searchsorted(cost, cost[:-1] + opens + rooms, side="right") - 1, unit + 1)
    if within_documents:
        following = np.append(np.flatnonzero(opens), len(starts))  # first units of documents after the first
        after = np.minimum(after, following[np.searchsorted(following, unit, side="right")])
    return np.append(starts[chain(after)], len(store.ids))


@dataclass(frozen=True, eq=False)
class RunningText(Sequences):
    """Rows ``[CLS] text [SEP]`` of consecutive stretches of a text.

    Attributes:
        bounds: Start of each sequence's text, and the end ``[sequences + 1]``.
    """

    specials: ClassVar[int] = 2  # and a separator between two documents

    store: TokenStore
    bounds: np.ndarray
    length: int

    @cached_property
    def _document_starts(self) -> np.ndarray:
        return _inner_starts(self.store)

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Sequences.stretches`."""
        return [(self.bounds[:-1], self.bounds[1:])]

    @property
    def documents(self) -> np.ndarray:
        """How many documents each sequence shows parts of ``[sequences]``."""
        start, end = self.stretches[0]
        starts = self._document_starts
        return 1 + np.searchsorted(starts, end, "left") - np.searchsorted(starts, start, "right")

    @cached_property
    def sizes(self) -> np.ndarray:
        """See `Sequences.sizes`."""
        return np.diff(self.bounds) + self.documents + 1  # separators are between documents

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """See `Sequences.batch`."""
        indices = np.asarray(indices, dtype=np.int64)
        start, end = (edge[indices] for edge in self.stretches[0])
        length = length or self.length
        column = np.arange(length)
        first = np.searchsorted(self._document_starts, start, side="right")
        inner = np.searchsorted(self._document_starts, end, side="left") - first  # documents that begin inside a row
        separator = np.zeros((len(indices), length), dtype=bool)
        source = start[:, None] + (column - 1)
        if inner.any():
            rows = np.repeat(np.arange(len(indices)), inner)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(inner) - inner, inner)
            separator[rows, self._document_starts[first[rows] + nth] - start[rows] + nth + 1] = True
            source -= np.cumsum(separator, axis=1)
        last = (end - start + inner + 1)[:, None]
        separator |= column == last
        real = column <= last
        return self.store.rows(indices, source, separator, real, np.zeros(source.shape, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Blocks(RunningText):
    """The blocks of a store: stretches ``edges[i] .. edges[i + 1]`` of its text with its ends of documents.

    Attributes:
        edges: Start of each block, and the end ``[blocks + 1]``.
        ends: Where documents end, in the same text.
    """

    edges: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, store: TokenStore, edges: np.ndarray, length: int, ends: bool, **more: Any) -> Self:
        """The blocks between edges in the text with its ends of documents, if it has them."""
        marks = _ends(store, ends)
        return cls(store, edges - np.searchsorted(marks, edges, side="left"), length, edges, marks, **more)

    @cached_property
    def sizes(self) -> np.ndarray:
        """See `Sequences.sizes`."""
        return np.diff(self.edges)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """See `Sequences.batch`."""
        indices = np.asarray(indices, dtype=np.int64)
        return self.between(indices, self.edges[indices], self.edges[indices + 1], length or self.length)

    def at(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ids at places of the text with its ends of documents, whether they are ends, and their places without."""
        before = np.searchsorted(self.ends, place, side="left")
        end = np.append(self.ends, -1)[before] == place
        source = place - before
        ids = self.store.ids[np.minimum(source, len(self.store.ids) - 1)].astype(np.int64)
        ids[end] = self.store.vocabulary.sep
        return ids, end, source

    def between(self, indices: np.ndarray, start: np.ndarray, end: np.ndarray, length: int) -> Tokens:
        """Stretches of the text with its ends of documents, as rows ``[b t]`` of sequences with these numbers."""
        place = start[:, None] + np.arange(length)
        real = place < end[:, None]
        ids, end, source = self.at(place)
        ids[~real] = self.store.vocabulary.pad
        return Tokens.of(
            ids,
            end | ~real,
            real,
            indices,
            {"segment": np.zeros(ids.shape, dtype=np.int64)},
            marks=self.store.marks_at(source, real & ~end),
            ends=torch.from_numpy(end & real) if len(self.ends) else None,
        )


def languages_of(corpora: tuple[str, ...]) -> tuple[str, ...]:
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
class TextByLanguage:
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


def by_language(store: TokenStore) -> TextByLanguage:
    """Divides a store by the languages of its corpora.

    Raises:
        ConfigError: For a corpus whose language is not known, and for pairs that are none.
    """
    names = languages_of(store.names)
    number, alone, firsts, sides = _by_sentence(store, names)
    order = np.argsort(number, kind="stable")
    ordered = store
    if len(firsts) or (np.diff(order) != 1).any():
        ordered = replace(_ordered(store, order, alone), made=_store_by_language)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    both = place[firsts[:, None] + np.arange(SIDES)]
    pairs = np.stack([ordered.sentences[both], ordered.sentences[both + 1]], -1)
    ends = np.searchsorted(number[order], np.arange(len(names) + 1))
    return TextByLanguage(ordered, names, ends, pairs, sides)


def _store_by_language(store: TokenStore) -> TokenStore:
    return by_language(store).store


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
class Multilingual(RunningText):
    """Rows of running text, each in one language, and behind them rows of a sentence and its translation.

    Attributes:
        bounds: Start and end of both stretches of each row; the second is empty in one language ``[rows 2 2]``.
        sides: The languages of both; -1 for a second one that there is not ``[rows 2]``.
        resets: Whether the positions of a second sentence begin again.
    """

    names: tuple[str, ...]
    sides: np.ndarray
    resets: bool

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Sequences.stretches`."""
        return [(self.bounds[:, side, 0], self.bounds[:, side, 1]) for side in range(SIDES)]

    @cached_property
    def is_pair(self) -> np.ndarray:
        """Which rows have two sentences ``[rows]``."""
        return self.sides[:, 1] >= 0

    @cached_property
    def sizes(self) -> np.ndarray:
        """See `Sequences.sizes`."""
        return np.diff(self.bounds)[:, :, 0].sum(1) + np.where(self.is_pair, _SPECIALS, self.documents + 1)

    def tokens_by_language(self) -> np.ndarray:
        """Positions of each row that are no padding, in the columns of its languages ``[rows languages]``."""
        sizes = np.diff(self.bounds)[:, :, 0] + _SPECIALS // SIDES
        sizes[:, 0] = np.where(self.is_pair, sizes[:, 0], self.sizes)
        return (sizes[:, :, None] * (self.sides[:, :, None] == np.arange(len(self.names)))).sum(1)

    @property
    def turns(self) -> tuple[tuple[Group, ...], ...]:
        """The groups of each turn, of which a step takes one: those of running text, those of pairs."""
        edges = np.flatnonzero(np.any(np.diff(self.sides, axis=0), axis=1)) + 1
        ends = [0, *edges.tolist(), len(self)]
        turns: dict[bool, list[Group]] = {}
        for first, end in itertools.pairwise(ends):
            name = "-".join(self.names[side] for side in self.sides[first] if side >= 0)
            turns.setdefault(bool(self.is_pair[first]), []).append(Group(name, first, end))
        return tuple(map(tuple, turns.values()))

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """See `Sequences.batch`; the rows are of one turn."""
        indices = np.asarray(indices, dtype=np.int64)
        if self.is_pair[indices].all():
            return self._pairs(indices, length or self.length)
        tokens = super().batch(indices, length)
        numbers = torch.from_numpy(self.sides[indices, :1]).expand(tokens.ids.shape)
        return replace(tokens, tables=tokens.tables | {TABLE: numbers.contiguous()})

    def _pairs(self, indices: np.ndarray, length: int) -> Tokens:
        (start, end), (other, last) = self.bounds[indices].transpose(1, 2, 0)[:, :, :, None]
        column, vocabulary = np.arange(length), self.store.vocabulary
        middle = end - start + _SPECIALS // SIDES  # where the second sentence's [CLS] is
        size = middle + last - other + _SPECIALS // SIDES
        second, real = column >= middle, column < size
        source = np.where(second, other + column - middle - 1, start + column - 1)
        ids = self.store.ids[np.clip(source, 0, len(self.store.ids) - 1)].astype(np.int64)
        begins, ends = (column == 0) | (column == middle), (column == middle - 1) | (column == size - 1)
        ids[begins], ids[ends], ids[~real] = vocabulary.cls, vocabulary.sep, vocabulary.pad
        sides = self.sides[indices]
        tables = {"segment": np.zeros_like(ids), TABLE: np.where(second, sides[:, 1:], sides[:, :1])}
        positions = np.where(second & self.resets, column - middle, np.broadcast_to(column, ids.shape))
        places = torch.from_numpy(positions) if self.resets else None
        number = indices - np.searchsorted(self.is_pair, True)  # among pairs
        return Tokens.of(ids, begins | ends | ~real, real, number, tables, positions=places)

    def both_ways(self) -> "Multilingual":
        """Pairs, then the same ones with their sentences in the other order."""
        bounds, sides = (np.concatenate([one, one[:, ::-1]]) for one in (self.bounds, self.sides))
        return replace(self, bounds=bounds, sides=sides)

    def mismatched(self) -> "Multilingual":
        """The same first sentences, each with the second one of another pair of the same languages, about as long.

        Those of one direction are in a circle by the length of their second sentence. A row may be too long then.
        """
        bounds = self.bounds.copy()
        for sides in np.unique(self.sides, axis=0):
            own = np.flatnonzero((self.sides == sides).all(1))
            order = own[np.argsort(np.diff(self.bounds[own, 1])[:, 0], kind="stable")]
            bounds[order, 1] = self.bounds[np.roll(order, 1), 1]
        return replace(self, bounds=bounds)

    def taken(self, chosen: np.ndarray) -> "Multilingual":
        """Some of the rows."""
        return replace(self, bounds=self.bounds[chosen], sides=self.sides[chosen])


def _arranged_by_language(form: TextFormat, store: TokenStore) -> Multilingual:
    """The rows of a text of several languages. Pairs that do not fit into a row are left out.

    Raises:
        ConfigError: When pairs are to be shown and none fits.
    """
    text, length = by_language(store), form.sequence_length
    sizes = np.diff(text.pairs)[:, :, 0]
    fits = (sizes > 0).all(1) & (sizes.sum(1) + _SPECIALS <= length)
    if form.languages != "apart" and not fits.any():
        raise ConfigError(
            [
                f"format.languages {form.languages} shows pairs, and {', '.join(store.names)} has none that fits into "
                f"{length} positions. Add parallel text, such as 'bible:en-de', or set it to apart."
            ]
        )
    bounds, sides = text.pairs[fits], text.sides[fits]
    if form.languages != "pairs":
        same = form.model_copy(update=_ONE_INDEX)
        edges = same._cached(store, "by-language", _RECIPE_OF_LANGUAGES, lambda: _edges(text, form))
        alone = np.stack([np.stack([edges[:-1], edges[1:]], -1), np.zeros((len(edges) - 1, 2), dtype=np.int64)], 1)
        number = np.searchsorted(text.store.sentences[text.sentences], edges[:-1], side="right") - 1
        spoken = np.stack([number, np.full_like(number, -1)], -1)
        shown = form.languages == "in_turn"
        bounds, sides = (
            np.concatenate([one, two[: len(two) * shown]]) for one, two in ((alone, bounds), (spoken, sides))
        )
    return Multilingual(text.store, bounds, length, text.names, sides, form.reset_positions)


_ONE_INDEX = {"languages": "apart", "language_exponent": 1.0, "reset_positions": True}  # all have the same running text


def _edges(text: TextByLanguage, form: TextFormat) -> np.ndarray:
    """Start of each sequence of one language after the other, and the end ``[sequences + 1]``."""
    parts = [np.zeros(1, dtype=np.int64)]
    for number in range(len(text.names)):
        store, start = text.of(number)
        parts.append(arrange(store, form.sequence_length, form.break_mode, form.short_sequences)[1:] + start)
    return np.concatenate(parts)


def hidden_first(tokens: Tokens, cls: int) -> Tokens:
    """Rows of pairs of whose second sentence no word is hidden."""
    return replace(tokens, special=tokens.special | ((tokens.ids == cls).cumsum(1) > 1))


def numbered(tokens: Tokens, numbers: tuple[int, ...] | None) -> Tokens:
    """The rows with the numbers that a model has for their languages; without them for a model that has none."""
    tables = dict(tokens.tables)
    language = tables.pop(TABLE, None)
    if language is not None and numbers is not None:
        tables[TABLE] = torch.tensor(numbers)[language]
    return replace(tokens, tables=tables)
