"""The Trainer of runs, and their live curves: a way of executing a training, never a part of what a run is.

A logger that fails costs the curve and not the run. What needs a server stays on this machine by default.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy, Strategy

from lightning_modules.model.transformer import TransformerEncoder
from lightning_modules.training import ranks
from lightning_modules.training.callbacks import RandomState, Recorder
from lightning_modules.training.checkpoint import AtomicCheckpoints
from lightning_modules.training.execution import ALONE, Execution


def trainer(
    recorder: Recorder,
    folder: Path,
    precision: Literal["fp32", "bf16"] = "fp32",
    execution: Execution = ALONE,
    run_id: str = "",
    *,
    micro_batches: int = 1,
    logger: Logger | None = None,
    accelerator: Literal["cpu", "cuda"] | None = None,
    callbacks: Sequence[pl.Callback] = (),
) -> pl.Trainer:
    """The Trainer of a recorder's training; its own files go below ``folder``. All ranks share its steps.

    It computes on CUDA devices, or else on the CPU: what Lightning calls ``auto`` would take Apple's GPU, of which a
    record says "cpu", and whose numbers were compared with nothing.

    Args:
        precision: fp32, or bf16 for bfloat16 autocast over fp32 weights.
        run_id: The training, which its checkpoints name.
        micro_batches: Forward passes per optimiser step.
        logger: Gets the losses and the rate as often as the recorder reads them; None for no live curve.
        callbacks: Those that act before the recorder.
    """
    return pl.Trainer(
        max_steps=recorder.steps,
        max_epochs=-1,
        accumulate_grad_batches=micro_batches,
        precision="32-true" if precision == "fp32" else "bf16-mixed",
        val_check_interval=recorder.every * micro_batches,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        callbacks=[*callbacks, RandomState(), recorder],
        plugins=[AtomicCheckpoints(execution, run_id), ranks.Processes(execution.devices)],
        accelerator=accelerator or ("cuda" if torch.cuda.is_available() else "cpu"),
        devices=execution.devices,
        num_nodes=execution.nodes,
        strategy=_strategy(execution),
        default_root_dir=folder,
        logger=logger or False,
        log_every_n_steps=recorder.tick,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _strategy(execution: Execution) -> Strategy | str:
    if execution.ranks == 1:
        return "auto"
    if execution.strategy == "ddp":
        return DDPStrategy(find_unused_parameters=True, gradient_as_bucket_view=True)
    return ModelParallelStrategy(execution.ranks, tensor_parallel_size=1, save_distributed_checkpoint=False)


def executed(fed: Mapping[str, Any], module: pl.LightningModule) -> dict[str, Any]:
    """What of the execution of a training was decided on its device, for a record.

    Args:
        fed: What the data module says of how batches reached the device.
    """
    parts = (part for part in module.modules() if isinstance(part, TransformerEncoder) and part.compiled)
    is_compiled = any(parameter.requires_grad for part in parts for parameter in part.parameters())
    return dict(fed) | ({"compiled": True} if is_compiled else {})


class LoggerWarning(UserWarning):
    """A logger failed; the training continues without its curve."""


def logger(execution: Execution, run: str, settings: Mapping[str, Any]) -> "Tolerant | None":
    """The logger of a training, if its execution asks for one; it shows the settings next to the curve."""
    if not execution.logger:
        return None
    made = Tolerant(lambda: _made(execution.logger, Path(execution.curves), run))
    made.log_hyperparams(dict(settings))
    return made


def _made(name: str, folder: Path, run: str) -> Logger:
    folder.mkdir(parents=True, exist_ok=True)
    if name == "csv":
        from pytorch_lightning.loggers import CSVLogger

        return CSVLogger(folder, name=run, flush_logs_every_n_steps=1)
    if name == "tensorboard":
        from pytorch_lightning.loggers import TensorBoardLogger

        return TensorBoardLogger(folder, name=run)
    if name == "wandb":
        from pytorch_lightning.loggers import WandbLogger

        return WandbLogger(name=run, save_dir=folder, project="ablations", offline="WANDB_MODE" not in os.environ)
    from pytorch_lightning.loggers import MLFlowLogger

    if "MLFLOW_TRACKING_URI" not in os.environ:  # files on this machine, which MLflow asks to allow
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    where = os.environ.get("MLFLOW_TRACKING_URI", f"file:{folder / 'mlruns'}")
    return MLFlowLogger(experiment_name="ablations", run_name=run, tracking_uri=where)


class Tolerant(Logger):
    """Another logger, on rank 0, until it fails for the first time; from then on nothing.

    Args:
        make: Makes the other one, when there is something to log.
    """

    def __init__(self, make: Callable[[], Logger]) -> None:
        super().__init__()
        self._make, self._inner, self._failed = make, None, bool(ranks.rank())

    def _call(self, name: str, *args: Any) -> Any:
        """An attribute of the other logger, or what its method of this name returns."""
        if self._failed:
            return None
        try:
            self._inner = self._inner or self._make()
            found = getattr(self._inner, name)
            return found(*args) if callable(found) else found
        except Exception as error:
            self._failed = True
            text = f"the logger failed, and the training continues without its curve: {type(error).__name__}: {error}"
            with warnings.catch_warnings():
                warnings.simplefilter("always", LoggerWarning)  # never an error
                warnings.warn(text, LoggerWarning, stacklevel=2)
            return None

    name = property(lambda self: self._call("name"), doc="As the other logger's.")
    version = property(lambda self: self._call("version"), doc="As the other logger's.")
    save_dir = property(lambda self: self._call("save_dir"), doc="As the other logger's.")
    log_dir = property(lambda self: self._call("log_dir"), doc="As the other logger's.")

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """As the other logger's."""
        self._call("log_metrics", dict(metrics), step)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """As the other logger's."""
        self._call("log_hyperparams", params, *args)

    def save(self) -> None:
        """As the other logger's."""
        self._call("save")

    def finalize(self, status: str) -> None:
        """As the other logger's."""
        self._call("finalize", status)
