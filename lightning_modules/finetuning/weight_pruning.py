"""Weights and heads that a fine-tuning removes: masks hold weights at 0 while the others are trained.

Removed weights are zeros in matrices of the same size. No kernel here is faster for them.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lightning_modules.draws import permutation
from lightning_modules.finetuning.head_pruning import Heads
from lightning_modules.model.weights import undrawn
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning

Masks = dict[str, Bool[Tensor, "..."]]  # name of a weight -> True where it stays


def matrices(encoder: nn.Module) -> dict[str, nn.Parameter]:
    """The matrices of attention and feed-forward layers, those that layers share once.

    These are what Chen et al. (2020, section 2) prune, but for the pooler, which belongs to the head of a task here.
    Embeddings, biases and norms stay whole.
    """
    found = dict(encoder.named_parameters())
    linear = {f"{path}.weight" for path, part in encoder.named_modules() if isinstance(part, nn.Linear)}
    return {name: found[name] for name in found if name in linear and not name.startswith("embeddings.")}


def by_magnitude(weights: Mapping[str, Float[Tensor, "..."]], share: float) -> Masks:
    """Removes the smallest of all weights together, in absolute value; of equals the first.

    As many are removed as the share of all gives, to the nearest whole weight.
    """
    sizes = [weight.numel() for weight in weights.values()]
    every = torch.cat([weight.detach().abs().flatten() for weight in weights.values()])
    kept = torch.ones(len(every), dtype=torch.bool)
    kept[every.argsort(stable=True)[: round(share * len(every))]] = False
    parts = kept.split(sizes)
    return {name: part.view(weights[name].shape) for name, part in zip(weights, parts, strict=True)}


def at_random(masks: Masks, seed: int) -> Masks:
    """Masks that remove as many weights of each matrix as others do, drawn by a seed."""
    drawn = {}
    for place, (name, mask) in enumerate(masks.items()):
        order = torch.from_numpy(permutation(seed, "mask", place, mask.numel()))
        kept = torch.zeros(mask.numel(), dtype=torch.bool)
        kept[order[: int(mask.sum())]] = True
        drawn[name] = kept.view(mask.shape)
    return drawn


def sparsity(masks: Masks) -> float:
    """The share of the weights under masks that is removed."""
    return 1 - sum(int(mask.sum()) for mask in masks.values()) / sum(mask.numel() for mask in masks.values())


def hold(encoder: nn.Module, masks: Masks) -> None:
    """Sets what masks remove to 0, and its gradients from now on.

    A weight of 0 without a gradient has moments of 0 and no decay, so it stays 0 under every optimiser here. Gradient
    clipping does not count it. Masks are no part of the module's state: whoever builds the module holds them again.
    """
    for name, parameter in matrices(encoder).items():
        removed = ~masks[name]
        with torch.no_grad():
            parameter.masked_fill_(removed.to(parameter.device), 0.0)
        parameter.register_hook(_without(removed))


def _without(removed: Bool[Tensor, "..."]) -> Callable[[Tensor], Tensor]:
    there = {removed.device: removed}

    def masked(gradient: Tensor) -> Tensor:
        if gradient.device not in there:
            there[gradient.device] = removed.to(gradient.device)
        return gradient.masked_fill(there[gradient.device], 0.0)

    return masked


def removed(system: System, settings: FineTuning) -> int:
    """Parameters of removed heads, and weights that are held at 0. Counted without allocating memory."""
    if settings.removal is None and settings.masking is None:
        return 0
    with undrawn():
        encoder = system.model.build(system.data.tokenizer.vocab_size)
        if settings.masking is not None:
            return round(settings.masking.sparsity * sum(weight.numel() for weight in matrices(encoder).values()))
        assert settings.removal is not None
        whole, heads = sum(weight.numel() for weight in encoder.parameters()), Heads.of(encoder)
        heads.remove(range(settings.removal.removed(heads.count)))
        return whole - sum(weight.numel() for weight in encoder.parameters())
