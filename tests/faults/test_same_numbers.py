"""Loader workers change no number, and a loss that is none ends its run."""

import pytest
import pytorch_lightning as pl
import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules import pretraining as fitting
from tests import tiny as tiny_grids


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_loader_workers_change_no_weight(tiny, workers):
    def trained(number):
        module, data = tiny.build(0), tiny.data_module(0)
        data.workers = number
        trainer = pl.Trainer(
            max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, limit_val_batches=0,
        )  # fmt: skip
        torch.manual_seed(0)  # dropout
        trainer.fit(module, data)
        return module.state_dict()

    alone, loaded = trained(0), trained(workers)
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in alone.items())


def test_a_loss_that_stops_being_finite_ends_the_run_within_a_tick(cached, monkeypatch):
    """NaN from step 70 of 200 on: the loss is read every third step."""
    grid = grids.read(tiny_grids.grid(cached, rates="[0.15]", seeds=1, steps=200))
    records, seen = Records(cached / "results"), []

    class Poisoned(fitting.Pretrain):
        def training_step(self, example, index):
            loss = super().training_step(example, index)
            seen.append(index)
            if len(seen) < 70:
                return loss
            self.reduced({"mlm": (torch.tensor(float("nan")), 1.0, 1.0)}, {})
            return loss * float("nan")

    monkeypatch.setattr("lightning_modules.training.module.Pretrain", Poisoned)
    summary = execute(plan(grid, "smoke", records=records), records, "inline")
    (record,) = records.all()
    assert (record.outcome, summary.executed) == ("diverged", 1)
    assert record.detail in {f"loss not finite at step {step}" for step in (70, 71, 72)}
    assert len(seen) <= 72
    assert execute(plan(grid, "smoke", records=records), records, "inline").executed == 0
