"""The Trainer of runs, and what users of Lightning find in their loggers: one that fails costs its curve alone."""

import csv
import importlib.util
import platform

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import CSVLogger, Logger

from ablations.core.provenance import device_class
from lightning_modules.config import ConfigError
from lightning_modules.pretraining import fit
from lightning_modules.training import trainer as trainers
from lightning_modules.training.callbacks import Recorder
from lightning_modules.training.execution import Execution, check_logger
from lightning_modules.training.trainer import LoggerWarning, Tolerant, trainer

STEPS = {"training.steps": 12, "training.batch_size": 8, "evaluation.points": 3}


@pytest.fixture
def system(tiny):
    return tiny.but(**STEPS)


def rows(file):
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def plain(system, folder, **options):
    logger = CSVLogger(folder, name="", version="")
    trainer = pl.Trainer(
        max_steps=12, log_every_n_steps=4, val_check_interval=4, check_val_every_n_epoch=None, logger=logger,
        accelerator="cpu", enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, **options,
    )  # fmt: skip
    module = system.build(seed=0)
    trainer.fit(module, system.data_module(seed=0))
    return trainer, module


def test_a_logger_of_lightning_gets_losses_and_the_rate_every_so_many_steps(system, tmp_path):
    trainer, module = plain(system, tmp_path)
    logged = rows(tmp_path / "metrics.csv")
    training = [row for row in logged if row["train.loss"]]
    assert [int(row["step"]) for row in training] == [3, 7, 11]  # Lightning counts from 0
    assert all(float(row["train.loss"]) > 0 and row["train.mlm"] == row["train.loss"] for row in training)
    rates = [float(row["lr"]) for row in training]
    assert rates == pytest.approx(
        [module.optimizer_settings.peak_lr * module.schedule.factor(n, 12) for n in (3, 7, 11)]
    )
    assert len([row for row in logged if row["heldout.loss"]]) == 3
    assert {"train.loss", "lr", "heldout.loss", "heldout.accuracy"} <= trainer.callback_metrics.keys()


def test_micro_batches_log_once_a_step(system, tmp_path):
    plain(system.but(**{"training.micro_batch_size": 4}), tmp_path, accumulate_grad_batches=2)
    assert [int(row["step"]) for row in rows(tmp_path / "metrics.csv") if row["train.loss"]] == [3, 7, 11]


def test_early_stopping_sees_the_held_out_loss(system, tmp_path):
    never = EarlyStopping("heldout.loss", patience=0, min_delta=100.0)
    trainer, _ = plain(system, tmp_path, callbacks=[never])
    assert never.stopped_epoch >= 0
    assert trainer.global_step == 8  # the second evaluation is not better by so much


class Broken(Logger):
    """It works for a while, or not at all."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    name, version = "broken", 0

    def log_hyperparams(self, *_, **__):
        pass

    def log_metrics(self, metrics, step=None):
        self.left -= 1
        if self.left < 0:
            raise OSError("the server is gone")


def fitted(system, folder, **how):
    folder.mkdir()
    return fit(system, 0, folder, execution=Execution(**how))


@pytest.mark.parametrize("after", [0, 2])
def test_a_logger_that_fails_costs_the_curve_and_not_the_run(system, tmp_path, monkeypatch, after):
    alone = fitted(system, tmp_path / "alone")
    monkeypatch.setattr(trainers, "_made", lambda *_: Broken(after))
    with pytest.warns(LoggerWarning, match="the server is gone") as told:
        watched = fitted(system, tmp_path / "watched", logger="csv", curves=str(tmp_path))
    assert sum(one.category is LoggerWarning for one in told) == 1
    assert (watched.metrics, watched.curve) == (alone.metrics, alone.curve)


def test_a_logger_that_cannot_be_made_costs_the_curve_and_not_the_run(system, tmp_path):
    (tmp_path / "curves").write_text("no folder")
    with pytest.warns(LoggerWarning):
        found = fitted(system, tmp_path / "run", logger="csv", curves=str(tmp_path / "curves"))
    assert found.metrics["heldout.loss"] > 0


def test_a_live_curve_is_written_and_moves_no_number(system, tmp_path):
    alone = fitted(system, tmp_path / "alone")
    watched = fitted(system, tmp_path / "watched", logger="csv", curves=str(tmp_path / "curves"))
    assert (watched.metrics, watched.curve) == (alone.metrics, alone.curve)
    (file,) = (tmp_path / "curves").rglob("metrics.csv")
    logged = rows(file)
    assert len([row for row in logged if row["train.loss"]]) == 12
    assert [float(row["heldout.loss"]) for row in logged if row["heldout.loss"]] == pytest.approx(
        alone.curve["heldout.loss"], rel=1e-5
    )


def test_other_ranks_log_nothing(monkeypatch):
    monkeypatch.setattr(trainers.ranks, "rank", lambda: 1)
    made = []
    Tolerant(lambda: made.append(1) or Broken(0)).log_metrics({"loss": 1.0}, 0)
    assert not made


def test_a_logger_may_be_asked_for_where_one_of_its_packages_is_installed(monkeypatch):
    installed = set()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in installed else None)
    check_logger("csv")
    with pytest.raises(ConfigError, match="tensorboard"):
        check_logger("tensorboard")
    installed.add("tensorboardX")
    check_logger("tensorboard")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device comes first")
def test_runs_take_the_cpu_of_an_apple_machine_as_their_records_say(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    made = trainer(Recorder(tmp_path / "checkpoint", print, lambda: False), tmp_path)
    assert made.strategy.root_device.type == device_class() == "cpu"
