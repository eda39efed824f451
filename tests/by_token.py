"""Losses of a held-out stream token by token, a reference for what is read in other ways."""

import numpy as np
import torch
import torch.nn.functional as F

from lightning_modules.measures.final_metrics import each
from lightning_modules.objectives.lm import NEXT
from lightning_modules.objectives.objective import own_heads


def losses_by_token(module, heldout, bf16):
    """The nats of each token of a held-out stream ``[rows, width]``, the same tokens however it is read.

    For a context of exactly c tokens, itself excluded, read segments of one position with a context of c - 1.
    """
    rows, parts = heldout.reading.rows, []
    lm = module.objectives.lm

    def add(encoded, example):
        logits, target = lm.logits(own_heads(module.heads, "lm"), encoded, example), example.targets[NEXT]
        nats = F.cross_entropy(logits.float(), target.ids, reduction="none")
        parts.append(nats.double().cpu().numpy().reshape(rows, -1))

    with torch.no_grad():
        each(module, heldout, bf16, add)
    return np.concatenate(parts, axis=1)
