"""Frozen states of texts: one vector a text, the mean of the states at its positions or at those of one word.

Each text is encoded by itself, between [CLS] and [SEP], so that models of every input format and direction are read
alike, and a text that belongs to several examples is encoded once. Texts of one length share a batch: nothing is
padded, and no state depends on what else is in its batch. Everything is computed in fp32.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from lightning_modules.batch import CHARACTERS, Encoded, Example
from lightning_modules.data.text.characters import spelt
from lightning_modules.data.text.encode import Encoder
from lightning_modules.probing.parts import Parts
from lightning_modules.tasks.reading.layout import Segments
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.shapes.texts import TextExamples

LAYERS = ("embeddings", "middle", "last")  # that are read
_POSITIONS_AT_ONCE = 2048  # in a forward pass


@dataclass(frozen=True, eq=False)
class Places:
    """Where the texts of some examples are among the rows.

    Attributes:
        first: The row of each example's first text ``[n]``.
        second: The row of its second text ``[n]``; None for single texts.
    """

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " n"] | None


@dataclass(frozen=True, eq=False)
class Rows:
    """The distinct texts of a probe as rows, and where each example's texts are among them.

    Attributes:
        rows: The rows ``[CLS] text [SEP]``.
        spans: The first position that is read of each row, and the end.
        train: Where the texts of the training examples are.
        test: Where those of the test examples are.
    """

    rows: Segments
    spans: Int[np.ndarray, "t 2"]
    train: Places
    test: Places

    @classmethod
    def of(cls, parts: Parts, encoder: Encoder, most: int) -> "Rows":
        """Encodes the texts of a probe, each cut to ``most`` positions."""
        keys = [
            _keyed(part, words) for part, words in ((parts.train, parts.train_words), (parts.test, parts.test_words))
        ]
        distinct = dict.fromkeys(key for both in keys for key in chain(*both))
        number = {key: place for place, key in enumerate(distinct)}
        pieces = Pieces.of([text for text, _ in number], encoder)
        starts = pieces.bounds[:-1]
        ends = starts + np.minimum(np.diff(pieces.bounds), most - 2)
        rows = Segments(pieces.ids, np.array([(starts, ends)]), encoder.vocabulary)
        spans = np.array([_span(pieces, row, word) for row, (_, word) in enumerate(number)])
        first = [np.array([number[key] for key in texts], dtype=np.int64) for texts, _ in keys]
        second = [np.array([number[key] for key in texts]) if texts else None for _, texts in keys]
        train, test = map(Places, first, second)
        return cls(rows, np.minimum(spans, rows.lengths[:, None] - [1, 0]), train, test)

    def digest(self) -> str:
        """A hash of all tokens and of the examples they belong to."""
        arrays = [self.rows.ids, self.rows.parts, self.spans]
        arrays += [places for part in (self.train, self.test) for places in (part.first, part.second)]
        contents = [b"" if array is None else np.ascontiguousarray(array).tobytes() for array in arrays]
        return hashlib.sha256(b"\0".join(contents)).hexdigest()

    def batches(self) -> Iterator[Int[np.ndarray, " b"]]:
        """The numbers of the texts of each forward pass: texts of equal length."""
        order = np.argsort(self.rows.lengths, kind="stable")
        lengths = self.rows.lengths[order]
        for group in np.split(order, np.flatnonzero(np.diff(lengths)) + 1):
            size = max(1, _POSITIONS_AT_ONCE // int(self.rows.lengths[group[0]]))
            yield from (group[start : start + size] for start in range(0, len(group), size))


Key = tuple[str, int]  # a text and the word that is read of it, -1 for all


def _keyed(examples: TextExamples, words: np.ndarray | None) -> tuple[list[Key], list[Key]]:
    """The rows of some examples' first texts, and of their second ones."""
    places = [-1] * len(examples) if words is None else words.tolist()
    return list(zip(examples.first, places, strict=True)), [(text, -1) for text in examples.second or ()]


def _span(pieces: Pieces, row: int, word: int) -> tuple[int, int]:
    """The positions that are read of a row: those of a word, or all, [CLS] and [SEP] included."""
    if word < 0:
        return 0, int(pieces.bounds[row + 1] - pieces.bounds[row]) + 2
    start, end = pieces.words[pieces.texts[row] + word : pieces.texts[row] + word + 2] - pieces.bounds[row]
    return int(start) + 1, int(end) + 1


@torch.no_grad()
def pooled(
    backbone: nn.Module, rows: Rows, device: torch.device, language: int | None = None
) -> list[Float[np.ndarray, "t _"]]:
    """The mean states of what is read of each text: of the embeddings, the layer half-way up, and the last one.

    The last states are those that heads read.

    Args:
        backbone: The encoder; it is not changed.
        language: The number of the language of the texts, for an encoder that has embeddings of languages.
    """
    training, vectors = backbone.training, []
    is_spelt = CHARACTERS in getattr(backbone, "supports", ())
    backbone.eval()
    for numbers in rows.batches():
        tokens = rows.rows.tokens(numbers)
        tokens = spelt(tokens, rows.rows.vocabulary) if is_spelt else tokens
        tokens.tables.clear()  # every model can do without segments: single texts are one
        if language is not None:
            tokens.tables["language"] = torch.full_like(tokens.ids, language)
        with torch.autocast(device.type, enabled=False):
            encoded: Encoded = backbone(Example.of(tokens).to(device))
        layers = (encoded.layers[0], encoded.layers[len(encoded.layers) // 2], encoded.last)
        places = torch.arange(encoded.last.shape[1])
        first, end = torch.from_numpy(rows.spans[numbers]).T[:, :, None]
        is_read = ((places >= first) & (places < end)).to(device, encoded.last.dtype)[:, :, None]
        means = [(states * is_read).sum(1) / is_read.sum(1) for states in layers]
        vectors.append((numbers, [mean.cpu().numpy() for mean in means]))
    backbone.train(training)
    order = np.argsort(np.concatenate([numbers for numbers, _ in vectors]))
    return [np.concatenate([means[layer] for _, means in vectors])[order] for layer in range(len(LAYERS))]


def combined(vectors: Float[np.ndarray, "t d"], places: Places) -> Float[np.ndarray, "n e"]:
    """What is read of each example: the vector of its text, or of two texts both vectors, their absolute difference
    and their product (Conneau et al. 2017).
    """
    a = vectors[places.first]
    if places.second is None:
        return a
    b = vectors[places.second]
    return np.concatenate([a, b, np.abs(a - b), a * b], 1)
