"""The pretraining loop of every system and objective."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.config import ConfigError, Problem
from lightning_modules.model import Backbone, Transformer
from lightning_modules.model.settings import BackboneModule, only
from lightning_modules.model.weights import ADDED
from lightning_modules.objectives import Objectives
from lightning_modules.objectives.distillation import Taught, Teacher
from lightning_modules.objectives.objective import own_heads
from lightning_modules.objectives.vocabulary_head import vocabulary_head
from lightning_modules.training import ranks, shards
from lightning_modules.training.averaging import MeanWeights, is_nonmonotone
from lightning_modules.training.carries import Carries
from lightning_modules.training.optim import Optimizer, Schedule, check_clipping, clip, scheduled
from lightning_modules.training.terms import Logged, RunningLosses, share

_SUB_LAYER = re.compile(r"(?P<start>backbone\.blocks\.)(?P<layer>\d+)\.(?P<kind>\w+)(?P<rest>\..*)")


class Pretrain(pl.LightningModule):
    """A backbone trained on a system's objectives.

    Built by ``System.build(seed)``; trains under any ``Trainer``. Its examples are already corrupted
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
        heldout_losses: The held-out loss of each evaluation so far, if the optimiser reads it.
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
        super().__init__()
        self.backbone, self.heads = backbone, heads
        self.objectives, self.optimizer_settings, self.schedule = objectives, optimizer, schedule
        self.steps, self.clip_norm = steps, clip_norm
        self.running, self.logged, self.carries = RunningLosses(), Logged(), Carries()
        self.heldout_losses: list[float] = []
        self._positions = 0  # of the last micro-batch
        self._evaluated, self._sums = self.heldout_carries(), dict[str, tuple[float, float]]()
        self._teachers: list[Teacher] = []  # in a list, so that weights, checkpoints and optimiser know nothing of it

    def teach(self, teacher: "Pretrain") -> None:
        """Gives a distillation its teacher: a built system with its weights. It is no part of this module.

        Raises:
            ConfigError: If nothing is distilled here, or the teacher has no head for masked words, or one of another
                vocabulary, or states of another width.
        """
        settings, knob = self.objectives.taught, "objectives.distillation"
        if settings is None:
            raise ConfigError([Problem(knob, "is not in use here, so no teacher is heard")])
        if "mlm" not in getattr(teacher, "heads", {}):
            text = "has no head for masked words: `teach` takes a built system with objectives.mlm"
            raise ConfigError([Problem(f"{knob}.teacher", f"{type(teacher).__name__} {text}")])
        own, other = (vocabulary_head(own_heads(module.heads, "mlm")) for module in (self, teacher))
        pieces, needed = (len(head.get_parameter("bias")) for head in (other, own))
        width, student = (head.get_parameter("dense.weight").shape[1] for head in (other, own))
        if pieces != needed or (settings.cosine and width != (settings.projection or student)):
            text = f"has {pieces:,} pieces and states of {width:,}. Here they are {needed:,}"
            raise ConfigError([Problem(f"{knob}.teacher", f"{text} and {settings.projection or student:,}")])
        self._teachers = [Teacher(teacher.backbone, teacher.heads)]

    def heldout_carries(self) -> Carries:
        """What an evaluation carries, nothing yet: it has its own, and leaves that of training as it is."""
        return Carries(self.heldout_memory)

    def forward(self, example: Example) -> Encoded:
        """Encodes a batch."""
        return self.backbone(example)

    def training_step(self, example: Example, index: int) -> Tensor:
        """The micro-batch's share of the loss."""
        encoded = self.carries.read(self.backbone, example)
        if self.objectives.taught is not None:
            encoded.taught = self._teacher(example)
        terms = self.objectives.loss(self.heads, encoded, example)
        self._positions = example.inputs.ids.shape[1]
        self.running.add(terms)
        self.logged.keep(terms)
        return share(terms, example.counts, self)

    def _teacher(self, example: Example) -> Taught:
        if not self._teachers:
            text = "needs a model with weights: give the module one by `teach`, or `fit` its weights as `teacher`"
            raise ConfigError([Problem("objectives.distillation.teacher", text)])
        (teacher,) = self._teachers
        return teacher.to(self.device)(example)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Logs ``train.loss``, that of each objective and ``lr``, every ``log_every_n_steps`` of the Trainer.

        The rate is by the length of the step where it is to be. The scheduler sets it again for the next one.
        """
        if self.usual_length is not None:
            for group in optimizer.param_groups:
                group["lr"] *= self._positions / self.usual_length
        self.logged.write(self, optimizer, "train.loss")

    def optimizer_step(self, *given: Any, **named: Any) -> None:
        """An update of the weights, which are added to their mean where it has those after this step."""
        super().optimizer_step(*given, **named)
        mean = MeanWeights(self.trainer.optimizers[0])
        is_due = self.trainer.global_step + 1 in self.averaged_steps  # which counts this step only afterwards
        if is_due or (self.optimizer_settings.nonmonotone_interval and mean.is_begun):
            mean.add()

    def training_loss(self) -> dict[str, float]:
        """Mean loss of each term since the last call, over all ranks, each of which calls it.

        It synchronises with the device.
        """
        sums = {name: ranks.summed(both) for name, both in self.running.read().items()}
        return {name: float(both[0] / both[1].clamp(min=1.0)) for name, both in sums.items()}

    def on_validation_start(self) -> None:
        """Begins the held-out text again, and evaluates the mean of the weights if there is one."""
        self._evaluated, self._sums = self.heldout_carries(), {}
        self._exchange()

    def validation_step(self, example: Example, index: int) -> None:
        """Logs the held-out measures as exact means over all predictions of the held-out set."""
        measures = self.objectives.measure(self.heads, self._evaluated.read(self.backbone, example), example)
        for name, (total, count) in measures.items():
            if self.optimizer_settings.nonmonotone_interval and name.endswith("loss"):
                before = self._sums.get(name, (0.0, 0.0))
                self._sums[name] = before[0] + float(total), before[1] + float(count)
            mean = total / count.clamp(min=1)
            self.log(f"heldout.{name}", mean, on_epoch=True, batch_size=int(count), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        """Puts the weights back, before a checkpoint is written, and lets the optimiser average if it is time."""
        self._exchange()
        mean, interval = self._mean(), self.optimizer_settings.nonmonotone_interval
        if mean is None or not interval:
            return
        self.heldout_losses.append(sum(total / max(count, 1.0) for total, count in self._sums.values()))
        if not mean.is_begun and is_nonmonotone(self.heldout_losses, interval):
            mean.begin()

    def on_fit_end(self) -> None:
        """Keeps the mean of the weights, if there is one."""
        if (mean := self._mean()) is not None:
            mean.keep()

    def _exchange(self) -> None:
        if (mean := self._mean()) is not None:
            mean.exchange()

    def _mean(self) -> MeanWeights | None:
        """The mean of the weights of a training, if this is no trial before it."""
        trainer = self.trainer
        fits = trainer.state.fn == "fit" and not trainer.sanity_checking
        return MeanWeights(trainer.optimizers[0]) if fits and trainer.optimizers else None

    def on_validation_end(self) -> None:
        """Drops what the evaluation carried."""
        self._evaluated.forget()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the losses that were not read yet, and what all ranks carry from step to step."""
        checkpoint["running"] = ranks.kept(self.running.state())
        checkpoint["carried"] = self.carries.state(self._of_all_ranks)
        if self.heldout_losses:
            checkpoint["heldout_losses"] = self.heldout_losses

    def _of_all_ranks(self, held: Tensor) -> Tensor:
        """A tensor of each rank, along a new first axis."""
        if self.trainer.world_size == 1:
            return held[None]
        gathered = self.all_gather(held)
        assert isinstance(gathered, Tensor)
        return gathered

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` saved."""
        self.running.restore(ranks.own(checkpoint["running"]))
        self.carries.restore(checkpoint.get("carried", {}), self.global_rank)
        self.heldout_losses = list(checkpoint.get("heldout_losses", []))

    def configure_model(self) -> None:
        """Keeps a part of each weight where the strategy divides them."""
        if self.device_mesh is not None:
            shards.divide(self, self.device_mesh["data_parallel"], "training_step", "validation_step")

    def configure_optimizers(self) -> dict[str, Any]:
        """The system's optimiser and schedule."""
        return scheduled(self, self.optimizer_settings, self.schedule, self.steps)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clips by the system's own norm, which is part of the recipe; another one of the Trainer is refused."""
        check_clipping(gradient_clip_val, gradient_clip_algorithm, self.clip_norm, "training.clip_norm")
        clip(self, self.clip_norm)


def taken_over(weights: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The initial weights of a training that continues another one of the same backbone.

    The backbone and the heads that both have are the ancestor's. Heads that only the ancestor has are left out; those
    that are new keep their random weights, and so do new tables that are added to the word embeddings.

    Args:
        weights: The weights of the ancestor, by name.
        fresh: Those of the new module.

    Raises:
        ConfigError: With every parameter that is missing, superfluous or of another shape.
    """
    heads = {name.split(".")[1] for name in weights if name.startswith("heads.")}

    def is_new(name: str) -> bool:
        added = name.startswith(f"backbone.{ADDED}") and name not in weights
        return added or (name.startswith("heads.") and name.split(".")[1] not in heads)

    extra = [name for name in weights if name not in fresh and not name.startswith("heads.")]
    wrong = [
        Problem(name, "is in the weights that the training starts from, and not in this backbone") for name in extra
    ]
    return filled(fresh, weights, {name: name for name in fresh if not is_new(name)}, wrong)


def filled(
    fresh: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    sources: Mapping[str, str],
    wrong: Iterable[Problem] = (),
) -> dict[str, Tensor]:
    """The weights of a new module, some of them those of another one.

    Args:
        sources: Name of each that is replaced -> name in the other one.
        wrong: What is known to be in the way.

    Raises:
        ConfigError: With that, and with every weight that is missing or of another shape.
    """
    problems = []
    for name, source in sources.items():
        if source not in weights:
            problems.append(Problem(name, "the weights that the training starts from lack it"))
        elif weights[source].shape != fresh[name].shape:
            shapes = _told(fresh[name]), _told(weights[source])
            problems.append(Problem(name, "has shape {}, but {} where it starts from".format(*shapes)))
    if problems := [*problems, *wrong]:
        raise ConfigError(problems)
    return {name: weights[sources[name]] if name in sources else tensor for name, tensor in fresh.items()}


def remapped(
    weights: Mapping[str, Tensor], of_words: Iterable[str], before: Sequence[str], after: Sequence[str]
) -> dict[str, Tensor]:
    """Weights for another vocabulary: rows of pieces that both have, and for new ones the mean over all rows.

    As in the released code of ULMFiT (Howard and Ruder 2018), which takes the mean of biases as well.

    Args:
        of_words: The names of those that have a row, or a number, for each piece.
        before: The pieces that they are for.
        after: The pieces of the other vocabulary.
    """
    known = {piece: number for number, piece in enumerate(before)}
    places = torch.tensor([known.get(piece, -1) for piece in after])
    moved = dict(weights)
    for name in set(of_words) & weights.keys():
        rows = weights[name]
        mean = rows.float().mean(0, keepdim=True).to(rows.dtype)
        moved[name] = torch.cat([rows, mean])[places]  # the last one for what is new
    return moved


def _told(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a single number"


def stacked(
    weights: Mapping[str, Tensor], shallower: Backbone, deeper: Backbone, names: Iterable[str]
) -> dict[str, Tensor]:
    """The initial weights of a deeper network: the layers of a shallower one, repeated.

    Layer i starts from layer i modulo the shallower depth (Gong et al. 2019, section 3.3, who double the depth).
    Sub-layers shared by a group start from those of the same group; with one group this is plain copying, as for
    ALBERT's depths (Lan et al. 2020, section 4.8).

    Args:
        shallower: Its settings, which determine the layers that own shared sub-layers.
        deeper: The settings of the deeper network, equal except for the depth.
        names: Names of the deeper network's parameters.

    Raises:
        ConfigError: For networks that are no transformers.
        KeyError: When the deeper network has parts that the shallower one lacks.
    """
    ours, theirs = (only(model, Transformer, "training.warm_start") for model in (deeper, shallower))
    initial = {}
    for name in names:
        source = name
        if layer := _SUB_LAYER.match(name):
            place = _source(int(layer["layer"]), layer["kind"], theirs, ours)
            source = f"{layer['start']}{place}.{layer['kind']}{layer['rest']}"
        initial[name] = weights[source]
    return initial


def _source(layer: int, kind: str, shallower: Transformer, deeper: Transformer) -> int:
    """The block of the shallower network that initialises a block of the deeper one; blocks repeat in order."""
    theirs, ours = (sorted({model.owners(i)[kind] for i in range(model.num_layers)}) for model in (shallower, deeper))
    return theirs[ours.index(layer) % len(theirs)]
