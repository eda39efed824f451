"""The callbacks of trainings: curve and checkpoints, averaged weights, states of random generators."""

# torch does not export its _foreach functions
# pyright: reportPrivateImportUsage=false
import ast
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint

from lightning_modules.training import ranks

CHECKPOINT = "last.ckpt"


@dataclass
class Progress:
    """The progress of a training, or of a measurement."""

    step: int  # steps made; of a measurement, tokens read
    steps: int  # in all
    loss: float | None  # of the last step; None in a measurement
    tokens_per_second: float
    again: str = ""  # the run that is trained, if another one needs its weights a second time


@dataclass
class Fitted:
    """The results of a training."""

    metrics: dict[str, float | bool] = field(default_factory=dict)  # at the end
    curve: dict[str, list[float]] = field(default_factory=dict)  # of at most 64 points
    layers: dict[str, list[float]] = field(default_factory=dict)  # statistics by layer
    examples: dict[str, str] = field(default_factory=dict)  # packed scores
    sums: dict[str, Any] = field(default_factory=dict)  # held-out losses by sequence, for a file of their own
    cost: dict[str, float] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)  # kinds, in order: several if it was resumed on another one
    execution: dict[str, Any] = field(default_factory=dict)  # what was decided there, also of scoring translations


class Diverged(Exception):
    """A loss, of training or measured, became NaN or infinite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss was not finite at step {step}")
        self.step = step


class Interrupted(Exception):
    """The training received a request to stop and has written a checkpoint to resume from."""


@dataclass(eq=False)
class Recorder(Checkpoint):
    """Keeps the curve, detects divergence, reports progress, writes checkpoints, and stops on request.

    It does not synchronise with the device at every step: the loss is read every ``tick`` steps, at least 64 times per
    training. As a `Checkpoint` it runs after all other callbacks.

    Attributes:
        checkpoint: The file of the last checkpoint.
        steps: Optimiser steps of the training.
        every: Steps between two measurements.
        tokens: Number of steps -> positions presented in them.
        measured: Prefix of the names of measurements.
        devices: Kinds of devices that it was made on, in order.
    """

    checkpoint: Path
    on_progress: Callable[[Progress], None]
    stop: Callable[[], bool]
    checkpoint_seconds: float = 60.0
    steps: int = 1
    every: int = 1
    tokens: Callable[[int], int] = int
    measured: str = "dev."
    curve: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "tokens": []})
    devices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tick = max(1, min(50, self.steps // 64))
        self._seconds = self._cpu_seconds = 0.0  # before the last resumption
        self._since = self._saved = time.monotonic()
        self._cpu_since = time.process_time()
        self._window: dict[str, list[float]] = {}
        self._first_step = self._step = 0
        self._on_sigterm: Any = None

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed training needs."""
        state = {"curve": self.curve, "seconds": self.elapsed(), "window": self._window}
        return state | {"devices": self.devices, "cpu_seconds": self.processed()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` saved."""
        self.curve, self._seconds, self._window = (state_dict[key] for key in ("curve", "seconds", "window"))
        self.devices = list(state_dict.get("devices", []))  # earlier checkpoints say none
        self._cpu_seconds = state_dict.get("cpu_seconds", 0.0)

    def elapsed(self) -> float:
        """Seconds of training so far, over all resumptions."""
        return self._seconds + time.monotonic() - self._since

    def processed(self) -> float:
        """Processor seconds of training so far, of all threads, which other work on the machine does not lengthen."""
        return self._cpu_seconds + time.process_time() - self._cpu_since

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remembers the handler of SIGTERM."""
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Puts the handler of SIGTERM back: Lightning's ends a training in an evaluation, without a checkpoint."""
        if callable(self._on_sigterm) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Starts the clock, and notes the device."""
        self.on_validation_start(trainer, pl_module)
        device = pl_module.device
        kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        self.devices += [kind] * (self.devices[-1:] != [kind])
        self._since, self._cpu_since = time.monotonic(), time.process_time()
        self._saved = self._since
        self._first_step = self._step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Runs after each micro-batch; acts at the end of an optimiser step."""
        step = trainer.global_step
        if step == self._step:  # an accumulated micro-batch
            return
        self._step = step
        if step % self.tick == 0 or step == self.steps:
            self._read(step, pl_module)
        if step % self.every:
            self._pause(trainer)  # at a measurement step afterwards, so that the checkpoint includes it

    def _pause(self, trainer: pl.Trainer) -> None:
        """Writes a checkpoint when it is due or a stop is requested, by the clock and the word of rank 0."""
        stop, is_due = ranks.agreed((self.stop(), time.monotonic() - self._saved > self.checkpoint_seconds))
        if stop or is_due:
            trainer.save_checkpoint(self.checkpoint, weights_only=False)
            self._saved = time.monotonic()
        if stop:
            raise Interrupted

    def _read(self, step: int, module: Any) -> None:
        losses: dict[str, float] = module.training_loss()
        for name, value in losses.items():
            if not math.isfinite(value):
                raise Diverged(step)
            self._window.setdefault(f"train.{name}", []).append(value)
        done = self.tokens(step) - self.tokens(self._first_step)
        speed = done / max(1e-9, time.monotonic() - self._since)
        self.on_progress(Progress(step, self.steps, sum(losses.values()), speed))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Adds a point to the curve: measurements, and the mean training losses since the last point.

        The last update of a training is followed by no training loss. That it diverged, only what is measured shows.
        """
        if trainer.sanity_checking or not trainer.global_step:
            return
        point = {"step": trainer.global_step, "tokens": self.tokens(trainer.global_step)}
        point |= {name: sum(values) / len(values) for name, values in self._window.items()}
        point |= {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith(self.measured)}
        self._window = {}
        if not all(math.isfinite(value) for name, value in point.items() if name.endswith("loss")):
            raise Diverged(trainer.global_step)
        for name, value in point.items():
            self.curve.setdefault(name, []).append(value)
        if trainer.state.fn == "fit":
            self._pause(trainer)


class WeightAveraging(pl.Callback):
    """Evaluates and keeps the mean of the weights that a training has after some steps (Polyak and Juditsky 1992).

    ::

        mean_k = mean_{k - 1} + (p - mean_{k - 1}) / k

    Averaged checkpoints (Vaswani et al. 2017, section 6.1) are of some of the last steps. NT-ASGD (Merity et al. 2018,
    Algorithm 1) begins at an evaluation whose held-out loss is not better than earlier ones, and averages after each
    step from there on. The mean of k steps is of k weights; ``torch.optim.ASGD``, which the released code of AWD-LSTM
    uses, leaves out the first of them.

    Count and means are kept in the state of the optimiser, so checkpoints hold them.

    Args:
        steps: The numbers of steps after which the weights are added to the mean.
        interval: The n of NT-ASGD; 0 for none.
    """

    def __init__(self, steps: Sequence[int], interval: int) -> None:
        self.steps, self.interval = steps, interval
        self.losses: list[float] = []  # the held-out loss of each evaluation so far, if NT-ASGD reads it
        self._step = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Notes where the training begins, or goes on."""
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Adds the weights after a step, if it is one of those that are averaged."""
        (optimizer,), step = trainer.optimizers, trainer.global_step
        if step != self._step and (step in self.steps or (self.interval and is_averaged(optimizer))):
            average(optimizer)
        self._step = step

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Puts the means in the place of the weights."""
        if _fits(trainer):
            swap(trainer.optimizers[0])

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Puts the weights back, before a checkpoint is written."""
        if _fits(trainer):
            swap(trainer.optimizers[0])

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begins to average, if NT-ASGD does here."""
        if not self.interval or not _fits(trainer):
            return
        measured = trainer.callback_metrics.items()
        losses = [float(v) for name, v in measured if name.startswith("heldout.") and name.endswith("loss")]
        self.losses.append(sum(losses))
        (optimizer,) = trainer.optimizers
        if not is_averaged(optimizer) and is_nonmonotone(self.losses, self.interval):
            for group in optimizer.param_groups:
                group["averaged"] = 0

    @torch.no_grad()
    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Makes the weights the means, for good."""
        for p, state in trainer.optimizers[0].state.items():
            if "mean" in state:
                p.copy_(state["mean"])

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Saves the losses."""
        if self.losses:
            checkpoint["heldout_losses"] = self.losses

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restores the losses."""
        self.losses = list(checkpoint.get("heldout_losses", []))


def _fits(trainer: pl.Trainer) -> bool:
    """Whether this is the evaluation of a training, and no trial before it."""
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def is_averaged(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a mean of weights has begun."""
    return "averaged" in optimizer.param_groups[0]


@torch.no_grad()
def average(optimizer: torch.optim.Optimizer) -> None:
    """Adds the weights as they are to their means.

    A weight without a gradient so far is its own mean. It has no moments, and Adam and LAMB would take a mean in its
    state for them. SGD has none at all.
    """
    state, is_sgd = optimizer.state, isinstance(optimizer, torch.optim.SGD)
    for group in optimizer.param_groups:
        group["averaged"] = group.get("averaged", 0) + 1
        weights = [p for p in group["params"] if is_sgd or state.get(p)]
        for p in weights:
            if "mean" not in state[p]:
                state[p]["mean"] = p.clone()
        if weights:
            torch._foreach_lerp_([state[p]["mean"] for p in weights], weights, 1 / group["averaged"])


@torch.no_grad()
def swap(optimizer: torch.optim.Optimizer) -> None:
    """Exchanges weights and means."""
    for p, state in optimizer.state.items():
        if "mean" in state:
            weights = p.clone()
            p.copy_(state["mean"])
            state["mean"].copy_(weights)


def is_nonmonotone(losses: Sequence[float], interval: int) -> bool:
    """Whether the last of some held-out losses triggers NT-ASGD (Merity et al. 2018, Algorithm 1).

    It does if it is above the least of those before it, the last ``interval`` of these left out.
    """
    *before, last = losses
    earlier = before[: max(0, len(before) - interval)]
    return bool(earlier) and last > min(earlier)


class RandomState(pl.Callback):
    """Saves the state of every random generator in checkpoints and restores it on resume; Lightning does neither."""

    def __init__(self) -> None:
        self._restored: Mapping[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """The generators of torch (all devices), numpy and Python."""
        kind, keys, *rest = cast(tuple[str, np.ndarray, int, int, float], np.random.get_state())
        state = {
            "torch": torch.get_rng_state(),
            "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), *rest],
            "python": repr(random.getstate()),
        }
        if torch.cuda.is_available():
            alone = ranks.size() == 1  # each of several has a device of its own
            state["cuda"] = torch.cuda.get_rng_state_all() if alone else [torch.cuda.get_rng_state()]
        return ranks.kept(state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Keeps the states until training starts, because setup consumes random numbers."""
        self._restored = state_dict

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restores the states just before the first step."""
        if self._restored is None:
            return
        state, self._restored = ranks.own(dict(self._restored)), None
        torch.set_rng_state(state["torch"])
        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
        random.setstate(ast.literal_eval(state["python"]))
        if "cuda" in state and torch.cuda.is_available():
            if ranks.size() == 1:
                torch.cuda.set_rng_state_all(state["cuda"])
            else:
                torch.cuda.set_rng_state(state["cuda"][0])
