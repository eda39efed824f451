"""What every test shares: quiet threads, a cache of its own, small inputs."""

from lightning_modules.speed import environment

environment()  # before torch is imported

import numpy as np
import pytest
import torch

from lightning_modules.batch import Tokens, Vocabulary
from lightning_modules.draws import Draws

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """No test reads or writes the user's cache or data."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("ABLATIONS_DATA", raising=False)


def make_tokens(rows: int = 4, length: int = 16, vocab_size: int = 50, padding: int = 0, seed: int = 0) -> Tokens:
    """Random sequences [CLS] w ... w [SEP], the last ``padding`` positions of every odd row padded."""
    ids = torch.randint(5, vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed))
    real = torch.ones(rows, length, dtype=torch.bool)
    special = torch.zeros(rows, length, dtype=torch.bool)
    ids[:, 0], special[:, 0] = 2, True
    for row in range(rows):
        end = length - (padding if row % 2 else 0)
        real[row, end:], special[row, end - 1 :] = False, True
        ids[row, end - 1], ids[row, end:] = 3, 0
    return Tokens(
        ids=ids,
        begins_word=~special,
        special=special,
        real=real,
        sample=torch.arange(rows),
        tables={"segment": torch.zeros_like(ids)},
    )


def make_draws(rows: int = 4, seed: int = 0, first: int = 0, epoch: int = 0) -> Draws:
    """The draws of ``rows`` sequences presented from number ``first`` on."""
    return Draws(seed, np.arange(first, first + rows), np.arange(rows), np.full(rows, epoch))


def make_vocabulary(size: int = 50) -> Vocabulary:
    """A vocabulary of whole words."""
    return Vocabulary(size=size, pad=0, unk=1, cls=2, sep=3, mask=4, begins_word=np.ones(size, dtype=bool))
