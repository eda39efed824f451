"""Optimisers, schedules and parameter groups of the papers."""

# torch's own optimisers use its _foreach functions, which it does not export
# pyright: reportPrivateImportUsage=false
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from lightning_modules.config import Settings, knob
from lightning_modules.model.settings import BackboneModule

Freezing = Literal["none", "last", "gradual", "chain_thaw"]
_OF_ADAM = ("bias_correction", "beta1", "beta2", "eps")
_OF_WARMUP = ("decay", "decay_origin")


class Optimizer(Settings):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), LAMB (You et al. 2020), SGD, or Adagrad.

    SGD has no momentum: its weight decay is the same coupled and decoupled. It may be averaged. Adagrad (Duchi et al.
    2011) adds the decay to the gradient, and its sums of squares begin at 1, as in ELMo's released code. Adam's knobs
    do nothing to either.
    """

    algorithm: Literal["adamw", "lamb", "sgd", "adagrad"] = knob(
        "adamw",
        "Optimiser: adamw, lamb as in ALBERT, sgd without momentum as in AWD-LSTM, or adagrad as in ELMo.",
        neutral="adamw",
    )
    nonmonotone_interval: int = knob(
        0,
        "NT-ASGD: number n of evaluations (5 in AWD-LSTM). An evaluation begins the averaging of weights if its "
        "held-out loss is above the best of those before it, the last n left out. The mean is evaluated and kept. No "
        "averaging with 0.",
        neutral=0,
        ge=0,
        le=64,
    )
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
    rate_divisor: float = knob(
        1.0,
        "Number by which the learning rate is divided from each layer to the one below it (discriminative rates of 2.6 "
        "in ULMFiT). Heads learn at peak_lr, the embeddings and an output layer tied to them at the lowest rate.",
        neutral=1.0,
        ge=1,
        le=100,
    )

    @model_validator(mode="after")
    def _only_sgd_is_averaged(self) -> Self:
        if self.nonmonotone_interval and self.algorithm != "sgd":
            raise ValueError(
                f"nonmonotone_interval {self.nonmonotone_interval} averages the weights of sgd, and algorithm is "
                f"{self.algorithm}: set algorithm to sgd, or nonmonotone_interval to 0"
            )
        return self

    def resolved(self) -> Self:
        """The settings with Adam's knobs at their defaults where there is no Adam."""
        if self.algorithm not in ("sgd", "adagrad"):
            return self
        fields = type(self).model_fields
        return self.model_copy(update={name: fields[name].default for name in _OF_ADAM})

    def _by_layer(
        self, groups: Sequence[dict[str, Any]], layers: Sequence[Sequence[nn.Parameter]], below: float
    ) -> Iterator[dict[str, Any]]:
        """Groups of parameters, parted by layers that have rates of their own, in the order of the layers."""
        for place, layer in enumerate(layers):
            own, share = {id(p) for p in layer}, (below if place else 1.0) / self.rate_divisor**place
            for group in groups:
                if params := [p for p in group["params"] if id(p) in own]:
                    yield {**group, "params": params, "lr": self.peak_lr * share}

    @property
    def moments(self) -> int:
        """Tensors of the size of each parameter that it keeps from step to step."""
        return {"sgd": 0, "adagrad": 1}.get(self.algorithm, 2)

    def build(self, module: nn.Module, below: float = 1.0) -> torch.optim.Optimizer:
        """The optimiser over a module's parameters, each once (tied and shared tensors are one parameter).

        Args:
            below: The rate of all layers below the heads, as a share of what it is otherwise.
        """
        weights, spared = parameter_groups(module, self.weight_decay, self.decay_all)
        if self.algorithm == "lamb":
            spared["adapt"] = False
        groups = [weights, spared]
        if self.rate_divisor > 1 or below < 1:
            groups = list(self._by_layer(groups, layer_groups(module), below))
        if self.algorithm == "sgd":
            return torch.optim.SGD(groups, self.peak_lr)
        if self.algorithm == "adagrad":
            return torch.optim.Adagrad(groups, self.peak_lr, initial_accumulator_value=1.0)
        common = {"lr": self.peak_lr, "betas": (self.beta1, self.beta2), "eps": self.eps}
        if self.algorithm == "lamb":
            return Lamb(groups, bias_correction=self.bias_correction, **common)
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


