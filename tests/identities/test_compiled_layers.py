"""Compiled layers train as plain ones do; where nothing can be compiled, a training says so and goes on."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from ablations.running.execute import suited
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.pretraining import fit
from lightning_modules.tasks import FineTuning
from lightning_modules.training.execution import Execution
from tests.depth import NIGHTLY
from tests.end_to_end.test_training import RESUMED

STILL = {"model.dropout": 0.0, "model.attention_dropout": 0.0, "model.embedding_dropout": 0.0}


@pytest.fixture
def told(tiny, tmp_path):
    """What `tests.identities.compiling` says."""
    if shutil.which("g++") is None or not NIGHTLY:
        pytest.skip("compiling takes a minute, and a compiler: `make nightly` and `make test-gpu` try it")
    system = tiny.but(**STILL, **{"training.steps": 20, "model.num_layers": 3})
    words = [sys.executable, "-m", "tests.identities.compiling", json.dumps(system.to_dict()), str(tmp_path / "fitted")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_losses_are_those_of_plain_layers_and_each_kind_is_compiled_once(told):
    plain, other = told["plain"], told["compiled"]
    assert len(plain) == 20
    assert other == pytest.approx(plain, abs=1e-5)
    assert other[-1] < other[0] - 0.1
    assert told["graphs"] <= 6, "attention and feed-forward of all, of some and of so many positions, not of each layer"
    assert told["graphs after"] == told["graphs"], "another run has what was compiled for the first"
    assert told["execution"] == {"compiled": True}


def test_without_a_compiler_the_training_says_so_and_is_the_plain_one(tiny, tmp_path, monkeypatch, capfd):
    def broken(function):
        raise RuntimeError("no C++ compiler\nand more")

    usual = fit(tiny, 0, tmp_path / "usual")
    monkeypatch.setattr(torch, "compile", broken)
    found = fit(tiny, 0, tmp_path / "asked", execution=Execution(compile_layers=True))
    assert "layers are not compiled (no C++ compiler): the training continues without" in capfd.readouterr().err
    assert found.metrics == usual.metrics
    assert found.execution == usual.execution == {}


def test_what_has_no_layers_to_compile_is_refused(tiny, tmp_path):
    """By name, a pretraining as a fine-tuning, and a plan before any run of it begins."""
    recurrent, asked = tiny.but(**RESUMED["a stream that is carried"]), Execution(compile_layers=True)
    with pytest.raises(ConfigError, match="lstm are not compiled"):
        fit(recurrent, 0, tmp_path, execution=asked)
    with pytest.raises(ConfigError, match="lstm are not compiled"):
        finetune(FinetuningRun(recurrent, "toy", FineTuning(), 0, None), tmp_path, execution=asked)
    for kind in ("pretrain", "finetune"):
        pending = [SimpleNamespace(kind=kind, system=recurrent)]
        with pytest.raises(ConfigError, match="lstm are not compiled"):
            suited("inline", SimpleNamespace(pending=pending), asked)
        suited("inline", SimpleNamespace(pending=pending))
    with pytest.raises(ConfigError, match="ddp"):
        Execution(devices=2, strategy="fsdp", compile_layers=True)
