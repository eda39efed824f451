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
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch

from lightning_modules.batch import Tokens
from lightning_modules.config import ConfigError
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import Draws

RECIPE = 1  # raise when the same store and settings would give different pairs
SPECIALS = 3  # [CLS] and two [SEP]
_SEED = 0

Negatives = Literal["random", "swapped"]  # where the second segment of a pair that does not follow comes from


class PairSettings(Protocol):
    """The settings of an input format that the construction uses; see `InputFormat`."""

    kind: str
    sequence_length: int
    negatives: Negatives
    short_fraction: float
    duplicates: int
    short_documents: bool
    lone_negatives: bool


def arrange(store: TokenStore, settings: PairSettings) -> np.ndarray:
    """The pairs of a store, copy by copy, each in the order of the text.

    Returns:
        Integers ``[6 pairs]``: start and end of A in ``store.ids``, start and end of B, the label, and the number of
        sentences of the pair before any replacement.

    Raises:
        ConfigError: When negatives need another document and there is none.
    """
    text = Text(store)
    return np.concatenate([_copy(text, settings, number) for number in range(settings.duplicates)], axis=1)


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


def _copy(text: Text, settings: PairSettings, copy: int) -> np.ndarray:
    """One arrangement of the whole text: the possible pair at each sentence, then the pairs in use."""
    sentence = np.arange(len(text.sentences) - 1)
    noise = _noise(copy, sentence)
    target = targets(settings, _noise(copy, text.document) if settings.short_documents else noise)
    end = np.searchsorted(text.sentences, text.sentences[:-1] + target)
    if settings.kind == "sentence_pairs":
        end = sentence + 2
    end = np.minimum(end, text.documents[text.document + 1])
    split = sentence + 1 + below(noise, "split", end - sentence - 1)
    alone = end - sentence == 1
    negative = alone | (noise.uniform("negative", 1)[:, 0] < 0.5)
    random = settings.negatives == "random"
    first = chain(np.where(negative, split, end) if random else end)
    if not random and not settings.lone_negatives:
        first = first[~alone[first]]
    apart = first[negative[first] if random else alone[first]]  # pairs whose B is from another document
    a_start, a_end, b_start, b_end = (text.sentences[edge] for edge in (sentence, split, split, end))
    b_start[apart], b_end[apart] = _elsewhere(text, apart, target[apart] - (a_end - a_start)[apart], copy)
    pairs = np.stack([a_start, a_end, b_start, b_end])[:, first]
    if not random:
        pairs = np.where(negative[first] & ~alone[first], pairs[[2, 3, 0, 1]], pairs)
    pairs = _truncated(pairs, settings.sequence_length - SPECIALS, _noise(copy, first))
    return np.concatenate([pairs, [negative[first], (end - sentence)[first]]])


def targets(settings: PairSettings, noise: Draws) -> np.ndarray:
    """The target number of tokens of a pair that starts with each sentence; 0 for two sentences of any length."""
    if settings.kind == "sentence_pairs":
        return np.zeros(len(noise.rows), dtype=np.int64)
    room = settings.sequence_length - SPECIALS
    shorter = 2 + noise.integers("target", 1, room - 1)[:, 0]
    return np.where(noise.uniform("short", 1)[:, 0] < settings.short_fraction, shorter, room)


def below(noise: Draws, purpose: str, high: np.ndarray) -> np.ndarray:
    """Uniform integers in [0, high) row by row; 0 where ``high`` is 0."""
    return (noise.uniform(purpose, 1)[:, 0] * high).astype(np.int64)


def chain(after: np.ndarray, sentence: int = 0) -> np.ndarray:
    """The first sentences of the pairs from ``sentence`` on; the pair at ``i`` is followed by that at ``after[i]``."""
    jumps, first = after.tolist(), []
    while sentence < len(jumps):
        first.append(sentence)
        sentence = jumps[sentence]
    return np.array(first, dtype=np.int64)


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


def _truncated(pairs: np.ndarray, room: int, noise: Draws) -> np.ndarray:
    """Bounds ``[4 n]`` such that both segments fit.

    Tokens are removed one at a time from the longer segment (of equals, from B): first the difference in length, then
    from both in turn, B first. A fair coin chooses the end, so the number removed at the front is binomial.
    """
    from scipy.stats import binom  # a second to import

    a_start, a_end, b_start, b_end = pairs
    a, b = a_end - a_start, b_end - b_start
    excess = np.maximum(a + b - room, 0)
    uneven = np.minimum(excess, np.abs(a - b))
    rest = excess - uneven
    a_lost = np.where(a > b, uneven, 0) + rest // 2
    b_lost = np.where(a > b, 0, uneven) + (rest + 1) // 2
    a_front, b_front = (
        binom.ppf(noise.uniform(f"front of {name}", 1)[:, 0], lost, 0.5).clip(0).astype(np.int64)
        for name, lost in (("A", a_lost), ("B", b_lost))
    )
    return np.stack([a_start + a_front, a_end - (a_lost - a_front), b_start + b_front, b_end - (b_lost - b_front)])


@dataclass(frozen=True, eq=False)
class PairSequences:
    """The pairs of a store as sequences.

    Attributes:
        index: Bounds of A and B, label and number of sentences ``[6 pairs]``; see `arrange`.
    """

    goes_on: ClassVar[bool] = False  # no pair goes on from another one

    store: TokenStore
    index: np.ndarray
    length: int

    def __len__(self) -> int:
        return self.index.shape[1]

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start and end of the stretches of text that each pair shows: those of A, those of B."""
        a_start, a_end, b_start, b_end = self.index[:4]
        return [(a_start, a_end), (b_start, b_end)]

    @property
    def documents(self) -> np.ndarray:
        """How many documents each pair shows parts of ``[pairs]``."""
        one, other = (np.searchsorted(self.store.document_starts, start, "right") for start, _ in self.stretches)
        return 1 + (one != other)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Positions of each pair that are no padding ``[pairs]``."""
        a_start, a_end, b_start, b_end = self.index[:4]
        return a_end - a_start + b_end - b_start + SPECIALS

    @property
    def alike(self) -> np.ndarray:
        """See `Sequences.alike`."""
        return self.sizes

    def of_several_sentences(self) -> "PairSequences":
        """Without the pairs of a single sentence, whose label is always 1; about half of the others are negatives."""
        return PairSequences(self.store, self.index[:, self.index[5] > 1], self.length)

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The pairs with these numbers, as rows ``[b t]``; of so many positions, by default of all.

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
        rows = self.store.framed(indices, source, separator, real, (second & real).astype(np.int64))
        return replace(rows, labels={"sentence": torch.from_numpy(label[:, 0].astype(np.int64))})
