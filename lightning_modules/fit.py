"""One pretraining, start to finish: Lightning's Trainer with the callbacks that make it recordable and resumable."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from safetensors.torch import load_file, save

from .checkpoint import AtomicCheckpoints, RandomState
from .closing import layer_similarity, measures
from .data.loader import PretrainingData
from .files import write_atomically
from .pretrain import Pretrain, stacked
from .system import System

CHECKPOINT = "last.ckpt"
WEIGHTS = "weights.safetensors"
_PRECISION = {"fp32": "32-true", "bf16": "bf16-mixed"}


@dataclass
class Progress:
    """Where a training stands."""

    step: int
    steps: int
    loss: float
    tokens_per_second: float


@dataclass
class Fitted:
    """What a training leaves: final metrics, a curve of at most 64 points, statistics by layer, and what it cost."""

    metrics: dict[str, float | bool] = field(default_factory=dict)
    curve: dict[str, list[float]] = field(default_factory=dict)
    layers: dict[str, list[float]] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)


class Diverged(Exception):
    """The training loss became NaN or infinite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the training loss was not finite at step {step}")
        self.step = step


class Interrupted(Exception):
    """The training was asked to stop; a checkpoint from which it goes on has been written."""


class Recorder(pl.Callback):
    """Keeps the curve, watches for divergence, reports progress, writes checkpoints, and stops when asked.

    Nothing here waits for the device at every step: the loss is read at ``tick`` steps, 64 times a training or
    more often where that is cheap.
    """

    def __init__(
        self,
        system: System,
        checkpoint: Path,
        on_progress: Callable[[Progress], None],
        stop: Callable[[], bool],
        checkpoint_seconds: float,
    ) -> None:
        self.system, self.checkpoint = system, checkpoint
        self.on_progress, self.stop = on_progress, stop
        self.checkpoint_seconds = checkpoint_seconds
        self.curve: dict[str, list[float]] = {"step": [], "tokens": []}
        self.tick = max(1, min(50, system.training.steps // 64))
        self.seconds = 0.0  # of training, over all resumptions
        self._since = self._saved = time.monotonic()
        self._window: dict[str, list[float]] = {}
        self._first_step = self._step = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed training must go on from."""
        return {"curve": self.curve, "seconds": self.elapsed(), "window": self._window}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` saved."""
        self.curve, self.seconds, self._window = (state_dict[key] for key in ("curve", "seconds", "window"))

    def elapsed(self) -> float:
        """Seconds of training so far."""
        return self.seconds + time.monotonic() - self._since

    def on_train_start(self, trainer: pl.Trainer, module: Pretrain) -> None:
        """Starts the clock."""
        self._since = self._saved = time.monotonic()
        self._first_step = self._step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, module: Pretrain, *_: Any) -> None:
        """After each micro-batch; acts at the end of an optimiser step, at a tick, or when asked to stop."""
        step = trainer.global_step
        if step == self._step:  # a micro-batch that is accumulated
            return
        self._step = step
        if step % self.tick == 0 or step == self.system.training.steps:
            self._read(step, module)
        if step % measured_every(self.system):
            self._pause(trainer)  # else once the measurement is made, so that a resumed training has it

    def _pause(self, trainer: pl.Trainer) -> None:
        """Writes a checkpoint when it is time, or when asked to stop."""
        stop = self.stop()
        if stop or time.monotonic() - self._saved > self.checkpoint_seconds:
            trainer.save_checkpoint(self.checkpoint)
            self._saved = time.monotonic()
        if stop:
            raise Interrupted

    def _read(self, step: int, module: Pretrain) -> None:
        losses = module.training_loss()
        for name, value in losses.items():
            if not value - value == 0.0:  # NaN or infinite
                raise Diverged(step)
            self._window.setdefault(f"train.{name}", []).append(value)
        done = (step - self._first_step) * self.system.tokens_per_step()
        speed = done / max(1e-9, time.monotonic() - self._since)
        self.on_progress(Progress(step, self.system.training.steps, sum(losses.values()), speed))

    def on_validation_end(self, trainer: pl.Trainer, module: Pretrain) -> None:
        """One point of the curve: held-out measures, and the mean training losses since the last point."""
        if trainer.sanity_checking or not trainer.global_step:
            return
        point = {"step": trainer.global_step, "tokens": trainer.global_step * self.system.tokens_per_step()}
        point |= {name: sum(values) / len(values) for name, values in self._window.items()}
        point |= {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("heldout.")}
        self._window = {}
        for name, value in point.items():
            self.curve.setdefault(name, []).append(value)
        if trainer.state.fn == "fit":
            self._pause(trainer)


def measured_every(system: System) -> int:
    """Steps between two measurements on held-out text."""
    return -(-system.training.steps // system.evaluation.points)


def fit(
    system: System,
    seed: int,
    folder: Path,
    *,
    start: Path | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
) -> Fitted:
    """Trains a system from a seed, going on from ``folder``'s checkpoint where there is one.

    Leaves the weights in ``folder`` as safetensors.

    Args:
        system: What to train.
        seed: Initialisation, dropout, data order and corruption all follow from it.
        folder: Where checkpoint and weights are kept.
        start: Weights of a shallower run that this one is stacked from.
        on_progress: Called some 64 times or more.
        stop: Asked after every step; True writes a checkpoint and raises.
        checkpoint_seconds: Time between checkpoints.

    Raises:
        Diverged: When the loss is no longer finite.
        Interrupted: When ``stop`` said so.
    """
    checkpoint = folder / CHECKPOINT
    recorder = Recorder(system, checkpoint, on_progress, stop, checkpoint_seconds)
    module, data = system.build(seed), system.data_module(seed)
    if start is not None:
        module.load_state_dict(stacked(load_file(start), module.state_dict()))
    trainer = _trainer(system, [recorder, RandomState()], folder)
    torch.manual_seed(seed)  # dropout
    trainer.fit(module, data, ckpt_path=checkpoint if checkpoint.exists() else None)
    if not recorder.curve["step"] or recorder.curve["step"][-1] < system.training.steps:
        trainer.validate(module, data, verbose=False)
    fitted = _fitted(system, recorder, recorder.elapsed(), data.baselines())
    module.to(trainer.strategy.root_device)  # Lightning has brought it home
    bf16 = system.training.precision == "bf16"
    fitted.layers = layer_similarity(module, data.heldout, bf16)
    if system.evaluation.pairs:
        fitted.metrics |= _on_pairs(module, data, system, bf16)
    write_atomically(folder / WEIGHTS, lambda file: _save_weights(module, file))
    return fitted


def _on_pairs(module: Pretrain, data: PretrainingData, system: System, bf16: bool) -> dict[str, float]:
    """Accuracies of the one sentence head on pairs of both constructions, and the masked-LM measures on ordered text.

    The head is asked the question it was trained on and the other one alike: label 1 is "does not follow" in both
    (Lan et al. 2020, Table 5, which does not say how it asked).
    """
    count = system.evaluation.pairs
    found = {f"heldout.{name}": value for name, value in data.pair_baselines(count).items()}
    for name, negatives in (("nsp", "random"), ("sop", "swapped")):
        examples = data.heldout_pairs(negatives, count, system.prepare_pairs())
        seen = measures(module, examples, bf16)
        if "sentence_accuracy" in seen:
            found[f"heldout.{name}_accuracy"] = seen["sentence_accuracy"]
        found |= {f"heldout.pairs_{m}": seen[m] for m in ("loss", "accuracy") if name == "sop"}
    return found


def _trainer(system: System, callbacks: list[pl.Callback], folder: Path) -> pl.Trainer:
    training = system.training
    micro = training.batch_size // (training.micro_batch_size or training.batch_size)
    return pl.Trainer(
        max_steps=training.steps,
        max_epochs=-1,
        accumulate_grad_batches=micro,
        precision=_PRECISION[training.precision],
        val_check_interval=measured_every(system) * micro,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        callbacks=callbacks,
        plugins=[AtomicCheckpoints()],
        accelerator="auto",
        devices=1,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _save_weights(module: Pretrain, file: Any) -> None:

    file.write(save({name: tensor.contiguous() for name, tensor in module.state_dict().items()}))


def _fitted(system: System, recorder: Recorder, seconds: float, baselines: dict[str, float]) -> Fitted:
    curve, steps = recorder.curve, system.training.steps
    metrics: dict[str, float | bool] = {n: v[-1] for n, v in curve.items() if n not in ("step", "tokens")}
    metrics |= {f"heldout.{name}": value for name, value in baselines.items()}
    metrics["heldout.plateau"] = metrics["heldout.loss"] > metrics["heldout.bigram_loss"]
    tokens = steps * system.tokens_per_step()
    cost = {
        "seconds": seconds,
        "tokens": float(tokens),
        "flops": steps * system.flops_per_step(),
        "tokens_per_second": tokens / seconds,
        "parameters": float(system.parameters()),
    }
    return Fitted(metrics=metrics, curve=curve, cost=cost)
