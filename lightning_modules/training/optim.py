"""Optimisers, schedules and parameter groups of the papers."""

# torch's own optimisers use its _foreach functions, which it does not export
# pyright: reportPrivateImportUsage=false
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_modules.config import ConfigError, Problem, Settings, knob


class Optimizer(Settings):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), or LAMB (You et al. 2020)."""

    algorithm: Literal["adamw", "lamb"] = knob("adamw", "Optimiser: adamw, or lamb as in ALBERT.", neutral="adamw")
    bias_correction: bool = knob(
        True,
        "Correct the moments for their start at zero. BERT's AdamWeightDecay and ALBERT's LAMB do not.",
        neutral=True,
    )

    peak_lr: float = knob(1e-4, "Learning rate at the end of the warm-up.", gt=0)
    beta1: float = knob(0.9, "Decay rate of the first moment.", ge=0, lt=1)
    beta2: float = knob(0.999, "Decay rate of the second moment.", ge=0, lt=1)
    eps: float = knob(1e-6, "Epsilon in the denominator of the update.", gt=0)
    weight_decay: float = knob(0.01, "Decoupled weight decay, multiplied by the learning rate.", ge=0)
    decay_all: bool = knob(
        False, "Apply weight decay to biases and LayerNorm too, as in RoBERTa's released code. BERT exempts them."
    )

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """The optimiser over a module's parameters, each once (tied and shared tensors are one parameter)."""
        groups = parameter_groups(module, self.weight_decay, self.decay_all)
        common = {"lr": self.peak_lr, "betas": (self.beta1, self.beta2), "eps": self.eps}
        if self.algorithm == "lamb":
            weights, spared = groups
            return Lamb([weights, {**spared, "adapt": False}], bias_correction=self.bias_correction, **common)
        return (torch.optim.AdamW if self.bias_correction else UncorrectedAdamW)(groups, fused=True, **common)


def parameter_groups(module: nn.Module, weight_decay: float, decay_all: bool) -> list[dict]:
    """Two groups, weights and then biases and LayerNorm, distinguished by module type rather than by name.

    A module whose biases have other names lists them as ``spared``. Weight decay applies to the second group only with
    ``decay_all``.
    """
    spared: set[int] = set()
    for part in module.modules():
        own = dict(part.named_parameters(recurse=False))
        norm = isinstance(part, nn.LayerNorm)
        named = {"bias", *getattr(part, "spared", ())}
        spared |= {id(p) for name, p in own.items() if norm or name in named}
    parameters = list(module.parameters())
    return [
        {"params": [p for p in parameters if id(p) not in spared], "weight_decay": weight_decay},
        {"params": [p for p in parameters if id(p) in spared], "weight_decay": weight_decay if decay_all else 0.0},
    ]


