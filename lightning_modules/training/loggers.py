"""Live curves of a training, by the loggers of Lightning: a way of executing it, never a part of what a run is.

A logger that fails costs the curve and not the run. What needs a server stays on this machine by default.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger

from lightning_modules.training import ranks
from lightning_modules.training.execution import Execution


class LoggerWarning(UserWarning):
    """A logger failed; the training continues without its curve."""


def logger(execution: Execution, run: str, settings: Mapping[str, Any]) -> "Tolerant | None":
    """The logger of a training, if its execution asks for one.

    Args:
        settings: Its knobs, which the logger shows next to the curve.
    """
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

    def _try(self, call: Callable[[Logger], Any]) -> Any:
        if self._failed:
            return None
        try:
            self._inner = self._inner or self._make()
            return call(self._inner)
        except Exception as error:
            self._failed = True
            text = f"the logger failed, and the training continues without its curve: {type(error).__name__}: {error}"
            with warnings.catch_warnings():
                warnings.simplefilter("always", LoggerWarning)  # never an error
                warnings.warn(text, LoggerWarning, stacklevel=2)
            return None

    @property
    def name(self) -> str | None:
        """As the other logger's."""
        return self._try(lambda inner: inner.name)

    @property
    def version(self) -> int | str | None:
        """As the other logger's."""
        return self._try(lambda inner: inner.version)

    @property
    def save_dir(self) -> str | None:
        """As the other logger's."""
        return self._try(lambda inner: inner.save_dir)

    @property
    def log_dir(self) -> str | None:
        """As the other logger's."""
        return self._try(lambda inner: inner.log_dir)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """As the other logger's."""
        self._try(lambda inner: inner.log_metrics(dict(metrics), step))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """As the other logger's."""
        self._try(lambda inner: inner.log_hyperparams(params, *args, **kwargs))

    def save(self) -> None:
        """As the other logger's."""
        self._try(lambda inner: inner.save())

    def finalize(self, status: str) -> None:
        """As the other logger's."""
        self._try(lambda inner: inner.finalize(status))
