"""Crash-safe checkpoints, and which of them a training resumes from.

Lightning writes checkpoints to the system's temporary folder and moves them, which across file systems is neither
atomic nor safe on a full disk.
"""

import os
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from lightning_modules.files import open_plain, write_atomically
from lightning_modules.training import ranks
from lightning_modules.training.execution import ALONE, Execution

_SHARING = "sharing"  # entry of a checkpoint: who shared the training (`Execution.sharing`)
_RUN = "run"  # entry of a checkpoint: which training it is of


class AtomicCheckpoints(TorchCheckpointIO):
    """Lightning's checkpoint format, written atomically in its destination folder, with what `resumable` compares."""

    def __init__(self, execution: Execution = ALONE, run_id: str = "") -> None:
        super().__init__()
        self._sharing, self._run_id = execution.sharing, run_id

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes a checkpoint; an interrupted or failed write leaves the previous one intact."""
        checkpoint[_SHARING] = self._sharing
        if self._run_id:
            checkpoint[_RUN] = self._run_id
        write_atomically(Path(path), lambda file: torch.save(checkpoint, file))


def resumable(path: Path, module: pl.LightningModule, execution: Execution = ALONE, run_id: str = "") -> Path | None:
    """The checkpoint to go on from; None if there is none.

    One that is damaged, of another run or of another number of devices (`Execution.sharing`) is renamed to
    ``unusable.ckpt`` with a word on standard error, and the training begins at step 0; it ends in the same numbers.
    PyTorch alone reads altered weights without a word. One of another kind of device is resumed, and the recorder notes
    both (`Fitted.devices`): dropout and rounding go on as they are there. An earlier checkpoint names no run; names and
    shapes of its weights have to fit.

    Args:
        path: The file of the last checkpoint.
        module: What is trained, at its beginning.
        execution: How it is to be executed.
        run_id: The training, as `AtomicCheckpoints` has it; empty for a checkpoint of any.
    """
    return ranks.agreed(_usable(path, module, execution, run_id) if ranks.rank() == 0 else None)


def _usable(path: Path, module: pl.LightningModule, execution: Execution, run_id: str) -> Path | None:
    if not (path.exists() or path.is_symlink()):
        return None
    try:
        _check(path, module, execution, run_id)
    except MemoryError:
        raise
    except Exception as error:  # a file of any content: zip, pickle and torch have errors of many kinds
        aside = path.with_name("unusable.ckpt")
        os.replace(path, aside)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(
            f"{path.name} cannot be used ({reason!r}): it is now {aside.name}, the training starts from the beginning",
            file=sys.stderr,
        )
        return None
    return path


def _read(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, compared with its CRCs, which PyTorch does not read."""
    open_plain(path, path.parent).close()
    with zipfile.ZipFile(path) as archive:
        if (altered := archive.testzip()) is not None:
            raise ValueError(f"{altered} is not as it was written")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:  # its message advises to load whatever it holds, which can run any program
        raise ValueError("it is no checkpoint of this project: it holds more than tensors, numbers and texts") from None


def _check(path: Path, module: pl.LightningModule, execution: Execution, run_id: str) -> None:
    held = _read(path)
    # in their order too: the optimiser's moments have no names, the n-th are of the n-th parameter
    found, made = (
        [(name, tensor.shape) for name, tensor in state.items()] for state in (held["state_dict"], module.state_dict())
    )
    if found != made:
        raise ValueError("its weights have other names or shapes, or another order")
    if run_id and (of := held.get(_RUN, run_id)) != run_id:
        raise ValueError(f"it is of run {of}, and this is run {run_id}")
    if (shared := held.get(_SHARING, ALONE.sharing)) != execution.sharing:
        raise ValueError(f"it is of {shared}, and this training has {execution.sharing}")
    if absent := {"callbacks", "loops", "optimizer_states", "lr_schedulers"} - held.keys():
        raise ValueError(f"it lacks {', '.join(sorted(absent))}")
