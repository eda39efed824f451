"""Frozen states of texts: one vector a text, the mean of the states at its positions.

Each text is encoded by itself, between [CLS] and [SEP], so that models of every input format and direction are read
alike, and a text that belongs to several examples is encoded once. Texts of one length share a batch: nothing is
padded, and no state depends on what else is in its batch. Everything is computed in fp32.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.data.text.encode import Encoder
from lightning_modules.probing.parts import Parts
from lightning_modules.tasks.reading.layout import Segments
from lightning_modules.tasks.reading.pieces import Pieces

_POSITIONS_AT_ONCE = 4096  # in a forward pass

Places = tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"] | None]


@dataclass(frozen=True, eq=False)
class Rows:
    """The distinct texts of a probe as rows, and where each example's texts are among them.

    Attributes:
        rows: The rows ``[CLS] text [SEP]``.
        train: The rows of the training examples' first texts, and of their second texts, None for single texts.
        test: The same for the test examples.
    """

    rows: Segments
    train: Places
    test: Places

    @classmethod
    def of(cls, parts: Parts, encoder: Encoder, most: int) -> "Rows":
        """Encodes the texts of a probe, each cut to ``most`` positions."""
        texts = dict.fromkeys(text for part in parts for text in part.texts())
        number = {text: place for place, text in enumerate(texts)}
        pieces = Pieces.of(list(number), encoder)
        starts = pieces.bounds[:-1]
        ends = starts + np.minimum(np.diff(pieces.bounds), most - 2)
        rows = Segments(pieces.ids, np.array([(starts, ends)]), encoder.vocabulary)
        train, test = (
            (np.array([number[text] for text in part.first]),
             None if part.second is None else np.array([number[text] for text in part.second]))
            for part in parts
        )  # fmt: skip
        return cls(rows, train, test)

    def digest(self) -> str:
        """A hash of all tokens and of the examples they belong to."""
        arrays = [self.rows.ids, self.rows.parts, *(places for part in (self.train, self.test) for places in part)]
        contents = [b"" if array is None else np.ascontiguousarray(array).tobytes() for array in arrays]
        return hashlib.sha256(b"\0".join(contents)).hexdigest()

    def batches(self) -> Iterator[Int[np.ndarray, " b"]]:
        """The numbers of the texts of each forward pass: texts of equal length."""
        order = np.argsort(self.rows.lengths, kind="stable")
        lengths = self.rows.lengths[order]
        for group in np.split(order, np.flatnonzero(np.diff(lengths)) + 1):
            size = max(1, _POSITIONS_AT_ONCE // int(self.rows.lengths[group[0]]))
            yield from (group[start : start + size] for start in range(0, len(group), size))


@torch.no_grad()
def pooled(backbone: nn.Module, rows: Rows, device: torch.device) -> Float[np.ndarray, "2 t d"]:
    """The mean states of each text: of the layer half-way up, and of the last one as heads read it.

    Args:
        backbone: The encoder; it is not changed.
        rows: The texts.
        device: Where the encoder is.
    """
    training, vectors = backbone.training, []
    backbone.eval()
    for numbers in rows.batches():
        tokens = rows.rows.tokens(numbers)
        tokens.tables.clear()  # every model can do without: single texts are one segment
        with torch.autocast(device.type, enabled=False):
            encoded: Encoded = backbone(Example.of(tokens).to(device))
        half = encoded.layers[len(encoded.layers) // 2]
        vectors.append((numbers, [states.mean(1).cpu().numpy() for states in (half, encoded.last)]))
    backbone.train(training)
    order = np.argsort(np.concatenate([numbers for numbers, _ in vectors]))
    return np.stack([np.concatenate([means[layer] for _, means in vectors])[order] for layer in (0, 1)])


def combined(vectors: Float[np.ndarray, "t d"], places: Places) -> Float[np.ndarray, "n e"]:
    """What is read of each example: the vector of its text, or of two texts both vectors, their absolute difference
    and their product (Conneau et al. 2017).
    """
    first, second = places
    a = vectors[first]
    if second is None:
        return a
    b = vectors[second]
    return np.concatenate([a, b, np.abs(a - b), a * b], 1)
