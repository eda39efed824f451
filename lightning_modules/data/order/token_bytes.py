"""The bytes of the original text behind the tokens of a store, and behind what held-out examples predict."""

from collections.abc import Iterable

import numpy as np

from lightning_modules import cached
from lightning_modules.batch import STEP, Example
from lightning_modules.data.corpora.sources import Split
from lightning_modules.data.formats.running_text import Sequences
from lightning_modules.data.settings import Data
from lightning_modules.data.store import TokenStore, batches, tokenizer_file
from lightning_modules.data.text.alignment import piece_bytes
from lightning_modules.data.text.encode import Encoder

_RECIPE = 1  # raise when the same text would give other bytes


def token_bytes(data: Data, split: Split, store: TokenStore) -> np.ndarray:
    """The bytes behind each token of a store ``[n]``, kept next to it: `alignment.piece_bytes` of its text."""

    def compute() -> np.ndarray:
        encoder = Encoder(tokenizer_file(data), data.tokenizer.kind)
        parts = [piece_bytes(encoder, sentences) for _, sentences, _ in batches(data, split)]
        found = np.concatenate(parts)
        assert len(found) == len(store.ids), "the same text in the same pieces"
        return found.astype(np.min_scalar_type(int(found.max(initial=0))))

    path = store.folder / f"bytes-{_RECIPE}.npy"
    return cached.kept(path, lambda file: cached.put_array(file, compute()), np.load)


def predicted_bytes(sequences: Sequences, behind: np.ndarray, examples: Iterable[Example], target: str) -> int:
    """The bytes behind all predictions of a target; there are none behind the end of a document.

    Args:
        sequences: The running text of the examples.
        behind: The bytes of each of its tokens ``[n]``.
    """
    total = 0
    for example in examples:
        inputs = example.inputs
        row, column = np.divmod(example.targets[target].where.numpy(), inputs.ids.shape[1])
        column = column + STEP.get(target, 0)
        special = inputs.special.numpy()
        text = ~special[row, column]
        row, column = row[text], column[text]
        before = np.cumsum(special, axis=1)[row, column]  # special pieces are not in the store
        start = sequences.bounds[inputs.sample.numpy()[row]]
        total += int(behind[start + column - before].sum(dtype=np.int64))
    return total
