"""The Trainer of runs: what computes is what a record says."""

import platform

import pytest
import torch

from ablations.core.provenance import device_class
from lightning_modules.pretraining import _course
from lightning_modules.training.recorder import Recorder, trainer


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device comes first")
def test_runs_take_the_cpu_of_an_apple_machine_as_their_records_say(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    made = trainer(Recorder(_course(tiny), tmp_path / "checkpoint", print, lambda: False, 60.0), tmp_path)
    assert made.strategy.root_device.type == device_class() == "cpu"
