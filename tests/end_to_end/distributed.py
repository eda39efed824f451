"""Trains systems under DDP: what each of the ranks of `test_ddp` does."""

from collections.abc import Mapping
from pathlib import Path

import pytorch_lightning as pl
import torch
from safetensors.torch import save_file

from lightning_modules.system import System

RANKS = 2


def train(system: System, ranks: int) -> dict[str, torch.Tensor]:
    """Trains from seed 0 and returns the weights, the held-out loss, and this rank's sums of training losses."""
    module, data = system.build(0), system.data_module(0)
    rows = system.training.batch_size // ranks
    trainer = pl.Trainer(
        accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", max_steps=system.training.steps,
        accumulate_grad_batches=rows // (system.training.micro_batch_size or rows), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, data)
    assert trainer.global_step == system.training.steps
    assert trainer.world_size == ranks
    summed = {f"summed {name}": both for name, both in module.read_sums().items()}
    (name,) = {"heldout.loss", "heldout.next_loss"} & trainer.callback_metrics.keys()
    return {**module.state_dict(), **summed, "held-out loss": trainer.callback_metrics[name]}


def train_all(systems: Mapping[str, System], folder: Path) -> None:
    """Trains systems as one of the ranks; each rank leaves its results in the folder, in a file for each."""
    for name, system in systems.items():
        left = train(system, RANKS)
        save_file(left, folder / f"{name}-{torch.distributed.get_rank()}.safetensors")
