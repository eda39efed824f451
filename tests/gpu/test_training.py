"""Trainings on the device that they choose: they resume, end as `oom` where memory does, and make whole grids."""

import json

import pytest
import torch
from safetensors.torch import load_file

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import inference
from ablations.running.execute import execute
from ablations.study import Study
from lightning_modules.pretraining import fit
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.training.execution import Execution
from lightning_modules.training.module import Pretrain
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as tiny_grid
from tests.end_to_end.test_training import RESUMED, stop_after
from tests.gpu.conftest import CUDA, NONE

# sums of bf16 products differ by their order, which a GPU does not fix
NEAR = 0.02
RATE = "objectives.mlm.masking.rate"


def used(device: str) -> bool:
    """Whether this process has computed on the device since the peak was reset."""
    return device == "cpu" or torch.cuda.max_memory_allocated() > 0


@pytest.mark.parametrize("changes", RESUMED)
def test_a_training_resumes(tiny, trained_on, tmp_path, changes):
    """To the bit on a CPU; on a GPU to the order of its sums. Its weights load anywhere."""
    system = tiny.but(**RESUMED[changes] | {"training.precision": "bf16"})
    if trained_on == "cuda":
        torch.cuda.reset_peak_memory_stats()
    straight = fit(system, 0, tmp_path / "straight")
    with pytest.raises(Interrupted):
        fit(system, 0, tmp_path / "resumed", stop=stop_after(7))
    torch.manual_seed(999)
    resumed = fit(system, 0, tmp_path / "resumed")
    assert used(trained_on)
    assert resumed.curve.keys() == straight.curve.keys()
    for name, values in straight.curve.items():
        assert resumed.curve[name] == (values if trained_on == "cpu" else pytest.approx(values, rel=NEAR)), name
    weights = load_file(tmp_path / "resumed" / WEIGHTS)
    system.build(0).load_state_dict(weights)
    for name, tensor in load_file(tmp_path / "straight" / WEIGHTS).items():
        assert torch.isfinite(weights[name]).all()
        if trained_on == "cpu":
            assert torch.equal(tensor, weights[name]), name


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


def planned(tmp_path, records, **options):
    options = {"rates": "[0.15]", "seeds": 1, "steps": 4, **options}
    return plan(grids.read(tiny_grid.grid(tmp_path, **options)), "smoke", records=records)


def test_memory_that_runs_out_is_an_outcome_and_the_device_goes_on(trained_on, tmp_path, records, monkeypatch):
    """A pebibyte is asked of the device's own allocator, so the error is a real one."""
    real = Pretrain.training_step

    def greedy(self, example, index):
        torch.empty(1 << 50, dtype=torch.uint8, device=self.device)
        return real(self, example, index)

    with monkeypatch.context() as patched:
        patched.setattr(Pretrain, "training_step", greedy)
        summary = execute(planned(tmp_path, records), records, "inline")
    assert summary.outcomes == {"oom": 1}
    (record,) = records.all()
    assert "allocate" in record.detail
    again = execute(planned(tmp_path, records), records, "inline")
    assert again.outcomes == {"done": 1}


@pytest.mark.gpu
def test_a_model_too_large_for_the_memory_is_an_outcome(tmp_path, records):
    """What the allocator may take is cut to a few megabytes, which the model and its moments exceed."""
    if not torch.cuda.is_available():
        pytest.skip(NONE)
    file = tiny_grid.grid(tmp_path, rates="[0.15]", seeds=1, steps=4)
    file.write_text(file.read_text().replace("model.hidden_size: 16", "model.hidden_size: 1024"))
    torch.cuda.empty_cache()
    share = (torch.cuda.memory_reserved() + (32 << 20)) / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        summary = execute(plan(grids.read(file), "smoke", records=records), records, "inline")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert summary.outcomes == {"oom": 1}


@pytest.mark.gpu
def test_runs_that_share_a_device_are_near_what_they_are_alone(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip(NONE)
    found = {}
    for many in (1, 2):
        records = Records(tmp_path / str(many))
        summary = execute(
            planned(tmp_path, records, seeds=2, steps=20), records, {"kind": "local", "runs_per_device": many}
        )
        assert summary.outcomes == {"done": 2}
        found[many] = {record.id: record.metrics["heldout.loss"] for record in records.all()}
    assert found[2] == pytest.approx(found[1], rel=NEAR)


@pytest.mark.gpu
def test_compiled_layers_and_rounded_sizes_train_as_plain_ones(tiny, tmp_path):
    if not torch.cuda.is_available():
        pytest.skip(NONE)
    still = tiny.but(**{"model.dropout": 0.0, "model.attention_dropout": 0.0, "model.embedding_dropout": 0.0})
    plain, other = (
        fit(still, 0, tmp_path / str(asked), execution=Execution(compile_layers=asked)) for asked in (False, True)
    )
    assert plain.execution == {"sizes_in_multiples_of": 16}
    assert other.execution == plain.execution | {"compiled": True}
    assert other.curve["heldout.loss"] == pytest.approx(plain.curve["heldout.loss"], rel=NEAR)


SMALL = {"masking_ratio": {RATE: 0.15}}
GRIDS = ("masking_ratio", "pretraining_gain", "feature_layers", "sentence_objective")


@pytest.mark.parametrize(
    ("device", "name"),
    [("cpu", "masking_ratio"), *(pytest.param("cuda", name, marks=CUDA.marks) for name in GRIDS)],
    indirect=["device"],
)
def test_a_grid_runs_at_smoke_scale(trained_on, tmp_path, name):
    """Each run in a process of its own, on the device; pretraining, fine-tuning, frozen features and pairs."""
    study = Study(name, "smoke", seeds=1, filters=SMALL.get(name), results_dir=tmp_path)
    summary = study.run(executor="local")
    assert set(summary.outcomes) == {"done"}
    expected = "cpu" if trained_on == "cpu" else torch.cuda.get_device_name()
    assert {record.provenance["device"] for record in study.records.all()} == {expected}
    study.publish()
    assert json.loads((study.folder / "page.json").read_text())


def test_inference_is_measured(device):
    sizes = plan(grids.read("bert_model_size"), "smoke")
    measured = inference.measure(sizes.cells, inference.Setting(device=device, turns=2, seconds=0.0))
    assert (measured["threads"] is None) == (device == "cuda")
    for row in measured["cells"].values():
        assert row["1"]["ms"] > 0
        assert row["32"]["mb"] > row["1"]["mb"] > 4e-6 * row["parameters"]
