"""The fine-tuning loop of every task and backbone."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.finetuning.features import FrozenFeatures
from lightning_modules.model.layers import Frozen
from lightning_modules.objectives import LossTerms, Objectives
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.shapes.shape import Head, Scored
from lightning_modules.training.module import TrainingModule
from lightning_modules.training.optimizers import layer_groups, scheduled, trained

TASK = "loss"  # the name of the task's loss among the terms
TEACHER = "teacher"  # that of the divergence from the teacher's answers
PENALTY = "mix_penalty"  # that of the penalty on the weights of layers
_THAWED = 0.1  # the rate of all but the head in chain-thaw, as a share of the head's: 1e-4 and 1e-3


class TaskTeacher(Frozen):
    """A frozen fine-tuned model: no dropout, no gradient."""

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.freeze()

    @torch.no_grad()
    def forward(self, example: Example) -> Tensor:
        """Its outputs for a batch."""
        return self.head(self.backbone(example), example)


class Finetune(TrainingModule):
    """A backbone and a head trained on labelled examples; trains under any ``Trainer``.

    Args:
        backbone: Any encoder that takes an `Example` and returns `Encoded`.
        head: Turns the states of the layers into answers.
        score: Outputs of the dev items, in the order of the dev loader -> scores.
        settings: Optimiser, learning rate and clipping.
        steps: Optimiser steps of the whole training, the length of the schedule.
        objectives: Objectives of pretraining that continue next to the task, with their heads. None for the task alone.
            Training examples have their targets.
        each_epoch: Optimiser steps of an epoch.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        score: Callable[[list[np.ndarray]], Scored],
        settings: FineTuning,
        steps: int,
        objectives: tuple[Objectives, nn.ModuleDict] | None = None,
        each_epoch: int = 1,
    ) -> None:
        super().__init__(settings.clip_norm, "finetuning.clip_norm")
        self.backbone, self.head, self.score = backbone, head, score
        self.settings, self.steps, self.each_epoch = settings, steps, each_epoch
        self.objectives, self.heads = objectives or (None, nn.ModuleDict())
        self.scored: Scored | None = None  # of the last evaluation
        self._teachers: list[TaskTeacher] = []  # in a list, so that weights, checkpoints and optimiser do not have it
        self._outputs: list[np.ndarray] = []  # outputs of the current evaluation, item by item
        self._dev_loss = torch.zeros(2)  # its summed loss and count

    def forward(self, example: Example) -> Tensor:
        """The outputs for a batch."""
        return self.head(self.backbone(example), example)

    def distil_from(self, teacher: "Finetune | TaskTeacher") -> None:
        """Gives the training its teacher, which is no part of the module."""
        self._teachers = [TaskTeacher(teacher.backbone, teacher.head)]

    def terms(self, encoded: Encoded, example: Example) -> LossTerms:
        """The task's loss, that of the teacher's answers, those of objectives, and the penalty on weights of layers."""
        outputs, taught = self.head(encoded, example), self.settings.taught
        total = self.head.loss(outputs, example)
        task = {TASK: (total, self.head.count(example), 1.0 if taught is None else 1.0 - taught.weight)}
        if taught is not None:
            (teacher,) = self._teachers
            theirs = teacher.to(self.device)(example)
            apart = self.head.divergence(outputs, theirs, example, taught.temperature)
            task[TEACHER] = (apart, float(len(outputs)), taught.weight)
        if isinstance(self.backbone, FrozenFeatures) and (penalty := self.backbone.penalty()) is not None:
            task[PENALTY] = (penalty, 1.0, 1.0)
        return task if self.objectives is None else task | self.objectives.loss(self.heads, encoded, example)

    @cached_property
    def layers(self) -> list[list[nn.Parameter]]:
        """Its parameters by depth, from the head to the embeddings."""
        return layer_groups(self)

    def on_train_batch_start(self, batch: Example, batch_idx: int) -> None:
        """Freezes what does not learn. What does is a function of the step alone, so a training resumes exactly."""
        freezing = self.settings.freezing
        if freezing != "none":
            learn = trained(freezing, len(self.layers), self.trainer.global_step, self.steps, self.each_epoch)
            for number, parameters in enumerate(self.layers):
                for parameter in parameters:
                    parameter.requires_grad_(number in learn)

    def on_fit_end(self) -> None:
        """Leaves nothing frozen."""
        if self.settings.freezing != "none":
            self.requires_grad_(True)

    def training_step(self, example: Example, index: int) -> Tensor:
        """The loss of a batch, which is a step of its own."""
        return self.reduced(self.terms(self.backbone(example), example), example.counts)

    def training_loss(self) -> dict[str, float]:
        """Mean loss of each term since the last call, divided in double precision."""
        sums = {name: both.tolist() for name, both in self.read_sums().items()}
        return {name: total / max(1.0, count) for name, (total, count) in sums.items()}

    def on_validation_epoch_start(self) -> None:
        """Discards the outputs of an interrupted evaluation."""
        self._outputs.clear()
        self._dev_loss = torch.zeros(2)

    def validation_step(self, example: Example, index: int) -> None:
        """Collects the outputs, because most metrics are not sums over batches."""
        outputs = self(example)
        total = self.head.loss(outputs, example)
        self._dev_loss += torch.stack([total, total.new_tensor(self.head.count(example))]).cpu()
        self._outputs += [output.float().cpu().numpy() for output in self.head.by_item(outputs, example)]

    def on_validation_epoch_end(self) -> None:
        """Logs the mean loss and the metrics of all dev examples."""
        self.scored = self.score(self._outputs)
        self._outputs = []
        total, count = self._dev_loss.tolist()
        self.log_dict({f"dev.{name}": value for name, value in {"loss": total / count, **self.scored.metrics}.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the loss that was not read yet and the last scores, so that a resumed training is exact."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["scored"] = self.scored and self.scored.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` saved."""
        super().on_load_checkpoint(checkpoint)
        self.scored = Scored(**checkpoint["scored"]) if checkpoint["scored"] else None

    def configure_optimizers(self) -> dict[str, Any]:
        """The optimiser and its schedule."""
        below = _THAWED if self.settings.freezing == "chain_thaw" else 1.0
        optimizer, masking = self.settings.optimizer, self.settings.masking
        if masking is not None:
            optimizer = optimizer.but(peak_lr=optimizer.peak_lr * masking.rate)
        return scheduled(self, optimizer, self.settings.schedule, self.steps, below)
