"""Released segment pairs: ``[CLS] A [SEP] B [SEP]``, where B is the text after A or a negative.

The construction is that of BERT's released ``create_instances_from_document`` (Devlin et al. 2019, appendix A.2), with
ALBERT's negatives (Lan et al. 2020, section 3.1) as the other choice:

* Sentences of one document are gathered up to a target number of tokens: all that fit, or, for a share of the pairs, a
  uniform number from 2 up.
* A is the first 1 .. n-1 of the n sentences, uniformly; B is the rest (label 0).
* Random negatives: half of the pairs, and every pair of a single sentence, get a B from another document,
  starting at a random sentence (label 1). The unused sentences go into the next pair. More than half of the labels are
  therefore 1.
* Swapped negatives: half of the pairs have A and B in reverse order (label 1). A single sentence makes no pair.
* Pairs that are too long lose tokens one by one from the longer segment, at either end with probability 1/2.

Sentence pairs, RoBERTa's SENTENCE-PAIR (Liu et al. 2019, section 4.2), are made in the same way of two sentences at
a time, whatever their lengths; a random second segment is one sentence.

The other document is drawn uniformly from all others; the released code uses the pair's own after ten failures.

Every draw is a function of its purpose, of the number of the copy and of the first sentence of the pair (or of its
document), not of a run's seed: all runs see the same pairs, and variants of the format share as many as possible.

Matched segment pairs: of all that a pair shows, only the words and their order can reveal its label.

In the released constructions (`pairs`) lengths, cut edges, the corpus and the beginnings of documents give labels away.
Here:

* A chunk is two or more whole sentences of a document, all that fit (or, for a share of the chunks, a random shorter
  length). It is split between two sentences, uniformly, into x and y. Nothing is cut inside a sentence.
* The first half of a document is gathered backwards from its middle, the second forwards. A chunk that is filled
  forwards tends to begin with a long sentence, the one that no longer fitted before. Both directions together leave
  (length of x, length of y) distributed as (length of y, length of x).
* Two chunks of one corpus, of different documents, whose y has equally many tokens, are a couple. Each chunk is in
  one couple, so a document is a partner as often as it is long.
* Random negatives: a coin for each couple; if it falls on 1, its two chunks exchange their y (label 1).
* Swapped negatives: a coin for each chunk; if it falls on 1, A is y and B is x (label 1).

So half of the labels are 1 in expectation, and lengths, corpora and documents have the same distribution under both.
All choices of negatives show the same chunks in the same cuts, each once: pairs differ in order or partner only. Left
out of all of them alike are the first and the last sentence of a document. Left out too are sentences that do not fit
next to a neighbour, and chunks without a partner.
The held-out pairs that ask a question (`asked`) are matched exactly: each chunk is there in both orders, each
couple both ways.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.config import ConfigError, knob
from lightning_modules.data.formats.format import InputFormat, Sequences
from lightning_modules.data.formats.text import TextFormat, chain
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import Draws

SPECIALS = 3  # [CLS] and two [SEP]
FIRST_WORDS = 8
_RECIPE = 1  # raise when the same store and settings would give different pairs
_RECIPE_OF_MATCHED = 1
_SEED = 0

Negatives = Literal["random", "swapped"]  # where the second segment of a pair that does not follow comes from
Pairing = Literal["released", "matched"]  # how text is cut into pairs, and where second segments come from
Excerpt = Literal["all", "first", "rest", "shuffled"]


class PairFormat(InputFormat):
    """Two segments that may or may not belong together."""

    labels: ClassVar[frozenset[str]] = frozenset({"sentence"})
    _same: ClassVar[Mapping[str, Any]] = {"share": 1.0, "cls": "first", "excerpt": "all"}

    negatives: Negatives = knob(
        "random",
        "Negatives, half of all pairs: random has a second segment of another document (BERT), "
        "swapped has the two segments in reverse order (ALBERT).",
        neutral="random",
    )
    pairing: Pairing = knob(
        "released",
        "How pairs are made. With released it is as by the code of BERT and ALBERT. With matched they are of "
        "whole sentences, and partners have the same corpus and length. Then lengths, edges and corpora do not "
        "predict the label.",
        neutral="released",
    )
    excerpt: Excerpt = knob(
        "all",
        "A control: what is shown of each segment, in training and of held-out pairs alike. It is all words, "
        "the first eight, the rest, or all in random order (shuffled).",
        neutral="all",
    )
    cls: Literal["first", "last"] = knob(
        "first",
        "Place of [CLS] in sequences that have one: last is behind the last [SEP], as a segment of its own (XLNet). "
        "Held-out running text keeps it first, so that the same tokens are predicted.",
        neutral="first",
    )
    duplicates: int = knob(
        1,
        "How often the text is arranged, with new random draws (BERT's dupe_factor).",
        neutral=1,
        ge=1,
        le=1000,
    )
    lone_negatives: bool = knob(
        False,
        "With swapped negatives: give a single sentence a random second segment as a negative, "
        "as in ALBERT's released code. By default single sentences are left out.",
        neutral=False,
    )

    def _idle(self) -> dict[str, Any]:
        used = self.negatives == "swapped" and self.pairing == "released"
        return {} if used else {"lone_negatives": False}

    def heldout(self, *, blocks: bool = False) -> TextFormat:
        """See `InputFormat.heldout`."""
        return TextFormat(sequence_length=self.sequence_length, break_mode="none")

    def arrange(self, store: TokenStore) -> "PairSequences":
        """See `InputFormat.arrange`."""
        return truncation_control(self.arrange_whole(store), self.excerpt)

    def arrange_whole(self, store: TokenStore) -> "PairSequences":
        """The pairs of a store as `arrange`, with all their words."""
        recipe = _RECIPE if self.pairing == "released" else _RECIPE_OF_MATCHED
        index = self._cached(store, "pairs", recipe, lambda: arrange(store, self.resolved()))
        return PairSequences(store, index, self.sequence_length)

    def arrange_asked(self, store: TokenStore, count: int) -> "PairSequences":
        """Pairs of at least two sentences that ask a question about a store.

        Released pairs are those of the whole text, of which any may be used. Matched ones are at most ``count``.
        """
        if self.pairing == "released":
            return self.arrange_whole(store).of_several_sentences()
        index = self._cached(store, f"asked-{count}", _RECIPE_OF_MATCHED, lambda: asked(store, self.resolved(), count))
        return PairSequences(store, index, self.sequence_length)


class SegmentPairFormat(PairFormat):
    """BERT's two segments, of as many sentences as fit."""

    kind: Literal["segment_pairs"] = knob("segment_pairs", "Layout.")
    short_fraction: float = knob(0.1, "Share of pairs with a random shorter length.", neutral=0.0, ge=0, le=1)
    short_documents: bool = knob(
        False,
        "Draw the shorter length once per document, as in BERT's released code, not once per pair.",
        neutral=False,
    )

    def _idle(self) -> dict[str, Any]:
        return super()._idle() | ({} if self.short_fraction else {"short_documents": False})