def layer_groups(module: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of a module with a ``backbone`` by depth, each once.

    The first group is the highest: heads, and what a backbone has above its last layer. Below it there is a group for
    each layer, then one for the embeddings, with a tied output layer. Layers that share their weights are one group.
    """
    by_depth: dict[int, list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        by_depth.setdefault(_depth(module, name), []).append(parameter)
    return [by_depth[depth] for depth in sorted(by_depth, reverse=True)]


def _depth(module: nn.Module, name: str) -> int:
    backbone, place = getattr(module, "backbone", None), "backbone."
    if not isinstance(backbone, BackboneModule):  # what reads in windows, or has more on top, has its encoder inside
        backbone, place = getattr(backbone, "encoder", None), "backbone.encoder."
    if not isinstance(backbone, BackboneModule):
        return 0
    return backbone.depth(name.removeprefix(place) if name.startswith(place) else "")


def trained(freezing: Freezing, groups: int, step: int, steps: int, each_epoch: int) -> range:
    """The groups of `layer_groups` that learn at a step; the others are frozen.

    * ``last``: the first group alone.
    * ``gradual``: the first one in the first epoch, then one more each epoch (Howard and Ruder 2018, section 3.3). The
      released code trains one, then two, then all.
    * ``chain_thaw``: the first one, then each other one alone from the embeddings upwards, then all (Felbo et al. 2017,
      section 3.3), each for the same share of the steps. There each is trained until it converges.

    >>> [list(trained("gradual", 3, step, 8, 2)) for step in (0, 2, 4, 6)]
    [[0], [0, 1], [0, 1, 2], [0, 1, 2]]
    >>> [list(trained("chain_thaw", 3, step, 8, 2)) for step in (0, 2, 4, 6)]
    [[0], [2], [1], [0, 1, 2]]

    Args:
        step: Optimiser step, from 0.
    """
    if freezing == "last":
        return range(1)
    if freezing == "gradual":
        return range(min(groups, step // each_epoch + 1))
    if freezing == "chain_thaw":
        stage = step * (groups + 1) // steps
        if stage < groups:
            only = (groups - stage) % groups
            return range(only, only + 1)
    return range(groups)


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
    """Linear warm-up from zero, then decay to zero at the last step; or a shape that rises and falls."""

    shape: Literal["warmup", "slanted", "one_cycle"] = knob(
        "warmup",
        "Shape: a linear warm-up and a decay (warmup), slanted triangular rates (slanted) or one cycle (one_cycle). "
        "Slanted rates rise linearly from the peak over ratio and fall back there (ULMFiT). One cycle rises from there "
        "and falls to the peak over final_ratio, both along cosines (fastai).",
        neutral="warmup",
    )
    ratio: float = knob(
        32.0, "With slanted or one_cycle: the peak over the first rate (25 in fastai's one_cycle).", neutral=32.0, ge=1
    )
    final_ratio: float = knob(
        250_000.0, "With one_cycle: the peak over the rate towards which it falls.", neutral=250_000.0, ge=1
    )
    low_beta1: float | None = knob(
        None,
        "With one_cycle: the decay rate of the first moment at the peak. It falls there from optimizer.beta1 and rises "
        "back to it (0.85 of 0.95 in fastai). By default it stays.",
        neutral=None,
        ge=0,
        lt=1,
    )
    by_length: bool = knob(
        False,
        "Multiply the rate of a step by its positions over format.sequence_length, where format.lengths draws them "
        "(AWD-LSTM).",
        neutral=False,
    )
    warmup_fraction: float = knob(0.01, "Share of all steps used for the warm-up, or the rise.", ge=0, lt=1)
    decay: Literal["linear", "cosine", "constant", "inverse_sqrt"] = knob(
        "linear",
        "Shape of the decay after the warm-up. With inverse_sqrt the rate falls by the square root of the steps done "
        "and does not reach zero (Vaswani et al. 2017, equation 3).",
    )
    decay_origin: Literal["zero", "warmup_end"] = knob(
        "warmup_end",
        "Where the decay starts: at the end of the warm-up, or at step zero as in BERT's released code. There the "
        "rate drops at the end of the warm-up.",
    )

    @model_validator(mode="after")
    def _only_a_cycle_moves_moments(self) -> Self:
        if self.low_beta1 is not None and self.shape != "one_cycle":
            raise ValueError(
                f"low_beta1 {self.low_beta1:g} is of shape one_cycle, and shape is {self.shape}: leave low_beta1 out, "
                "or set shape to one_cycle"
            )
        return self

    def resolved(self) -> Self:
        """The settings with the knobs of other shapes at their defaults."""
        fields = type(self).model_fields
        idle = {"warmup": ("ratio", "final_ratio"), "slanted": ("final_ratio", *_OF_WARMUP), "one_cycle": _OF_WARMUP}
        return self.model_copy(update={name: fields[name].default for name in idle[self.shape]})

    def factor(self, step: int, steps: int) -> float:
        """The factor on peak_lr of optimiser step ``step`` (counted from 0) of ``steps``.

        The first step of a warm-up uses 1/warmup instead of BERT's 0, which would waste a step in short runs. Slanted
        and one-cycle rates are those of fastai's code (``CircularLR``, ``OneCycleScheduler``). The formula of ULMFiT's
        paper (Howard and Ruder 2018, equation 3) divides by cut (1 / cut_frac - 1), where cut is a rounded number of
        steps: by 0 in fewer than 10, and it ends below 0 wherever cut was rounded.
        """
        if self.shape != "warmup":
            rise = self._rise(steps)
            if self.shape == "slanted":
                part = step / rise if step < rise else 1 - (step - rise) / (steps - rise)
                return (1 + part * (self.ratio - 1)) / self.ratio
            if step < rise:
                return _along_cosine(1 / self.ratio, 1.0, step / rise)
            return _along_cosine(1.0, 1 / self.final_ratio, (step - rise) / (steps - rise))
        warmup = round(self.warmup_fraction * steps)
        if step < warmup:
            return (step + 1) / warmup
        start = warmup if self.decay_origin == "warmup_end" else 0
        progress = (step - start) / max(1, steps - start)
        if self.decay == "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
        if self.decay == "inverse_sqrt":
            return math.sqrt(max(1, warmup) / (step + 1))
        return 1.0 if self.decay == "constant" else 1.0 - progress

    def peak(self, steps: int) -> int:
        """The number of steps after which the rate rises no more."""
        return round(self.warmup_fraction * steps) if self.shape == "warmup" else self._rise(steps) + 1

    def beta1(self, usual: float, step: int, steps: int) -> float:
        """The decay rate of the first moment at a step, where it is ``usual`` at both ends of a cycle."""
        if self.low_beta1 is None:
            return usual
        rise = self._rise(steps)
        if step < rise:
            return _along_cosine(usual, self.low_beta1, step / rise)
        return _along_cosine(self.low_beta1, usual, (step - rise) / (steps - rise))

    def _rise(self, steps: int) -> int:
        """Steps before the peak, rounded down; a share such as 1/3 of 9 is none that rounding errors make less."""
        return math.floor(self.warmup_fraction * steps + 1e-9)


def _along_cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))


class _Cycled(torch.optim.lr_scheduler.LambdaLR):
    """The rate of each step and, of a cycle, the decay rate of the first moment."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Schedule, steps: int, usual: float) -> None:
        self._beta1 = lambda step: schedule.beta1(usual, step, steps)
        super().__init__(optimizer, lambda step: schedule.factor(step, steps))

    def get_lr(self) -> list[float | Tensor]:
        for group in self.optimizer.param_groups:
            group["betas"] = (self._beta1(self.last_epoch), group["betas"][1])
        return super().get_lr()

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "_beta1"}


def scheduled(
    module: nn.Module, optimizer: Optimizer, schedule: Schedule, steps: int, below: float = 1.0
) -> dict[str, Any]:
    """The result of Lightning's ``configure_optimizers``: the optimiser, with the rate set at each step.

    ``below`` is that of `Optimizer.build`.
    """
    built = optimizer.build(module, below)
    if schedule.low_beta1 is None or optimizer.algorithm == "sgd":  # which has no moments
        rate = torch.optim.lr_scheduler.LambdaLR(built, lambda step: schedule.factor(step, steps))
    else:
        rate = _Cycled(built, schedule, steps, optimizer.beta1)
    return {"optimizer": built, "lr_scheduler": {"scheduler": rate, "interval": "step"}}


def clip(module: nn.Module, norm: float) -> None:
    """Scales a module's gradients down to a maximum global norm; 0 disables clipping."""
    if norm:
        torch.nn.utils.clip_grad_norm_(module.parameters(), norm)
