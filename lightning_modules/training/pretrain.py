"""The only pretraining loop: every system, every objective."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lightning_modules.backbones import Transformer
from lightning_modules.batch import Encoded, Example
from lightning_modules.objectives import Objectives
from lightning_modules.training.optim import Optimizer, Schedule, clip, scheduled

_SUB_LAYER = re.compile(r"(?P<start>backbone\.blocks\.)(?P<layer>\d+)\.(?P<kind>\w+)(?P<rest>\..*)")


class Pretrain(pl.LightningModule):
    """A backbone trained on a system's objectives.

    Built by ``System.build(seed)``; trains under any ``Trainer``. The examples it is given are corrupted
    already (`System.data_module`), so a step is forward, loss, backward and nothing else.

    Args:
        backbone: Any encoder that takes an `Example` and returns `Encoded`.
        objectives: What is asked of it; each brings its head.
        heads: The objectives' parameters, by objective.
        optimizer: Settings of the optimiser.
        schedule: Settings of the learning rate.
        steps: Optimiser steps of the whole training, which the schedule spans.
        clip_norm: Largest global gradient norm; 0 leaves gradients alone.
    """

    def __init__(
        self,
        backbone: nn.Module,
        objectives: Objectives,
        heads: nn.ModuleDict,
        optimizer: Optimizer,
        schedule: Schedule,
        steps: int,
        clip_norm: float,
    ) -> None:
        super().__init__()
        self.backbone, self.heads = backbone, heads
        self.objectives, self.optimizer_settings, self.schedule = objectives, optimizer, schedule
        self.steps, self.clip_norm = steps, clip_norm
        self.running: dict[str, Tensor] = {}  # summed loss and count of each term since it was last read

    def forward(self, example: Example) -> Encoded:
        """Encodes a batch."""
        return self.backbone(example)

    def training_step(self, example: Example, index: int) -> Tensor:
        """The step's share of the loss: sums over the counts of the whole optimiser step.

        Lightning divides by the number of accumulated micro-batches and averages over ranks; both are
        multiplied back, so the gradient equals that of the undivided batch whatever the split.
        """
        terms = self.objectives.loss(self.heads, self.backbone(example), example)
        share = self.trainer.accumulate_grad_batches * self.trainer.world_size if example.counts else 1
        parts = []
        for name, (total, count, weight) in terms.items():
            parts.append(total * (weight * share / example.counts.get(name, count)))
            self._keep(name, total.detach(), count)
        return torch.stack(parts).sum()

    def _keep(self, name: str, total: Tensor, count: Tensor) -> None:
        both = torch.stack([total.float(), count.to(total.device)])
        self.running[name] = self.running[name].to(both.device) + both if name in self.running else both

    def training_loss(self) -> dict[str, float]:
        """Mean loss of each term over the steps since the last call. Waits for the device: not for every step."""
        means = {name: float(both[0] / both[1]) for name, both in self.running.items()}
        self.running.clear()
        return means

    def validation_step(self, example: Example, index: int) -> None:
        """Held-out measures, exact means over all predictions of the held-out set."""
        measures = self.objectives.measure(self.heads, self.backbone(example), example)
        for name, (total, count) in measures.items():
            self.log(
                f"heldout.{name}", total / count, on_epoch=True, batch_size=int(count), sync_dist=True, logger=False
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the losses that were not read yet, so that a resumed training's curve is that of a straight one."""
        checkpoint["running"] = {name: both.tolist() for name, both in self.running.items()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` kept."""
        self.running = {name: torch.tensor(both) for name, both in checkpoint["running"].items()}

    def configure_optimizers(self) -> dict[str, Any]:
        """The system's optimiser, its rate set at each optimiser step."""
        return scheduled(self, self.optimizer_settings, self.schedule, self.steps)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clips by the system's own norm, whatever the Trainer was told: it is part of the recipe."""
        clip(self, self.clip_norm)


def stacked(
    weights: Mapping[str, Tensor], shallower: Transformer, deeper: Transformer, wanted: Iterable[str]
) -> dict[str, Tensor]:
    """The wanted weights of a deeper network from those of a shallower one: its layers again and again.

    Layer i starts from layer i modulo the shallower depth (Gong et al. 2019, section 3.3, who double the depth). What
    a group of layers shares starts from what the same group shares; with one group this is plain copying, as for
    ALBERT's depths (Lan et al. 2020, section 4.8).

    Args:
        weights: The shallower network's, by name.
        shallower: Its settings, which say which of its layers holds a shared sub-layer.
        deeper: The settings of the other, the same but for the depth.
        wanted: Names of the deeper network's parameters.

    Raises:
        KeyError: When the deeper network has parts that the shallower one lacks.
    """
    found = {}
    for name in wanted:
        source = name
        if layer := _SUB_LAYER.match(name):
            place = _source(int(layer["layer"]), layer["kind"], shallower, deeper)
            source = f"{layer['start']}{place}.{layer['kind']}{layer['rest']}"
        found[name] = weights[source]
    return found


def _source(layer: int, kind: str, shallower: Transformer, deeper: Transformer) -> int:
    """Which block of the shallower network holds what a block of the deeper one starts from: each network's in turn."""
    theirs, ours = (sorted({model.owners(i)[kind] for i in range(model.num_layers)}) for model in (shallower, deeper))
    return theirs[ours.index(layer) % len(theirs)]
