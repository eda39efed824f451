"""The fine-tuning loop of every task and backbone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lightning_modules.batch import Example
from lightning_modules.tasks.shapes.shape import Head, Scored
from lightning_modules.training.optim import Optimizer, Schedule, clip, scheduled


class Finetune(pl.LightningModule):
    """A backbone and a head trained on labelled examples; trains under any ``Trainer``.

    Args:
        backbone: Any encoder that takes an `Example` and returns `Encoded`.
        head: Turns the states of the last layer into answers.
        score: Outputs of the dev items, in the order of the dev loader -> scores.
        optimizer: Settings of the optimiser.
        schedule: Settings of the learning rate.
        steps: Optimiser steps of the whole training, the length of the schedule.
        clip_norm: Maximum global gradient norm; 0 disables clipping.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        score: Callable[[list[np.ndarray]], Scored],
        optimizer: Optimizer,
        schedule: Schedule,
        steps: int,
        clip_norm: float,
    ) -> None:
        super().__init__()
        self.backbone, self.head, self.score = backbone, head, score
        self.optimizer_settings, self.schedule = optimizer, schedule
        self.steps, self.clip_norm = steps, clip_norm
        self.running = torch.zeros(2)  # summed loss and count since the last read
        self.scored: Scored | None = None  # of the last evaluation
        self._outputs: list[np.ndarray] = []  # outputs of the current evaluation, item by item
        self._dev_loss = torch.zeros(2)  # its summed loss and count

    def forward(self, example: Example) -> Tensor:
        """The outputs for a batch."""
        return self.head(self.backbone(example).last, example)

    def _summed(self, outputs: Tensor, example: Example) -> Tensor:
        """Summed loss and count ``[2]``."""
        total = self.head.loss(outputs, example)
        return torch.stack([total, total.new_tensor(self.head.count(example))])

    def training_step(self, example: Example, index: int) -> Tensor:
        """The mean loss of a batch."""
        summed = self._summed(self(example), example)
        self.running = self.running.to(summed.device) + summed.detach()
        return summed[0] / summed[1]

    def training_loss(self) -> dict[str, float]:
        """Mean loss over the examples since the last call. It synchronises with the device."""
        total, count = self.running.tolist()
        self.running = torch.zeros(2)
        return {"loss": total / count}

    def on_validation_epoch_start(self) -> None:
        """Discards the outputs of an interrupted evaluation."""
        self._outputs.clear()
        self._dev_loss = torch.zeros(2)

    def validation_step(self, example: Example, index: int) -> None:
        """Collects the outputs, because most metrics are not sums over batches."""
        outputs = self(example)
        self._dev_loss += self._summed(outputs, example).cpu()
        self._outputs += [output.float().cpu().numpy() for output in self.head.by_item(outputs, example)]

    def on_validation_epoch_end(self) -> None:
        """Logs the mean loss and the metrics of all dev examples."""
        self.scored = self.score(self._outputs)
        self._outputs = []
        total, count = self._dev_loss.tolist()
        self.log_dict({f"dev.{name}": value for name, value in {"loss": total / count, **self.scored.metrics}.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the loss that was not read yet and the last scores, so that a resumed training is exact."""
        checkpoint["running"] = self.running.tolist()
        checkpoint["scored"] = self.scored and self.scored.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` saved."""
        self.running = torch.tensor(checkpoint["running"])
        self.scored = Scored(**checkpoint["scored"]) if checkpoint["scored"] else None

    def configure_optimizers(self) -> dict[str, Any]:
        """The optimiser and its schedule."""
        return scheduled(self, self.optimizer_settings, self.schedule, self.steps)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clips by the recipe's own norm and ignores the Trainer's setting."""
        clip(self, self.clip_norm)
