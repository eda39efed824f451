"""Numbers below full precision, which CPUs handle several times slower than others."""

import pytest
import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from tests import tiny


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such setting")
def test_training_rounds_them_to_zero(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    tiny_number = torch.full((1,), 1e-39)
    assert tiny_number * 1.0 > 0
    records = Records(tmp_path / "results")
    execute(plan(grids.read(tiny.grid(tmp_path, seeds=1)), "smoke", records=records), records, "inline")
    assert tiny_number * 1.0 == 0
