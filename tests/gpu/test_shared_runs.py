"""A run that two GPUs share."""

import pytest
import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.training.execution import Execution
from tests import tiny

NEAR = 0.02  # of a loss: bf16 is off, dropout is not


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # drivers warn of much
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_gpus_train_like_one(tmp_path, monkeypatch, strategy):
    if torch.cuda.device_count() < 2:
        pytest.skip("two CUDA devices are needed")
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    grid, found = tiny.grid(tmp_path, rates="[0.15]", seeds=1, steps=60), {}
    for execution in (Execution(), Execution(devices=2, strategy=strategy)):
        records = Records(tmp_path / f"{execution.devices}")
        planned = plan(grids.read(grid), "smoke", records=records)
        execute(planned, records, retries=0, execution=execution)
        found[execution.devices] = records.get(planned.runs[0].id)
    assert found[2].outcome == "done", found[2].detail
    assert found[2].provenance["strategy"] == strategy
    assert found[2].metrics["heldout.loss"] == pytest.approx(found[1].metrics["heldout.loss"], rel=NEAR)
