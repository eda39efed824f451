"""Numbers below full precision, which CPUs handle several times slower than others."""

import pytest
import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.pretraining import Recorder
from tests import tiny


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such setting")
def test_training_rounds_them_to_zero_and_nothing_else_does(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    small, seen, real = torch.full((1,), 1e-39), [], Recorder.on_train_batch_end

    def watched(self, *arguments, **options):
        seen.append(float(small * 1.0))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Recorder, "on_train_batch_end", watched)
    records = Records(tmp_path / "results")
    execute(plan(grids.read(tiny.grid(tmp_path, seeds=1)), "smoke", records=records), records, "inline")
    assert seen
    assert set(seen) == {0.0}
    assert small * 1.0 > 0
