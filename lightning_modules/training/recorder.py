"""Recording and resuming of trainings: the Trainer, and the callback that keeps curve and checkpoints."""

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy, Strategy

from lightning_modules.model.transformer import TransformerEncoder
from lightning_modules.training import ranks
from lightning_modules.training.checkpoint import AtomicCheckpoints, RandomState
from lightning_modules.training.execution import ALONE, Execution

CHECKPOINT = "last.ckpt"
_PRECISION: dict[str, Literal["32-true", "bf16-mixed"]] = {"fp32": "32-true", "bf16": "bf16-mixed"}


class Trained(Protocol):
    """What a recorder needs of a module."""

    def training_loss(self) -> dict[str, float]:
        """Mean training losses since the last call, over all ranks; each of them calls it."""
        ...


@dataclass
class Progress:
    """The progress of a training, or of a measurement.

    Attributes:
        step: Steps made; of a measurement, tokens read.
        steps: Steps in all, or tokens.
        loss: The loss of the last step; None in a measurement.
        again: The run that is trained, if another one needs its weights a second time.
    """

    step: int
    steps: int
    loss: float | None
    tokens_per_second: float
    again: str = ""


@dataclass
class Fitted:
    """The results of a training: final metrics, a curve of at most 64 points, statistics by layer, packed scores of
    examples, held-out losses by sequence for a file of their own, costs, the kinds of devices that it was made on,
    in order: several if a checkpoint was resumed on another kind; and what was decided there, of the execution and of
    how translations were scored.
    """

    metrics: dict[str, float | bool] = field(default_factory=dict)
    curve: dict[str, list[float]] = field(default_factory=dict)
    layers: dict[str, list[float]] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    sums: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    execution: dict[str, Any] = field(default_factory=dict)


class Diverged(Exception):
    """A loss, of training or measured, became NaN or infinite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss was not finite at step {step}")
        self.step = step


class Interrupted(Exception):
    """The training received a request to stop and has written a checkpoint to resume from."""


@dataclass(frozen=True)
class Course:
    """The part of a training's plan that trainer and recorder use.

    Attributes:
        every: Steps between two measurements.
        tokens: Number of steps -> positions presented in them.
        measured: Prefix of the names of measurements.
        precision: fp32, or bf16 for bfloat16 autocast over fp32 weights.
        micro_batches: Forward passes per optimiser step.
    """

    steps: int
    every: int
    tokens: Callable[[int], int]
    measured: str
    precision: Literal["fp32", "bf16"]
    micro_batches: int = 1


class Recorder(pl.Callback):
    """Keeps the curve, detects divergence, reports progress, writes checkpoints, and stops on request.

    It does not synchronise with the device at every step: the loss is read every ``tick`` steps, at least 64 times per
    training.
    """

    def __init__(
        self,
        course: Course,
        checkpoint: Path,
        on_progress: Callable[[Progress], None],
        stop: Callable[[], bool],
        checkpoint_seconds: float,
    ) -> None:
        self.course, self.checkpoint = course, checkpoint
        self.on_progress, self.stop = on_progress, stop
        self.checkpoint_seconds = checkpoint_seconds
        self.curve: dict[str, list[float]] = {"step": [], "tokens": []}
        self.tick = max(1, min(50, course.steps // 64))
        self.seconds = 0.0  # of training, over all resumptions
        self.devices: list[str] = []  # kinds, in order
        self.cpu_seconds = 0.0  # of this process, all threads, over all resumptions
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
        self.curve, self.seconds, self._window = (state_dict[key] for key in ("curve", "seconds", "window"))
        self.devices = list(state_dict.get("devices", []))  # earlier checkpoints say none
        self.cpu_seconds = state_dict.get("cpu_seconds", 0.0)

    def elapsed(self) -> float:
        """Seconds of training so far."""
        return self.seconds + time.monotonic() - self._since

    def processed(self) -> float:
        """Processor seconds of training so far, which other work on the machine does not lengthen."""
        return self.cpu_seconds + time.process_time() - self._cpu_since

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        """Remembers the handler of SIGTERM."""
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Puts the handler of SIGTERM back: Lightning's ends a training in an evaluation, without a checkpoint."""
        if callable(self._on_sigterm) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Starts the clock, and notes the device."""
        self.on_validation_start(trainer, module)
        device = module.device
        kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        self.devices += [kind] * (self.devices[-1:] != [kind])
        self._since, self._cpu_since = time.monotonic(), time.process_time()
        self._saved = self._since
        self._first_step = self._step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """Runs after each micro-batch; acts at the end of an optimiser step."""
        step = trainer.global_step
        if step == self._step:  # an accumulated micro-batch
            return
        self._step = step
        if step % self.tick == 0 or step == self.course.steps:
            self._read(step, module)
        if step % self.course.every:
            self._pause(trainer)  # at a measurement step afterwards, so that the checkpoint includes it

    def _pause(self, trainer: pl.Trainer) -> None:
        """Writes a checkpoint when it is due or a stop is requested, by the clock and the word of rank 0."""
        stop, is_due = ranks.agreed((self.stop(), time.monotonic() - self._saved > self.checkpoint_seconds))
        if stop or is_due:
            trainer.save_checkpoint(self.checkpoint, weights_only=False)
            self._saved = time.monotonic()
        if stop:
            raise Interrupted

    def _read(self, step: int, module: pl.LightningModule) -> None:
        losses = cast(Trained, module).training_loss()
        for name, value in losses.items():
            if not math.isfinite(value):
                raise Diverged(step)
            self._window.setdefault(f"train.{name}", []).append(value)
        done = self.course.tokens(step) - self.course.tokens(self._first_step)
        speed = done / max(1e-9, time.monotonic() - self._since)
        self.on_progress(Progress(step, self.course.steps, sum(losses.values()), speed))

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Adds a point to the curve: measurements, and the mean training losses since the last point.

        The last update of a training is followed by no training loss. That it diverged, only what is measured shows.
        """
        if trainer.sanity_checking or not trainer.global_step:
            return
        point = {"step": trainer.global_step, "tokens": self.course.tokens(trainer.global_step)}
        point |= {name: sum(values) / len(values) for name, values in self._window.items()}
        point |= {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith(self.course.measured)}
        self._window = {}
        if not all(math.isfinite(value) for name, value in point.items() if name.endswith("loss")):
            raise Diverged(trainer.global_step)
        for name, value in point.items():
            self.curve.setdefault(name, []).append(value)
        if trainer.state.fn == "fit":
            self._pause(trainer)


