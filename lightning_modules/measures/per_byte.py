"""Held-out losses per byte of text, in which runs with different tokenizers can be compared."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from lightning_modules.batch import STEP, Encoded, Example
from lightning_modules.data.annotations import token_bytes
from lightning_modules.data.baselines.bigram import prefix
from lightning_modules.data.formats.text import RunningText
from lightning_modules.data.loader import PretrainingData
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.data.whole_words import HiddenWords
from lightning_modules.measures.final_metrics import Means, each
from lightning_modules.objectives import own_heads
from lightning_modules.training.module import Pretrain


def of_pieces(
    data: PretrainingData, heldout: HeldOut, targets: Sequence[str], losses: Mapping[str, float]
) -> dict[str, float]:
    """The held-out losses and those of the bigram baseline, over the bytes of the text behind the predictions.

    Pieces are hidden at random, so encodings hide different text and half of long words: see `of_words`.

    Args:
        losses: ``<prefix>loss`` and ``<prefix>bigram_loss`` in nats per prediction.
    """
    sequences = heldout.sequences
    assert isinstance(sequences, RunningText), "held-out text is running text"
    behind, examples, found = token_bytes(data.data, "heldout", sequences.store), list(heldout), {}
    for target in targets:
        kind = prefix(target)
        count = sum(example.targets[target].count() for example in examples)
        per_byte = count / predicted_bytes(sequences, behind, examples, target)
        for name in ("loss", "bigram_loss"):
            found[f"{kind}{name.removesuffix('loss')}nats_per_byte"] = losses[f"{kind}{name}"] * per_byte
    return found


def predicted_bytes(sequences: RunningText, behind: np.ndarray, examples: Iterable[Example], target: str) -> int:
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


def of_words(module: Pretrain, data: PretrainingData, count: int, bf16: bool) -> dict[str, float]:
    """The losses of whole hidden words per byte, the same words under every tokenizer; see `data.whole_words`.

    Args:
        count: Stretches of text, at most.
        bf16: Whether it was trained in bfloat16.
    """
    hidden = data.whole_words(count)
    pieces = sum(example.targets["mlm"].count() for example in hidden.examples)
    nats, first = _word_losses(module, hidden, bf16)
    nats *= pieces
    bigram = data.baselines(("mlm",), hidden.examples)["bigram_loss"] * pieces
    return {
        "word_nats_per_byte": (nats + hidden.length_nats) / hidden.bytes,
        "word_first_loss": first,
        "word_bigram_nats_per_byte": (bigram + hidden.length_nats) / hidden.bytes,
        "word_length_nats_per_byte": hidden.length_nats / hidden.bytes,
        "word_unknown": hidden.unknown / hidden.words,
        "words": float(hidden.words),
    }


def _word_losses(module: Pretrain, hidden: HiddenWords, bf16: bool) -> tuple[float, float]:
    """Mean loss of the hidden pieces in nats, and that of the first pieces of words to a reader who knows they are.

    The second leaves out what comes with a scheme and not with words. A model that hides whole words learns that their
    first [MASK] begins a word, so the probability of a first piece is here among those that begin one. It never sees
    the beginning of a word whose end is hidden. Here later pieces are predicted, so those are left out.
    """
    begins = torch.from_numpy(hidden.begins).to(module.device)
    means, told = Means(module), []

    def add(encoded: Encoded, example: Example) -> None:
        means.add(encoded, example)
        for name, objective in module.objectives.present():
            if "mlm" in objective.targets:
                logits, target = objective.predicted(own_heads(module.heads, name), encoded, example)["loss"]
                kept = logits.float().masked_fill(begins[target.ids][:, None] != begins, -torch.inf)
                told.append(F.cross_entropy(kept, target.ids, reduction="none").double().cpu())

    each(module, hidden.examples, bf16, add)
    return means.found()["loss"], float(torch.cat(told)[: hidden.words].mean())  # first pieces are predicted first
