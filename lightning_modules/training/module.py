"""The LightningModules: what trainings share, and the pretraining of every system and objective."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.config import ConfigError, Problem
from lightning_modules.model.settings import BackboneModule
from lightning_modules.objectives import LossTerms, Objectives, own_heads
from lightning_modules.objectives.distillation import Teacher
from lightning_modules.objectives.heads import vocabulary_head
from lightning_modules.training import ranks
from lightning_modules.training.callbacks import WeightAveraging
from lightning_modules.training.optimizers import Optimizer, Schedule, clip, scheduled
from lightning_modules.training.recurrent_state import RecurrentState


def step_loss(terms: LossTerms, counts: Mapping[str, float], batches: int = 1) -> Tensor:
    """The loss of one of the batches of an optimiser step, whose mean over them is the loss of the step.

    Each term is the sum over its mean count in a batch. So the gradient equals that of the undivided step, however many
    predictions each micro-batch and rank has: Lightning takes the mean over both.

    Args:
        counts: The count of each term in the whole step; empty for a step of one batch.
        batches: Batches of the step, over micro-batches and ranks.
    """
    parts = []
    for name, (total, count, weight) in terms.items():
        whole = (counts or {name: count})[name] or 1.0  # nothing to predict in a step adds nothing
        parts.append(total * (weight * (batches if counts else 1) / whole))
    return torch.stack(parts).sum()


class TrainingModule(pl.LightningModule):
    """What pretraining and fine-tuning share: the mean of each loss term for curves and loggers, and clipping.

    Args:
        clip_norm: Maximum global gradient norm; 0 disables clipping.
        clip_knob: The knob that sets it.
        logged_total: The name under which loggers get the weighted sum of all terms; empty for none.
    """

    def __init__(self, clip_norm: float, clip_knob: str, logged_total: str = "") -> None:
        super().__init__()
        self.clip_norm, self._clip_knob, self._logged_total = clip_norm, clip_knob, logged_total
        self._terms: LossTerms = {}  # of the last micro-batch
        self._sums: dict[str, Tensor] = {}  # summed loss and count of each term since the last read ``[2]``

    def reduced(self, terms: LossTerms, counts: Mapping[str, float]) -> Tensor:
        """The loss of a micro-batch, see `step_loss`. Its terms are added to the running sums, on their device."""
        self._terms = {name: (total.detach(), count, weight) for name, (total, count, weight) in terms.items()}
        for name, (total, count, _) in self._terms.items():
            both = torch.stack([total.float(), total.new_tensor(count, dtype=torch.float32)])
            self._sums[name] = self._sums[name].to(both.device) + both if name in self._sums else both
        batches = self.trainer.accumulate_grad_batches * self.trainer.world_size if counts else 1
        return step_loss(terms, counts, batches)

    def read_sums(self) -> dict[str, Tensor]:
        """Summed loss and count of each term since the last call ``[2]``, over all ranks, each of which calls it."""
        sums, self._sums = self._sums, {}
        return {name: ranks.summed(both) for name, both in sums.items()}

    def training_loss(self) -> dict[str, float]:
        """Mean loss of each term since the last call. It synchronises with the device."""
        return {name: float(both[0] / both[1].clamp(min=1.0)) for name, both in self.read_sums().items()}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Logs the loss of each term in the last micro-batch, their sum and ``lr``, of parameter groups the highest.

        It does so every ``log_every_n_steps`` of the Trainer. Between these steps nothing is read from the device.
        """
        every = self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]  (set by a connector)
        if not every or (self.trainer.global_step + 1) % every:
            return
        means = {name: total / max(count, 1.0) for name, (total, count, _) in self._terms.items()}
        logged: dict[str, Any] = {f"train.{name}": mean for name, mean in means.items()}
        if self._logged_total:
            weighted = [means[name] * weight for name, (_, _, weight) in self._terms.items()]
            logged[self._logged_total] = torch.stack(weighted).sum()
        logged["lr"] = max(group["lr"] for group in optimizer.param_groups)
        self.log_dict(logged, on_step=True, on_epoch=False)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the sums that were not read yet, so that a resumed training has the curve of an uninterrupted one."""
        checkpoint["running"] = ranks.kept({name: both.tolist() for name, both in self._sums.items()})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` saved."""
        self._sums = {name: torch.tensor(both) for name, both in ranks.own(checkpoint["running"]).items()}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clips by the norm of the recipe, which is part of what a run is; another one of the Trainer is refused."""
        norm, knob = self.clip_norm, self._clip_knob
        if gradient_clip_algorithm == "value":
            text = f"the Trainer asks for clipping by value, but gradients are clipped by their norm, {knob}"
            raise ConfigError([Problem("gradient_clip_algorithm", f"{text}. Leave it out of the Trainer.")])
        if gradient_clip_val not in (None, norm):
            text = f"the Trainer asks for {gradient_clip_val:g}, but gradients are clipped by {knob}, which is {norm:g}"
            raise ConfigError([Problem("gradient_clip_val", f"{text}. Leave it out of the Trainer, and set {knob}.")])
        clip(self, norm)


class Pretrain(TrainingModule):
    """A backbone trained on a system's objectives.

    Built by ``System.build(seed)``; trains under any ``Trainer``. Its examples are already masked
    (`System.data_module`), so a step is only forward, loss and backward.

    Args:
        backbone: Any encoder that takes an `Example` and returns `Encoded`.
        objectives: The objectives, each with its head.
        heads: The parameters of the heads, by objective.
        schedule: Settings of the learning rate.
        steps: Optimiser steps of the whole training, the length of the schedule.
        clip_norm: Maximum global gradient norm; 0 disables clipping.

    Attributes:
        heldout_memory: Positions that the model remembers on held-out text; by default as many as in training.
        usual_length: Positions of a step at which the rate is that of the schedule, which is multiplied by those of the
            step over these; None for a rate that does not depend on them.
        averaged_steps: The numbers of steps after which the weights are added to a mean.
    """

    heldout_memory: int | None = None
    usual_length: int | None = None
    averaged_steps: range = range(0)

    def __init__(
        self,
        backbone: BackboneModule,
        objectives: Objectives,
        heads: nn.ModuleDict,
        optimizer: Optimizer,
        schedule: Schedule,
        steps: int,
        clip_norm: float,
    ) -> None:
        super().__init__(clip_norm, "training.clip_norm", "train.loss")
        self.backbone, self.heads = backbone, heads
        self.objectives, self.optimizer_settings, self.schedule, self.steps = objectives, optimizer, schedule, steps
        self.state, self._heldout_state = RecurrentState(), RecurrentState()
        self._length = 0  # positions of the last micro-batch
        self._teachers: list[Teacher] = []  # in a list, so that weights, checkpoints and optimiser know nothing of it

    def forward(self, example: Example) -> Encoded:
        """Encodes a batch."""
        return self.backbone(example)

    def training_step(self, example: Example, index: int) -> Tensor:
        """The loss of a micro-batch."""
        encoded = self.state.encode(self.backbone, example)
        if self.objectives.distilled is not None:
            encoded.teacher = self._teacher().to(self.device)(example)
        self._length = example.inputs.ids.shape[1]
        return self.reduced(self.objectives.loss(self.heads, encoded, example), example.counts)

    def validation_step(self, example: Example, index: int) -> None:
        """Logs the held-out measures as exact means over all predictions of the held-out set."""
        encoded = self._heldout_state.encode(self.backbone, example)
        for name, (total, count) in self.objectives.measure(self.heads, encoded, example).items():
            mean = total / count.clamp(min=1)
            self.log(f"heldout.{name}", mean, on_epoch=True, batch_size=int(count), sync_dist=True)

    def configure_optimizers(self) -> dict[str, Any]:
        """The system's optimiser and schedule."""
        return scheduled(self, self.optimizer_settings, self.schedule, self.steps)

    def configure_callbacks(self) -> list[pl.Callback]:
        """The averaging of weights, if there is one."""
        interval = self.optimizer_settings.nonmonotone_interval
        return [WeightAveraging(self.averaged_steps, interval)] if self.averaged_steps or interval else []

    def configure_model(self) -> None:
        """Keeps a part of each weight where the strategy divides them."""
        if self.device_mesh is not None:
            ranks.divide(self, self.device_mesh["data_parallel"], "training_step", "validation_step")

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Sets the rate by the length of the step where it depends on it. The scheduler sets that of the next one."""
        if self.usual_length is not None:
            for group in optimizer.param_groups:
                group["lr"] *= self._length / self.usual_length
        super().on_before_optimizer_step(optimizer)

    def heldout_state(self) -> RecurrentState:
        """The recurrent state of an evaluation, nothing yet: it leaves that of training as it is."""
        return RecurrentState(self.heldout_memory)

    def on_validation_start(self) -> None:
        """Begins the held-out text again."""
        self._heldout_state = self.heldout_state()

    def on_validation_end(self) -> None:
        """Drops the state of the evaluation."""
        self._heldout_state = self.heldout_state()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the losses that were not read yet, and the recurrent states of all ranks."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["carried"] = self.state.state_dict(self._of_all_ranks)

    def _of_all_ranks(self, held: Tensor) -> Tensor:
        """A tensor of each rank, along a new first axis."""
        gathered = held[None] if self.trainer.world_size == 1 else self.all_gather(held)
        assert isinstance(gathered, Tensor)
        return gathered

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` saved."""
        super().on_load_checkpoint(checkpoint)
        self.state.load_state_dict(checkpoint.get("carried", {}), self.global_rank)

    def distil_from(self, teacher: "Pretrain") -> None:
        """Gives a distillation its teacher: a built system with its weights. It is no part of this module.

        Raises:
            ConfigError: If nothing is distilled here, or the teacher has no head for masked words, or one of another
                vocabulary, or states of another width.
        """
        settings, knob = self.objectives.distilled, "objectives.distillation"
        if settings is None:
            raise ConfigError([Problem(knob, "is not in use here, so no teacher is heard")])
        if "mlm" not in getattr(teacher, "heads", {}):
            text = "has no head for masked words: `distil_from` takes a built system with objectives.mlm"
            raise ConfigError([Problem(f"{knob}.teacher", f"{type(teacher).__name__} {text}")])
        own, other = (vocabulary_head(own_heads(module.heads, "mlm")) for module in (self, teacher))
        pieces, needed = (len(head.get_parameter("bias")) for head in (other, own))
        width, student = (head.get_parameter("dense.weight").shape[1] for head in (other, own))
        if pieces != needed or (settings.cosine and width != (settings.projection or student)):
            text = f"has {pieces:,} pieces and states of {width:,}. Here they are {needed:,}"
            raise ConfigError([Problem(f"{knob}.teacher", f"{text} and {settings.projection or student:,}")])
        self._teachers = [Teacher(teacher.backbone, teacher.heads)]

    def _teacher(self) -> Teacher:
        if not self._teachers:
            text = "needs a model with weights: give the module one by `distil_from`, or `fit` its weights as `teacher`"
            raise ConfigError([Problem("objectives.distillation.teacher", text)])
        return self._teachers[0]
