"""Crash-safe checkpoints, and training that resumes bit for bit.

Lightning writes checkpoints to the system's temporary folder and moves them, which across file systems is neither
atomic nor safe on a full disk, and it saves no random state. This module adds both.
"""

import ast
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from lightning_modules.files import write_atomically


class AtomicCheckpoints(TorchCheckpointIO):
    """Lightning's checkpoint format, written atomically in its destination folder."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes a checkpoint; an interrupted or failed write leaves the previous one intact."""
        write_atomically(Path(path), lambda file: torch.save(checkpoint, file))


class RandomState(pl.Callback):
    """Saves the state of every random generator in checkpoints and restores it on resume."""

    def __init__(self) -> None:
        self._restored: Mapping[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """The generators of torch (all devices), numpy and Python."""
        kind, keys, *rest = np.random.get_state()
        state = {
            "torch": torch.get_rng_state(),
            "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), *rest],
            "python": repr(random.getstate()),
        }
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Keeps the states until training starts, because setup consumes random numbers."""
        self._restored = state_dict

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restores the states just before the first step."""
        if self._restored is None:
            return
        state, self._restored = self._restored, None
        torch.set_rng_state(state["torch"])
        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
        random.setstate(ast.literal_eval(state["python"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])