class SentencePairFormat(PairFormat):
    """Two single sentences."""

    kind: Literal["sentence_pairs"] = knob("sentence_pairs", "Layout.")


def arrange(store: TokenStore, form: PairFormat) -> np.ndarray:
    """The pairs of a store, copy by copy, each in the order of the text.

    Returns:
        Integers ``[6 pairs]``: start and end of A in ``store.ids``, start and end of B, the label, and the number of
        sentences of the pair before any replacement.

    Raises:
        ConfigError: When negatives need another document, and there is none that fits.
    """
    text, copy = Text(store), _copy if form.pairing == "released" else _matched_copy
    return np.concatenate([copy(text, form, number) for number in range(form.duplicates)], axis=1)


@dataclass(frozen=True, eq=False)
class Text:
    """The non-empty sentences and documents of a store."""

    store: TokenStore

    @cached_property
    def sentences(self) -> np.ndarray:
        """Where each sentence starts, and the end ``[sentences + 1]``."""
        return np.unique(self.store.sentences)

    @cached_property
    def documents(self) -> np.ndarray:
        """First sentence of each document, and the end ``[documents + 1]``."""
        return np.searchsorted(self.sentences, np.unique(self.store.document_starts))

    @cached_property
    def document(self) -> np.ndarray:
        """Document of each sentence ``[sentences]``."""
        return np.repeat(np.arange(len(self.documents) - 1), np.diff(self.documents))

    @cached_property
    def corpora(self) -> np.ndarray:
        """First document of every corpus after the first."""
        starts = self.store.document_starts[list(self.store.corpora)]
        return np.searchsorted(np.unique(self.store.document_starts), starts)


