"""The pieces of a task's texts, made once per tokenizer and cached."""

import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from lightning_modules import cached
from lightning_modules.data.text.encode import Encoder
from lightning_modules.files import read
from lightning_modules.places import cache

_RECIPE = 1  # raise when the same texts would give different pieces


@dataclass(frozen=True, eq=False)
class Pieces:
    """Token ids of many texts, concatenated, without special tokens.

    Attributes:
        ids: Token ids ``[m]``.
        words: Where each word's pieces start in ``ids``, and the end ``[w + 1]``.
        texts: Where each text's words start in ``words``, and the end ``[n + 1]``; every text has at least one
            word, which may be empty.
    """

    ids: np.ndarray
    words: np.ndarray
    texts: np.ndarray

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where each text's pieces start in ``ids``, and the end ``[n + 1]``."""
        return self.words[self.texts]

    def backward(self, most: int) -> "Pieces":
        """The first ``most`` pieces of each text from the last to the first, the rest as it is; words are not kept."""
        place = np.arange(len(self.ids))
        counts = np.diff(self.bounds)
        start = np.repeat(self.bounds[:-1], counts)
        shown = np.minimum(np.repeat(counts, counts), most)
        ids = self.ids[np.where(place - start < shown, 2 * start + shown - 1 - place, place)]
        return Pieces(ids, self.bounds, np.arange(len(self.bounds)))

    @classmethod
    def of(cls, texts: list[str], encoder: Encoder) -> "Pieces":
        """Encodes texts, or reads the cached result for the same texts."""
        key = hashlib.sha256(read(encoder.path))
        key.update(f"{_RECIPE} {encoder.kind}\0".encode() + "\n".join(texts).encode())  # no text contains a line break
        path = cache() / "pieces" / f"{key.hexdigest()[:24]}.npz"
        return cached.kept(path, lambda file: np.savez(file, **asdict(cls(*encoder.by_word(texts)))), cls._read)

    @classmethod
    def _read(cls, path: Path) -> Self:
        with np.load(path) as stored:
            return cls(**{name: stored[name] for name in ("ids", "words", "texts")})
