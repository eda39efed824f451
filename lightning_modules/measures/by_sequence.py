"""Held-out losses by sequence: examples are a sample too, and documents are its clusters."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from lightning_modules.batch import Encoded, Example
from lightning_modules.data.order.heldout import HeldOut
from lightning_modules.measures.final_metrics import each
from lightning_modules.objectives.objective import own_heads
from lightning_modules.training.module import Pretrain


@dataclass(frozen=True)
class BySequence:
    """Held-out losses by sequence.

    Attributes:
        nats: Name of a held-out loss -> its sum in each sequence ``[sequences]``.
        counts: The same name -> the predictions in each sequence ``[sequences]``.
        documents: The document that each sequence starts in, numbered as they occur ``[sequences]``.
    """

    nats: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]
    documents: np.ndarray

    def means(self) -> dict[str, float]:
        """The losses in nats per prediction, over all sequences."""
        return {name: float(nats.sum() / self.counts[name].sum()) for name, nats in self.nats.items()}


def losses_by_sequence(module: Pretrain, heldout: HeldOut, bf16: bool) -> BySequence:
    """The held-out losses of a trained model, sequence by sequence, in the order of ``heldout``."""
    nats: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    counts: defaultdict[str, list[np.ndarray]] = defaultdict(list)

    def add(encoded: Encoded, example: Example) -> None:
        rows, length = example.inputs.ids.shape
        for name, objective in module.objectives.present():
            if not example.targets.keys() & set(objective.targets):
                continue
            for loss, (logits, target) in objective.predicted(own_heads(module.heads, name), encoded, example).items():
                row = (target.where // length).cpu().numpy()
                each_one = F.cross_entropy(logits.float(), target.ids, reduction="none").cpu().double().numpy()
                nats[loss].append(np.bincount(row, each_one, minlength=rows))
                counts[loss].append(np.bincount(row, minlength=rows))

    with torch.no_grad():
        each(module, heldout, bf16, add)
    joined = [{name: np.concatenate(parts) for name, parts in sums.items()} for sums in (nats, counts)]
    return BySequence(*joined, documents=documents_of(heldout))


def documents_of(heldout: HeldOut) -> np.ndarray:
    """The document that each sequence starts in, numbered from 0 ``[sequences]``."""
    sequences = heldout.sequences
    starts = sequences.starts[np.asarray(heldout.chosen, dtype=np.int64)]
    _, numbers = np.unique(np.searchsorted(sequences.store.document_starts, starts, side="right"), return_inverse=True)
    return numbers
