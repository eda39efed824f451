"""Matched segment pairs: of all that a pair shows, only the words and their order can reveal its label.

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

from dataclasses import dataclass

import numpy as np

from lightning_modules.config import ConfigError
from lightning_modules.data.formats.pairs import SPECIALS, PairSettings, Text, below, chain, targets
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import Draws

RECIPE = 1  # raise when the same store and settings would give different pairs
_SEED = 0


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


def arrange(store: TokenStore, settings: PairSettings) -> np.ndarray:
    """The pairs of a store, copy by copy, each in the order of the text; returns and raises as `pairs.arrange`."""
    text = Text(store)
    return np.concatenate([_copy(text, settings, number) for number in range(settings.duplicates)], axis=1)


def _copy(text: Text, settings: PairSettings, copy: int) -> np.ndarray:
    chunks = _found(text, settings, copy)
    if settings.negatives == "random":
        couple = np.minimum(chunks.first, chunks.first[chunks.partner])
        negative = _coin(_noise(copy, couple))
        pairs = _exchanged(chunks, text, negative)
    else:
        negative = _coin(_noise(copy, chunks.first))
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


def asked(store: TokenStore, settings: PairSettings, count: int) -> np.ndarray:
    """Pairs that ask about a store, at most ``count``, with as many of either label; returns as `pairs.arrange`.

    Random negatives: couples, each chunk with its own y and with that of its partner. Swapped negatives: each chunk in
    both orders; for every chunk of lengths (m, n) there is one of lengths (n, m).
    """
    text = Text(store)
    chunks = _found(text, settings, 0)
    random = settings.negatives == "random"
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
    order = np.lexsort((_noise(0, chunks.first).uniform("asked", 1)[:, 0], longer, high, low))
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


def _found(text: Text, settings: PairSettings, copy: int) -> Chunks:
    """The chunks with a partner."""
    chunks = gathered(text, settings, copy)
    coupled = chunks.coupled()
    if len(chunks.first) and not len(coupled.first):
        raise ConfigError(
            [
                f"format.pairing: matched pairs need second segments of other documents of the same corpus, but "
                f"{text.store.folder} has none of the right lengths. Add documents, or set pairing to 'released'."
            ]
        )
    return coupled


def gathered(text: Text, settings: PairSettings, copy: int) -> Chunks:
    """All chunks of a text, those without a partner included."""
    edges, room = text.sentences, settings.sequence_length - SPECIALS
    sentence = np.arange(len(edges) - 1)
    noise = _noise(copy, text.document if settings.short_documents else sentence)
    target = targets(settings, noise)
    begin, end = text.documents[:-1] + 1, text.documents[1:] - 1  # without the first and the last sentence
    begin, end = begin[begin < end], end[begin < end]
    share = 0.25 + 0.5 * _noise(copy, begin).uniform("middle", 1)[:, 0]
    middle = begin + (share * (end - begin + 1)).astype(np.int64)  # at half the tokens would be a long sentence
    forwards = _packed(edges, middle, end, target, room)
    count, backwards = len(edges) - 1, edges[-1] - edges[::-1]
    mirrored = _packed(backwards, count - middle[::-1], count - begin[::-1], target[::-1], room)
    first, end = np.concatenate([count - mirrored[::-1, ::-1], forwards], axis=1)
    order = np.argsort(first)
    first, end = first[order], end[order]
    split = first + 1 + below(_noise(copy, first), "split", end - first - 1)
    size = edges[end] - edges[split]
    corpus = np.searchsorted(text.corpora, text.document[first], side="right")
    return Chunks(first, split, end, _partners(corpus * (room + 1) + size, text.document[first], _noise(copy, first)))


def _noise(copy: int, rows: np.ndarray) -> Draws:
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
