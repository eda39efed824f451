"""A small text in which a word's neighbours tell something about it, for what counts."""

from pathlib import Path

import numpy as np

from lightning_modules.data import TokenStore, Vocabulary

SIZE, LENGTH = 12, 400


def store(folder: Path, length: int = LENGTH) -> TokenStore:
    """Documents of 110, 90, 130 and 70 words, the last shorter or longer as the length says."""
    draw = np.random.default_rng(0)
    ids = [5]
    for _ in range(length - 1):
        ids.append(5 + (ids[-1] - 5 + 1) % 7 if draw.random() < 0.6 else int(draw.integers(5, SIZE)))
    sentences, documents = np.arange(0, length + 1, 10), np.array([0, 11, 20, 33, length // 10])
    vocabulary = Vocabulary(tuple(map(str, range(SIZE))), np.ones(SIZE, dtype=bool))
    return TokenStore(folder, np.array(ids, np.uint16), sentences, documents, vocabulary, length)
