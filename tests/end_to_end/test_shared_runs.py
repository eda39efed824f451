"""Runs that two devices share, by the executor's own path: processes on the CPU stand for GPUs."""

import sys
from dataclasses import replace

import pytest
import torch
import yaml
from safetensors.torch import load_file

from ablations.core.machine import cores
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.running.launch import Launch
from ablations.running.local import Local
from lightning_modules.training.execution import Execution
from lightning_modules.training.weights import WEIGHTS
from tests import tiny
from tests.translations import parallel_text, tiny_system

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the local executor needs Linux or macOS")
TWO = Execution(devices=2)
DIVIDED = Execution(devices=2, strategy="fsdp")
FAST = "  schedule.warmup_fraction: 0.0\n  optimizer.peak_lr: 0.01\n"
LAMB = FAST + "  optimizer.algorithm: lamb\n  model.sharing: all\n  training.clip_norm: 0.5\n"
AVERAGED = FAST + "  training.averaged_checkpoints: 3\n  training.averaging_interval: 0.25\n"
NEAR = 1e-4  # of a loss: sums of gradients in another order


@pytest.fixture
def made(tmp_path, monkeypatch, forking):
    """Executes a grid of one run without dropout, and returns its record and weights."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))

    def make(name, execution, changes=""):
        file = tiny.grid(tmp_path, rates="[0.4]", seeds=1, steps=8)
        parts = "dropout", "attention_dropout", "embedding_dropout"
        still = "".join(f"  model.{part}: 0.0\n" for part in parts)
        text = file.read_text().replace("axes:", still + changes + "axes:").replace("rate: 0.15}", "rate: 0.4}")
        file.write_text(text.replace("  model.num_layers: 1", "  model.num_layers: 2"))
        records = Records(tmp_path / name)
        found = plan(grids.read(file), "smoke", records=records)
        execute(found, records, retries=0, execution=execution)
        (run,) = found.runs
        return records.get(run.id), records.work_folder(run.id)

    return make


def test_processes_that_share_a_run_have_as_many_threads_as_it_was_given(tmp_path, monkeypatch, forking):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    records, executor = Records(tmp_path / "results"), Local()
    (records.folder / "records").mkdir(parents=True)
    found = plan(grids.read(tiny.grid(tmp_path, rates="[0.15]", seeds=1, steps=2)), "smoke", records=records)
    executor.threads = cores() + 1
    executor.run(Launch(found, records, 0, None, lambda event: None, TWO))
    (record,) = records.all()
    assert (record.provenance["devices"], record.provenance["threads"]) == (2, cores() + 1)


@pytest.mark.parametrize(
    ("execution", "changes"),
    [
        pytest.param(TWO, "", id="ddp"),
        pytest.param(replace(DIVIDED, activation_checkpointing=True), FAST, id="fsdp, layers computed again"),
        pytest.param(DIVIDED, LAMB, id="fsdp, LAMB and shared layers"),
        pytest.param(DIVIDED, AVERAGED, id="fsdp, averaged checkpoints"),
    ],
)
def test_two_devices_give_the_loss_of_one(made, execution, changes):
    """At the same global batch: held-out losses, the curve of training losses, and weights."""
    one, folder = made("one", Execution(), changes)
    alone = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    two, folder = made("two", execution, changes)
    assert one.outcome == two.outcome == "done", two.detail
    assert one.id == two.id
    assert two.provenance["devices"] == 2
    assert two.provenance["strategy"] == execution.strategy
    assert "devices" not in one.provenance
    assert two.metrics["heldout.loss"] == pytest.approx(one.metrics["heldout.loss"], rel=NEAR)
    assert two.curve.keys() == one.curve.keys()
    for name, values in one.curve.items():
        assert two.curve[name] == pytest.approx(values, rel=NEAR), name
    for name, tensor in load_file(folder / WEIGHTS).items():
        assert torch.allclose(tensor, alone[name], atol=1e-5), name
    assert not list(folder.glob("ranks-*"))


def test_two_devices_translate_at_each_point_as_one_does(tmp_path, monkeypatch, forking):
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    learnt = {"training.steps": 60, "training.batch_size": 8, "optimizer.peak_lr": 0.01, "evaluation.points": 3}
    asked = {"evaluation.translations": 8, "evaluation.beam": 2, "evaluation.translate_at": "points"}
    still = {f"model.{part}": 0.0 for part in ("dropout", "embedding_dropout")}
    system = tiny_system(parallel_text(tmp_path / "text"), **learnt, **asked, **still, **{"model.init_std": 0.18})
    made = system.to_dict()
    parts = "model", "format", "training", "optimizer", "schedule", "evaluation"
    shown = {f"{part}.{name}": made[part][name] for part in parts for name in made[part] if name != "kind"}
    grid = {
        "question": "Do two devices translate as one?",
        "base": "transformer_base",
        "set": shown | {"data.corpora": made["data"]["corpora"], "data.tokenizer.vocab_size": 340},
        "axes": {"objectives.lm.label_smoothing": [0.1]},
        "seeds": 1,
        "scales": {"smoke": {"description": "seconds"}},
        "metrics": [{"name": "heldout.bleu", "label": "BLEU"}],
    }
    file, curves = tmp_path / "tongues.yaml", []
    file.write_text(yaml.safe_dump(grid))
    for name, way in (("one", Execution()), ("two", TWO)):
        records = Records(tmp_path / name)
        found = plan(grids.read(file), "smoke", records=records)
        execute(found, records, retries=0, execution=way)
        (record,) = records.all()
        assert record.outcome == "done", record.detail
        curves.append(record.curve)
    one, two = curves
    assert len(one["heldout.chrf"]) == len(two["heldout.chrf"]) == 3
    assert two["heldout.next_loss"] == pytest.approx(one["heldout.next_loss"], rel=NEAR)
    assert two["heldout.chrf"] == pytest.approx(one["heldout.chrf"], abs=0.5)
    assert one["heldout.chrf"][-1] > 0