def _noise(copy: int, rows: np.ndarray) -> Draws:
    return Draws(_SEED, rows, rows, np.zeros_like(rows), stream=f"pairs {copy}")


def _copy(text: Text, form: PairFormat, copy: int) -> np.ndarray:
    """One arrangement of the whole text: the possible pair at each sentence, then the pairs in use."""
    sentence = np.arange(len(text.sentences) - 1)
    noise = _noise(copy, sentence)
    target = targets(form, _noise(copy, text.document) if form.short_documents else noise)
    end = np.searchsorted(text.sentences, text.sentences[:-1] + target)
    if form.kind == "sentence_pairs":
        end = sentence + 2
    end = np.minimum(end, text.documents[text.document + 1])
    split = sentence + 1 + below(noise, "split", end - sentence - 1)
    alone = end - sentence == 1
    negative = alone | (noise.uniform("negative", 1)[:, 0] < 0.5)
    random = form.negatives == "random"
    first = chain(np.where(negative, split, end) if random else end)
    if not random and not form.lone_negatives:
        first = first[~alone[first]]
    apart = first[negative[first] if random else alone[first]]  # pairs whose B is from another document
    a_start, a_end, b_start, b_end = (text.sentences[edge] for edge in (sentence, split, split, end))
    b_start[apart], b_end[apart] = _elsewhere(text, apart, target[apart] - (a_end - a_start)[apart], copy)
    pairs = np.stack([a_start, a_end, b_start, b_end])[:, first]
    if not random:
        pairs = np.where(negative[first] & ~alone[first], pairs[[2, 3, 0, 1]], pairs)
    pairs = _truncated(pairs, form.sequence_length - SPECIALS, _noise(copy, first))
    return np.concatenate([pairs, [negative[first], (end - sentence)[first]]])


def targets(form: PairFormat, noise: Draws) -> np.ndarray:
    """The target number of tokens of a pair that starts with each sentence; 0 for two sentences of any length."""
    if form.kind == "sentence_pairs":
        return np.zeros(len(noise.rows), dtype=np.int64)
    room = form.sequence_length - SPECIALS
    shorter = 2 + noise.integers("target", 1, room - 1)[:, 0]
    return np.where(noise.uniform("short", 1)[:, 0] < form.short_fraction, shorter, room)


def below(noise: Draws, purpose: str, high: np.ndarray) -> np.ndarray:
    """Uniform integers in [0, high) row by row; 0 where ``high`` is 0."""
    return (noise.uniform(purpose, 1)[:, 0] * high).astype(np.int64)


def _elsewhere(text: Text, sentence: np.ndarray, tokens: np.ndarray, copy: int) -> tuple[np.ndarray, np.ndarray]:
    """For some pairs, bounds of whole sentences of other documents.

    Args:
        sentence: First sentence of each pair ``[n]``.
        tokens: Minimum tokens ``[n]``; there are fewer only at the end of a document.
    """
    count = len(text.documents) - 1
    if len(sentence) and count < 2:
        raise ConfigError(
            [
                f"format.negatives: the second segment must come from another document, but {text.store.folder} "
                "holds one document. Add documents, or set negatives to 'swapped' without lone_negatives."
            ]
        )
    noise, own = _noise(copy, sentence), text.document[sentence]
    other = below(noise, "document", np.full_like(own, count - 1))
    other += other >= own
    start, stop = text.documents[other], text.documents[other + 1]
    start = start + below(noise, "sentence", stop - start)
    end = np.searchsorted(text.sentences, text.sentences[start] + np.maximum(tokens, 1))
    return text.sentences[start], text.sentences[np.minimum(end, stop)]


