"""The only fine-tuning loop: every task, every backbone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor, nn

from .batch import Example, Target
from .optim import Optimizer, Schedule, scheduled

_STD = 0.02  # of fresh weights, cut at two standard deviations as in BERT


class TextHead(nn.Module):
    """One answer a text: BERT's pooler tanh(W h + b), dropout, a linear layer (Devlin et al. 2019, section 4.1).

    Args:
        hidden_size: Width d of the backbone.
        outputs: Numbers of an answer: one logit a class, or one in regression.
        dropout: Dropout on the pooled vector.
    """

    def __init__(self, hidden_size: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.pooler = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, outputs)
        for layer in (self.pooler, self.output):
            nn.init.trunc_normal_(layer.weight, std=_STD, a=-2 * _STD, b=2 * _STD)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The answers, from the states at the positions that stand for the texts."""
        return self.output(self.dropout(torch.tanh(self.pooler(hidden))))


def summed_loss(outputs: Float[Tensor, "n k"], labels: Num[Tensor, " n"]) -> Tensor:
    """The sum of cross-entropies in nats for classes, of squared errors for real numbers."""
    if labels.is_floating_point():
        return F.mse_loss(outputs[:, 0].float(), labels, reduction="sum")
    return F.cross_entropy(outputs.float(), labels, reduction="sum")


class Finetune(pl.LightningModule):
    """A backbone and a head trained on labelled examples; trains under any ``Trainer``.

    Args:
        backbone: Any encoder that takes an `Example` and returns `Encoded`.
        head: Turns the states at a target's positions into answers.
        score: Outputs ``[n k]`` and labels ``[n]`` of the dev examples -> metrics by name.
        optimizer: Settings of the optimiser.
        schedule: Settings of the learning rate.
        steps: Optimiser steps of the whole training, which the schedule spans.
        clip_norm: Largest global gradient norm; 0 leaves gradients alone.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        score: Callable[[np.ndarray, np.ndarray], dict[str, float]],
        optimizer: Optimizer,
        schedule: Schedule,
        steps: int,
        clip_norm: float,
    ) -> None:
        super().__init__()
        self.backbone, self.head, self.score = backbone, head, score
        self.optimizer_settings, self.schedule = optimizer, schedule
        self.steps, self.clip_norm = steps, clip_norm
        self.running = torch.zeros(2)  # summed loss and count since it was last read
        self._answered: list[tuple[Tensor, Tensor]] = []  # outputs and labels of the evaluation under way

    def forward(self, example: Example) -> Float[Tensor, "n k"]:
        """The answers for a batch."""
        last = self.backbone(example).last
        return self.head(last.flatten(0, 1)[self._target(example).where])

    @staticmethod
    def _target(example: Example) -> Target:
        (target,) = example.targets.values()
        return target

    def training_step(self, example: Example, index: int) -> Tensor:
        """The mean loss of a batch."""
        target = self._target(example)
        total, count = summed_loss(self(example), target.ids), target.count()
        self.running = self.running.to(total.device) + torch.stack([total.detach(), total.new_tensor(count)])
        return total / count

    def training_loss(self) -> dict[str, float]:
        """Mean loss over the examples since the last call. Waits for the device: not for every step."""
        total, count = self.running.tolist()
        self.running = torch.zeros(2)
        return {"loss": total / count}

    def on_validation_epoch_start(self) -> None:
        """Forgets the answers of an evaluation that was broken off."""
        self._answered.clear()

    def validation_step(self, example: Example, index: int) -> None:
        """Keeps the answers: correlations have no sum over batches."""
        self._answered.append((self(example).float(), self._target(example).ids))

    def on_validation_epoch_end(self) -> None:
        """The loss and the metrics of all dev examples."""
        outputs, labels = (torch.cat(parts) for parts in zip(*self._answered, strict=True))
        self._answered.clear()
        found = {"loss": float(summed_loss(outputs, labels)) / len(labels)}
        found |= self.score(outputs.cpu().numpy(), labels.cpu().numpy())
        self.log_dict({f"dev.{name}": value for name, value in found.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the loss that was not read yet, so that a resumed training's curve is that of a straight one."""
        checkpoint["running"] = self.running.tolist()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` kept."""
        self.running = torch.tensor(checkpoint["running"])

    def configure_optimizers(self) -> dict[str, Any]:
        """The optimiser, its rate set at each step."""
        return scheduled(self, self.optimizer_settings, self.schedule, self.steps)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clips by the recipe's own norm, whatever the Trainer was told."""
        if self.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters(), self.clip_norm)