def trainer(
    recorder: Recorder,
    folder: Path,
    execution: Execution = ALONE,
    run_id: str = "",
    logger: Logger | None = None,
    accelerator: Literal["cpu", "cuda"] | None = None,
    callbacks: Sequence[pl.Callback] = (),
) -> pl.Trainer:
    """The Trainer for a recorder's course; its own files go below ``folder``. All ranks share its steps.

    It computes on CUDA devices, or else on the CPU: what Lightning calls ``auto`` would take Apple's GPU, of which a
    record says "cpu", and whose numbers were compared with nothing.

    Args:
        run_id: The training, which its checkpoints name.
        logger: Gets the losses and the rate as often as the recorder reads them; None for no live curve.
        callbacks: Those that act before the recorder.
    """
    course = recorder.course
    return pl.Trainer(
        max_steps=course.steps,
        max_epochs=-1,
        accumulate_grad_batches=course.micro_batches,
        precision=_PRECISION[course.precision],
        val_check_interval=course.every * course.micro_batches,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        callbacks=[*callbacks, recorder, RandomState()],
        plugins=[AtomicCheckpoints(execution, run_id), ranks.Processes(execution.devices)],
        accelerator=accelerator or ("cuda" if torch.cuda.is_available() else "cpu"),
        devices=execution.devices,
        num_nodes=execution.nodes,
        strategy=_strategy(execution),
        default_root_dir=folder,
        logger=logger or False,
        log_every_n_steps=recorder.tick,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def executed(fed: Mapping[str, Any], module: pl.LightningModule) -> dict[str, Any]:
    """What of the execution of a training was decided on its device, for a record.

    Args:
        fed: What the data module says of how batches reached the device.
    """
    parts = (part for part in module.modules() if isinstance(part, TransformerEncoder) and part.compiled)
    is_compiled = any(parameter.requires_grad for part in parts for parameter in part.parameters())
    return dict(fed) | ({"compiled": True} if is_compiled else {})


def _strategy(execution: Execution) -> Strategy | str:
    if execution.ranks == 1:
        return "auto"
    if execution.strategy == "ddp":
        return DDPStrategy(find_unused_parameters=True, gradient_as_bucket_view=True)
    return ModelParallelStrategy(execution.ranks, tensor_parallel_size=1, save_distributed_checkpoint=False)
