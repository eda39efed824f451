"""Optimisers, schedules and parameter groups, as the papers describe them."""

import math
from typing import Literal

import torch
from torch import nn

from .config import Settings, knob


class Optimizer(Settings):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), or LAMB (You et al. 2020)."""

    algorithm: Literal["adamw", "lamb"] = knob("adamw", "adamw, or lamb as ALBERT uses it.", neutral="adamw")
    bias_correction: bool = knob(
        True,
        "Whether the moments are corrected for their start at zero; BERT's AdamWeightDecay and ALBERT's LAMB do not.",
        neutral=True,
    )

    peak_lr: float = knob(1e-4, "Learning rate at the end of the warm-up.", gt=0)
    beta1: float = knob(0.9, "Decay of the first moment.", ge=0, lt=1)
    beta2: float = knob(0.999, "Decay of the second moment.", ge=0, lt=1)
    eps: float = knob(1e-6, "Added to the denominator.", gt=0)
    weight_decay: float = knob(0.01, "Decoupled decay, multiplied by the learning rate.", ge=0)
    decay_all: bool = knob(False, "Decay biases and LayerNorm too, as RoBERTa's released code does; BERT spares them.")

    def build(self, module: nn.Module) -> torch.optim.AdamW:
        """The optimiser over a module's parameters, each once (tied tables are one parameter)."""
        groups = parameter_groups(module, self.weight_decay, self.decay_all)
        return torch.optim.AdamW(groups, lr=self.peak_lr, betas=(self.beta1, self.beta2), eps=self.eps, fused=True)


def parameter_groups(module: nn.Module, weight_decay: float, decay_all: bool) -> list[dict]:
    """Decayed and spared parameters, told apart by the type of their module rather than by their name."""
    spared: set[int] = set()
    if not decay_all:
        for part in module.modules():
            own = dict(part.named_parameters(recurse=False))
            norm = isinstance(part, nn.LayerNorm)
            spared |= {id(p) for name, p in own.items() if norm or name == "bias"}
    parameters = list(module.parameters())
    return [
        {"params": [p for p in parameters if id(p) not in spared], "weight_decay": weight_decay},
        {"params": [p for p in parameters if id(p) in spared], "weight_decay": 0.0},
    ]


class Schedule(Settings):
    """Linear warm-up from zero, then decay to zero at the last step."""

    warmup_fraction: float = knob(0.01, "Share of all steps spent warming up.", ge=0, lt=1)
    decay: Literal["linear", "cosine", "constant"] = knob("linear", "Shape of the decay after the warm-up.")
    decay_origin: Literal["zero", "warmup_end"] = knob(
        "warmup_end",
        "Where the decay line starts: at the end of the warm-up, or at step zero as in BERT's released code, "
        "whose rate drops at the end of the warm-up.",
    )

    def factor(self, step: int, steps: int) -> float:
        """The multiple of peak_lr used for optimiser step ``step`` (counted from 0) of ``steps``.

        The first step uses 1/warmup rather than BERT's 0, so that no step is wasted in short runs.
        """
        warmup = round(self.warmup_fraction * steps)
        if step < warmup:
            return (step + 1) / warmup
        start = warmup if self.decay_origin == "warmup_end" else 0
        progress = (step - start) / max(1, steps - start)
        if self.decay == "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
        return 1.0 if self.decay == "constant" else 1.0 - progress