class UncorrectedAdamW(torch.optim.AdamW):
    """AdamW without bias correction of the moments: BERT's ``AdamWeightDecayOptimizer``.

    ::

        m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p = p - lr (m / (sqrt(v) + eps) + wd p)

    torch's kernel divides the moments by ``1 - b**step``, which is 1 for an infinite step count.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with moments of zero."""
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            infinite = torch.tensor(math.inf, device=p.device)
            self.state[p] = {"step": infinite, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, algorithm 2) as in ALBERT's released code: Adam's update, scaled per tensor.

    ::

        u = m / (sqrt(v) + eps) + wd p;  p = p - lr r u;  r = |p| / |u|, or 1 if either norm is 0

    The paper's algorithm corrects the moments, ALBERT's does not; neither bounds the ratio.

    Args:
        params: Parameters or groups of them; r is 1 in groups whose ``adapt`` is False.
        lr: Learning rate.
        betas: Decay of the two moments.
        eps: Epsilon in the denominator.
        weight_decay: Decoupled decay, part of the scaled update.
        bias_correction: Whether to correct the moments for their start at zero.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": True, "step": 0}
        super().__init__(params, {**defaults, "bias_correction": bias_correction})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all parameters with a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            group["step"] += 1
            if parameters:
                updates = self._updates(group, parameters)
                if group["adapt"]:
                    torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
                torch._foreach_add_(parameters, updates, alpha=-group["lr"])
        return loss

    def _updates(self, group: dict[str, Any], parameters: list[Tensor]) -> tuple[Tensor, ...]:
        """Adam's steps at a learning rate of 1, weight decay included."""
        for p in parameters:
            if not self.state[p]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        (beta1, beta2), step, corrected = group["betas"], group["step"], group["bias_correction"]
        gradients = [p.grad for p in parameters if p.grad is not None]
        first, second = ([self.state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq"))
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        scales = torch._foreach_sqrt(second)
        if corrected:
            torch._foreach_div_(scales, math.sqrt(1 - beta2**step))
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(first, scales)
        if corrected:
            torch._foreach_div_(updates, 1 - beta1**step)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        return updates


def _trust_ratios(parameters: list[Tensor], updates: tuple[Tensor, ...]) -> list[Tensor]:
    """The norm of each parameter divided by that of its update."""
    weight, update = (torch.stack(torch._foreach_norm(tensors)) for tensors in (parameters, updates))
    return list(torch.where((weight > 0) & (update > 0), weight / update, 1.0).unbind())


class Schedule(Settings):
    """Linear warm-up from zero, then decay to zero at the last step."""

    warmup_fraction: float = knob(0.01, "Share of all steps used for linear warm-up.", ge=0, lt=1)
    decay: Literal["linear", "cosine", "constant"] = knob("linear", "Shape of the decay after the warm-up.")
    decay_origin: Literal["zero", "warmup_end"] = knob(
        "warmup_end",
        "Where the decay starts: at the end of the warm-up, or at step zero as in BERT's released code. There the "
        "rate drops at the end of the warm-up.",
    )

    def factor(self, step: int, steps: int) -> float:
        """The factor on peak_lr of optimiser step ``step`` (counted from 0) of ``steps``.

        The first step uses 1/warmup instead of BERT's 0, which would waste a step in short runs.
        """
        warmup = round(self.warmup_fraction * steps)
        if step < warmup:
            return (step + 1) / warmup
        start = warmup if self.decay_origin == "warmup_end" else 0
        progress = (step - start) / max(1, steps - start)
        if self.decay == "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
        return 1.0 if self.decay == "constant" else 1.0 - progress


def scheduled(module: nn.Module, optimizer: Optimizer, schedule: Schedule, steps: int) -> dict[str, Any]:
    """The result of Lightning's ``configure_optimizers``: the optimiser, with the rate set at each step."""
    built = optimizer.build(module)
    rate = torch.optim.lr_scheduler.LambdaLR(built, lambda step: schedule.factor(step, steps))
    return {"optimizer": built, "lr_scheduler": {"scheduler": rate, "interval": "step"}}


def check_clipping(asked: float | None, algorithm: str | None, norm: float, knob: str) -> None:
    """Refuses a Trainer's clipping that is not by the norm of the recipe, which is part of what a run is.

    Args:
        asked: The Trainer's ``gradient_clip_val``.
        algorithm: The Trainer's ``gradient_clip_algorithm``.
        norm: The maximum norm of the recipe; 0 disables clipping.
        knob: Sets that norm.

    Raises:
        ConfigError: With the knob that sets the norm.
    """
    if algorithm == "value":
        text = f"the Trainer asks for clipping by value, but gradients are clipped by their norm, {knob}"
        raise ConfigError([Problem("gradient_clip_algorithm", f"{text}. Leave it out of the Trainer.")])
    if asked is not None and asked != norm:
        text = f"the Trainer asks for {asked:g}, but gradients are clipped by {knob}, which is {norm:g}"
        raise ConfigError([Problem("gradient_clip_val", f"{text}. Leave it out of the Trainer, and set {knob}.")])


def clip(module: nn.Module, norm: float) -> None:
    """Scales a module's gradients down to a maximum global norm; 0 disables clipping."""
    if norm:
        torch.nn.utils.clip_grad_norm_(module.parameters(), norm)
