"""How a training is executed: on how many devices, what is kept for the backward pass, whether layers are compiled.

What a run is does not depend on it, so none of it is in an identity. A record's provenance says it.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from lightning_modules import cached
from lightning_modules.config import ConfigError, Problem, identity
from lightning_modules.model import Backbone, Transformer
from lightning_modules.model.settings import StackSettings
from lightning_modules.model.transformer import SubLayer, TransformerEncoder
from lightning_modules.places import cache
from lightning_modules.problems import did_you_mean
from lightning_modules.training.settings import Training

Strategy = Literal["ddp", "fsdp"]
Curves = Literal["csv", "tensorboard", "wandb", "mlflow"]
_PACKAGES: Mapping[str, tuple[str, ...]] = {  # of each of them one is enough
    "csv": (),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "mlflow_skinny"),
}


def check_logger(name: str) -> None:
    """Raises a `ConfigError` unless there is a logger of this name and its package is installed."""
    if name not in (known := get_args(Curves)):
        raise ConfigError([Problem("--logger", f"no '{name}'.{did_you_mean(name, known, listed=True)}")])
    if (wanted := _PACKAGES[name]) and not any(map(importlib.util.find_spec, wanted)):
        text = f"'{name}' needs a package that is not installed: pip install 'ablations[{name}]', or use --logger csv"
        raise ConfigError([Problem("--logger", text)])


@dataclass(frozen=True)
class Execution:
    """How trainings are executed.

    Attributes:
        devices: GPUs, or processes on a machine without them, of each node that shares the rows of each step of a
            pretraining.
        nodes: Machines that share them.
        strategy: What each of several devices has: ``ddp``, all weights (distributed data parallel training: Li et al.
            2020); ``fsdp``, its part of weights, gradients and moments (see `ranks.divide`).
        activation_checkpointing: Whether layers keep their input alone and are computed again in the backward pass.
        compile_layers: Whether layers of a transformer are compiled (see `compiled`).
        checkpoint_seconds: Time between checkpoints of a training.
        logger: Who draws live curves of trainings (`Curves`); empty for nobody.
        curves: The folder of these curves.
    """

    devices: int = 1
    nodes: int = 1
    strategy: Strategy = "ddp"
    activation_checkpointing: bool = False
    compile_layers: bool = False
    checkpoint_seconds: float = 60.0
    logger: str = ""
    curves: str = ""

    def __post_init__(self) -> None:
        known, divides = get_args(Strategy), self.strategy == "fsdp"
        uncompiled = "layers whose weights are divided are not compiled. Leave it out, or choose --strategy ddp."
        one = "fsdp divides weights among devices, and there is one: --devices"
        rows = (
            ("devices", self.devices < 1, f"must be at least 1, not {self.devices}"),
            ("num-nodes", self.nodes < 1, f"must be at least 1, not {self.nodes}"),
            ("strategy", self.strategy not in known, f"no '{self.strategy}'{did_you_mean(self.strategy, known)}"),
            ("strategy", divides and self.ranks == 1, one),
            ("compile", divides and self.compile_layers, uncompiled),
        )
        if wrong := [Problem(path, text) for path, is_so, text in rows if is_so]:
            raise ConfigError(wrong[:1])

    @property
    def ranks(self) -> int:
        """How many processes share a pretraining, each with a device."""
        return self.devices * self.nodes

    def problems(self, model: Backbone, training: Training) -> Iterator[Problem]:
        """What is in the way of executing a pretraining like this."""
        batch, kind = training.batch_size, model.get("kind")
        rows, rest = divmod(batch, self.ranks)
        if rest:
            fitting = ", ".join(str(count) for count in range(1, min(batch, 64) + 1) if not batch % count)
            text = f"{self.ranks} devices cannot share training.batch_size {batch} equally. Allowed: {fitting}"
            yield Problem("devices", text)
        elif (micro := min(training.micro_batch_size or rows, rows)) and rows % micro:
            text = f"{self.ranks} devices have {rows} rows each of training.batch_size {batch}, which is no multiple"
            yield Problem("devices", f"{text} of training.micro_batch_size {micro}")
        if self.strategy == "fsdp" and not isinstance(model, Transformer):
            yield Problem("strategy", f"weights of model.kind {kind} cannot be divided. Choose ddp, or a transformer.")
        if self.activation_checkpointing and not isinstance(model, StackSettings):
            text = f"layers of model.kind {kind} cannot be computed again. Leave it out, or choose a transformer."
            yield Problem("activation_checkpointing", text)
        yield from self.compiling(model)

    def compiling(self, model: Backbone) -> Iterator[Problem]:
        """What is in the way of compiling what a training has, a pretraining or a fine-tuning."""
        if self.compile_layers and not isinstance(model, Transformer):
            text = f"layers of model.kind {model.get('kind')} are not compiled. Leave it out, or choose a transformer."
            yield Problem("compile", text)

    @property
    def sharing(self) -> str:
        """Who shares a training, in words. A checkpoint is of one sharing: rows, noise and moments were divided so."""
        return "1 device" if self.ranks == 1 else f"{self.ranks} devices ({self.strategy})"

    @property
    def provenance(self) -> dict[str, Any]:
        """What differs from one device without further means, for a record."""
        found: dict[str, Any] = {"devices": self.ranks, "strategy": self.strategy} if self.ranks > 1 else {}
        found |= {"nodes": self.nodes} if self.nodes > 1 else {}
        return found | ({"activation_checkpointing": True} if self.activation_checkpointing else {})


ALONE = Execution()


def recompute_layers(module: nn.Module) -> None:
    """Lets every stack of transformer layers in a module keep the inputs of its layers alone while it trains."""
    for part in module.modules():
        if isinstance(part, TransformerEncoder):
            part.recompute = True


def compiled(module: nn.Module) -> bool:
    """Lets the layers of every transformer in a module be compiled while it trains, if this machine can.

    One attention and one feed-forward sub-layer are compiled, for all layers and for later runs of the process. What is
    compiled lies in the cache, where other processes find it. Sums have another order, and dropout on a GPU other
    draws, so losses are equal but for rounding. A machine without a compiler says why on standard error, trains without
    and returns False.
    """
    place = cache() / "compiled" / identity(torch.__version__)[:24]
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cached.folder(place)))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.compile(lambda x: 2 * x)(torch.ones(8, device=device))
    except Exception as error:  # of inductor, Triton or the compiler: each has its own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"layers are not compiled ({reason}): the training continues without", file=sys.stderr)
        return False
    for part in module.modules():
        if isinstance(part, TransformerEncoder):
            part.compiled = True
    return True


def units(module: nn.Module) -> Iterator[nn.Module]:
    """The parts of a module whose weights FSDP gathers by themselves; one that several layers share is one part."""
    return (part for part in module.modules() if isinstance(part, SubLayer))