def tokens_lost(a: np.ndarray, b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens two segments of these lengths lose, so that both fit.

    They are removed one at a time from the longer segment (of equals, from B): first the difference in length, then
    from both in turn, B first.
    """
    excess = np.maximum(a + b - room, 0)
    uneven = np.minimum(excess, np.abs(a - b))
    both = excess - uneven
    return np.where(a > b, uneven, 0) + both // 2, np.where(a > b, 0, uneven) + (both + 1) // 2


def _truncated(pairs: np.ndarray, room: int, noise: Draws) -> np.ndarray:
    """Bounds ``[4 n]`` such that both segments fit.

    A fair coin chooses the end at which a token is removed, so the number removed at the front is binomial.
    """
    from scipy.stats import binom  # a second to import

    a_start, a_end, b_start, b_end = pairs
    a_lost, b_lost = tokens_lost(a_end - a_start, b_end - b_start, room)
    a_front, b_front = (
        binom.ppf(noise.uniform(f"front of {name}", 1)[:, 0], lost, 0.5).clip(0).astype(np.int64)
        for name, lost in (("A", a_lost), ("B", b_lost))
    )
    return np.stack([a_start + a_front, a_end - (a_lost - a_front), b_start + b_front, b_end - (b_lost - b_front)])


@dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks in the order of the text.

    Attributes:
        first: First sentence of each ``[n]``.
        middle: First sentence of y ``[n]``.
        end: The sentence after its last ``[n]``.
        partner: The number of the chunk that is its couple's other, or -1 ``[n]``.
    """

    first: np.ndarray
    middle: np.ndarray
    end: np.ndarray
    partner: np.ndarray

    def coupled(self) -> "Chunks":
        """Those that have a partner."""
        kept = self.partner >= 0
        number = np.cumsum(kept) - 1
        return Chunks(self.first[kept], self.middle[kept], self.end[kept], number[self.partner[kept]])

    def bounds(self, text: Text) -> np.ndarray:
        """Start and end of x, start and end of y in the tokens ``[4 n]``."""
        return text.sentences[np.stack([self.first, self.middle, self.middle, self.end])]


def _matched_copy(text: Text, form: PairFormat, copy: int) -> np.ndarray:
    chunks = _found(text, form, copy)
    if form.negatives == "random":
        couple = np.minimum(chunks.first, chunks.first[chunks.partner])
        negative = _coin(_matched_noise(copy, couple))
        pairs = _exchanged(chunks, text, negative)
    else:
        negative = _coin(_matched_noise(copy, chunks.first))
        pairs = _swapped(chunks, text, negative)
    return np.concatenate([pairs, [negative, chunks.end - chunks.first]])


def _coin(noise: Draws) -> np.ndarray:
    return noise.uniform("negative", 1)[:, 0] < 0.5


def _exchanged(chunks: Chunks, text: Text, negative: np.ndarray) -> np.ndarray:
    """Bounds of the pairs ``[4 n]`` in which negatives have the y of their partner."""
    bounds = chunks.bounds(text)
    bounds[2:] = np.where(negative, bounds[2:, chunks.partner], bounds[2:])
    return bounds


def _swapped(chunks: Chunks, text: Text, negative: np.ndarray) -> np.ndarray:
    """Bounds of the pairs ``[4 n]`` in which negatives have y before x."""
    bounds = chunks.bounds(text)
    return np.where(negative, bounds[[2, 3, 0, 1]], bounds)


def asked(store: TokenStore, form: PairFormat, count: int) -> np.ndarray:
    """Pairs that ask about a store, at most ``count``, with as many of either label; returns as `arrange`.

    Random negatives: couples, each chunk with its own y and with that of its partner. Swapped negatives: each chunk in
    both orders; for every chunk of lengths (m, n) there is one of lengths (n, m).
    """
    text = Text(store)
    chunks = _found(text, form, 0)
    random = form.negatives == "random"
    chosen = (_couples if random else _mirrored)(chunks, text, count // 2)
    change = _exchanged if random else _swapped
    sides = [change(chunks, text, np.full(len(chunks.first), side))[:, chosen] for side in (False, True)]
    labels = np.repeat([0, 1], len(chosen))
    sentences = np.tile((chunks.end - chunks.first)[chosen], 2)
    return np.concatenate([np.concatenate(sides, axis=1), [labels, sentences]])


def _couples(chunks: Chunks, text: Text, most: int) -> np.ndarray:
    """The chunks of some couples, drawn at random, at most so many."""
    number = np.arange(len(chunks.first))
    return _drawn(np.minimum(number, chunks.partner), most)


def _mirrored(chunks: Chunks, text: Text, most: int) -> np.ndarray:
    """Chunks, drawn at random, at most so many, of which as many have lengths (m, n) as (n, m)."""
    x, x_end, _, y_end = chunks.bounds(text)
    a, b = x_end - x, y_end - x_end
    number = np.arange(len(a))
    low, high, longer = np.minimum(a, b), np.maximum(a, b), a > b
    order = np.lexsort((_matched_noise(0, chunks.first).uniform("asked", 1)[:, 0], longer, high, low))
    kind = np.stack([low, high, longer])[:, order]
    begins = np.flatnonzero(np.r_[True, (np.diff(kind) != 0).any(0)]) if len(order) else order
    rank = np.empty_like(number)
    rank[order] = number - np.repeat(begins, np.diff(np.append(begins, len(order))))
    _, unit, size = np.unique(np.stack([low, high, rank]), axis=1, return_inverse=True, return_counts=True)
    unit = unit.reshape(-1)
    kept = number[(a == b) | (size[unit] == 2)]
    return kept[_drawn(unit[kept], most)]


def _drawn(unit: np.ndarray, most: int) -> np.ndarray:
    """Numbers of items whose units are drawn at random, whole, as long as there is room for all items of the next."""
    draw = Draws(_SEED, unit, unit, np.zeros_like(unit), stream="asked units").uniform("order", 1)[:, 0]
    order = np.lexsort((unit, draw))
    last = np.r_[unit[order][1:] != unit[order][:-1], True] if len(order) else order.astype(bool)
    ends = np.flatnonzero(last) + 1
    return order[: ends[ends <= most].max(initial=0)]


def _found(text: Text, form: PairFormat, copy: int) -> Chunks:
    """The chunks with a partner."""
    chunks = gathered(text, form, copy)
    coupled = chunks.coupled()
    if len(chunks.first) and not len(coupled.first):
        raise ConfigError(
            [
                f"format.pairing: matched pairs need second segments of other documents of the same corpus, but "
                f"{text.store.folder} has none of the right lengths. Add documents, or set pairing to 'released'."
            ]
        )
    return coupled


def gathered(text: Text, form: PairFormat, copy: int) -> Chunks:
    """All chunks of a text, those without a partner included."""
    edges, room = text.sentences, form.sequence_length - SPECIALS
    sentence = np.arange(len(edges) - 1)
    noise = _matched_noise(copy, text.document if form.short_documents else sentence)
    target = targets(form, noise)
    begin, end = text.documents[:-1] + 1, text.documents[1:] - 1  # without the first and the last sentence
    begin, end = begin[begin < end], end[begin < end]
    share = 0.25 + 0.5 * _matched_noise(copy, begin).uniform("middle", 1)[:, 0]
    middle = begin + (share * (end - begin + 1)).astype(np.int64)  # at half the tokens would be a long sentence
    forwards = _packed(edges, middle, end, target, room)
    count, backwards = len(edges) - 1, edges[-1] - edges[::-1]
    mirrored = _packed(backwards, count - middle[::-1], count - begin[::-1], target[::-1], room)
    first, end = np.concatenate([count - mirrored[::-1, ::-1], forwards], axis=1)
    order = np.argsort(first)
    first, end = first[order], end[order]
    split = first + 1 + below(_matched_noise(copy, first), "split", end - first - 1)
    size = edges[end] - edges[split]
    corpus = np.searchsorted(text.corpora, text.document[first], side="right")
    return Chunks(
        first, split, end, _partners(corpus * (room + 1) + size, text.document[first], _matched_noise(copy, first))
    )


def _matched_noise(copy: int, rows: np.ndarray) -> Draws:
    return Draws(_SEED, rows, rows, np.zeros_like(rows), stream=f"matched pairs {copy}")


def _packed(edges: np.ndarray, begin: np.ndarray, stop: np.ndarray, target: np.ndarray, room: int) -> np.ndarray:
    """First sentence and end of the chunks ``[2 n]`` that are gathered forwards in some stretches of the text.

    Args:
        edges: Where each sentence starts, and the end ``[sentences + 1]``.
        begin: First sentence of each stretch, ascending.
        stop: The sentence after its last.
        target: Tokens that a chunk has at most if it starts with this sentence, unless two sentences need more.
        room: Tokens that it never exceeds.
    """
    begin, stop = begin[begin < stop], stop[begin < stop]
    sentence = np.arange(len(edges) - 1)
    within = stop[np.maximum(np.searchsorted(begin, sentence, side="right") - 1, 0)] if len(stop) else sentence
    two = np.minimum(sentence + 2, len(sentence))
    end = np.searchsorted(edges, edges[:-1] + target, side="right") - 1
    end = np.minimum(np.maximum(end, np.where(edges[two] - edges[:-1] <= room, two, 0)), within)
    whole = end - sentence >= 2
    after = np.where(whole, end, sentence + 1)
    following = np.append(begin, len(sentence))
    after = np.where(after >= within, following[np.searchsorted(begin, within)], after)
    first = chain(after, int(following[0]))
    first = first[whole[first]]
    return np.stack([first, end[first]])


def _partners(kind: np.ndarray, document: np.ndarray, noise: Draws) -> np.ndarray:
    """For each chunk another of the same kind and of another document, or -1; partners are mutual.

    Within a kind, documents are in random order. The first half of the chunks is coupled with the second, so that only
    a document with more than half of them meets itself.
    """
    number = np.arange(len(kind))
    key = kind * (document.max(initial=0) + 1) + document
    shuffled = Draws(noise.seed, key, key, np.zeros_like(key), noise.stream).uniform("document", 1)[:, 0]
    order = np.lexsort((noise.uniform("partner", 1)[:, 0], document, shuffled, kind))
    begins = np.flatnonzero(np.r_[True, np.diff(kind[order]) != 0]) if len(kind) else number
    sizes = np.diff(np.append(begins, len(kind)))
    half = np.repeat(sizes // 2, sizes)
    place = number - np.repeat(begins, sizes)
    left = np.flatnonzero(place < half)
    one, other = order[left], order[left + half[left]]
    apart = document[one] != document[other]
    partner = np.full(len(kind), -1)
    partner[one[apart]], partner[other[apart]] = other[apart], one[apart]
    return partner


@dataclass(frozen=True, eq=False)
class PairSequences(Sequences):
    """The pairs of a store as sequences.

    Attributes:
        index: Bounds of A and B, label and number of sentences ``[6 pairs]``.
    """

    specials: ClassVar[int] = SPECIALS

    store: TokenStore
    index: np.ndarray
    length: int

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Sequences.stretches`: those of A, those of B."""
        a_start, a_end, b_start, b_end = self.index[:4]
        return [(a_start, a_end), (b_start, b_end)]

    @property
    def documents(self) -> np.ndarray:
        """How many documents each pair shows parts of ``[pairs]``."""
        one, other = (np.searchsorted(self.store.document_starts, start, "right") for start, _ in self.stretches)
        return 1 + (one != other)

    def of_several_sentences(self) -> "PairSequences":
        """Without the pairs of a single sentence, whose label is always 1; about half of the others are negatives."""
        return PairSequences(self.store, self.index[:, self.index[5] > 1], self.length)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """See `Sequences.batch`.

        The table ``segment`` is 0 for [CLS], A, the first [SEP] and padding, 1 for B and the last [SEP]; the label
        ``sentence`` is 0 if B follows A, else 1, as in BERT's released code.
        """
        indices = np.asarray(indices, dtype=np.int64)
        a_start, a_end, b_start, b_end, label = self.index[:5, indices, None]
        column = np.arange(length or self.length)
        middle = 1 + a_end - a_start
        last = middle + 1 + b_end - b_start
        real, second = column <= last, column > middle
        separator = (column == middle) | (column == last)
        source = np.where(second, b_start + column - middle - 1, a_start + column - 1)
        rows = self.store.rows(indices, source, separator, real, (second & real).astype(np.int64))
        return replace(rows, labels={"sentence": torch.from_numpy(label[:, 0].astype(np.int64))})


class Shuffled(PairSequences):
    """Segment pairs whose words are in random order within each segment; the pieces of a word stay together."""

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The pairs with these numbers, as rows ``[b t]``; of so many positions, by default of all."""
        tokens = super().batch(indices, length)
        sample = tokens.sample.numpy()
        ids, special, segment = (part.numpy() for part in (tokens.ids, tokens.special, tokens.tables["segment"]))
        begins = self.store.vocabulary.begins(ids) | special | (np.diff(special, axis=1, prepend=True) != 0)
        keys = Draws(_SEED, sample, sample, np.zeros_like(sample), "shuffled words").uniform("order", ids.shape[1])
        word = np.take_along_axis(keys, np.cumsum(begins, axis=1) - 1, axis=1)
        column = np.arange(ids.shape[1])
        part = np.where(special, column, 0)
        part = np.maximum.accumulate(part, axis=1) * 2 + ~special  # every special token, and what is between two
        order = np.argsort(part + np.where(special, 0, word), axis=1, kind="stable")
        shuffled = np.take_along_axis(ids, order, axis=1)
        assert (np.take_along_axis(segment, order, axis=1) == segment).all()
        marks = {name: mark.gather(1, torch.from_numpy(order)) for name, mark in tokens.marks.items()}
        return replace(tokens, ids=torch.from_numpy(shuffled), marks=marks)


def truncation_control(pairs: PairSequences, part: Excerpt) -> PairSequences:
    """Pairs of which only an excerpt is shown, with the same numbers and labels.

    Args:
        pairs: Pairs with all their words.
        part: ``first``: the first eight words of each segment; ``rest``: what follows them, which may be nothing;
            ``shuffled``: all words in random order.
    """
    if part == "all":
        return pairs
    if part == "shuffled":
        return Shuffled(pairs.store, pairs.index, pairs.length)
    index = pairs.index.copy()
    for start, end in ((0, 1), (2, 3)):
        index[end if part == "first" else start] = _after_words(pairs, index[start], index[end])
    return PairSequences(pairs.store, index, pairs.length)


def _after_words(pairs: PairSequences, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where the first words of some stretches of text end."""
    column = np.arange((end - start).max(initial=1))
    source = start[:, None] + column
    ids = pairs.store.ids[np.minimum(source, len(pairs.store.ids) - 1)]
    begins = pairs.store.vocabulary.begins(ids) | (column == 0)
    later = (np.cumsum(begins, axis=1) > FIRST_WORDS) & (source < end[:, None])
    return np.where(later.any(axis=1), start + later.argmax(axis=1), end)
