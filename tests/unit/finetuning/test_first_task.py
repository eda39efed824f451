"""Another task first: the chain of runs, the weights that go from one to the next, and questions to a tuned model."""

import pytest
import torch
from safetensors.torch import load_file

from ablations.planning import cells
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import FinetuningRun, finetune, finetuned
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.training.weights import WEIGHTS
from tests.toy import toy_task

SETTINGS = FineTuning().but(
    **{"epochs": 1, "batch_size": 16, "max_length": 16, "precision": "fp32", "optimizer.peak_lr": 1e-3}
)


@pytest.fixture
def toy(monkeypatch):
    for name in ("toy", "other"):
        monkeypatch.setitem(TASKS, name, toy_task(name))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})


def runs(system, **changes):
    pretrained = Run.pretraining(system, 3, dict.fromkeys(system.data.corpora, "text"))
    return pretrained, Run.finetuning_of(pretrained, "toy", "print", SETTINGS.but(**changes))


def test_the_chain_follows_from_the_settings(tiny, toy):
    pretrained, run = runs(tiny, first="other")
    assert run.start.task == "other"
    assert run.start.seed == 3
    assert run.start == Run.finetuning_of(pretrained, "other", pins.fingerprint("other"), SETTINGS)
    assert run.parents == (run.start.id,)
    assert run.start.start == pretrained
    assert Run.read(run.to_dict()).id == run.id
    assert runs(tiny)[1].start == pretrained
    assert runs(tiny)[1].id != run.id


def test_weights_go_from_one_to_the_next(tiny, toy, tmp_path):
    finetune(FinetuningRun(tiny, "other", SETTINGS, 0, None), tmp_path / "first")
    left = load_file(tmp_path / "first" / WEIGHTS)
    after = FinetuningRun(tiny, "toy", SETTINGS, 0, tmp_path / "first" / WEIGHTS).build()
    for name, tensor in after.backbone.state_dict().items():
        assert torch.equal(tensor, left[f"backbone.{name}"]), name
    assert torch.equal(after.head.pooler.weight, left["head.pooler.weight"])
    assert not torch.equal(after.head.output.weight, left["head.output.weight"])


def test_the_first_task_is_a_knob(tiny):
    assert cells.finetuning({"finetuning.first": "mrpc"}, "rte").first == "mrpc"
    assert cells.finetuning({"finetuning.first": "mrpc"}, "mrpc").first is None
    with pytest.raises(ConfigError, match=r"no task 'mrcp'. Did you mean 'mrpc'"):
        cells.finetuning({"finetuning.first": "mrcp"}, "rte")
    with pytest.raises(ConfigError, match="random weights"):
        cells.finetuning({"finetuning.first": "mrpc", "finetuning.from_scratch": True}, "rte")


def test_frozen_encoders_are_refused(tiny, toy, tmp_path):
    with pytest.raises(ConfigError, match="a frozen encoder learns nothing"):
        cells.finetuning({"finetuning.first": "mrpc", "finetuning.features.layers": "last"}, "rte")
    frozen = SETTINGS.but(**{"features": {"layers": "last", "bilstm_layers": 0}})
    with pytest.raises(ConfigError, match="no whole model"):
        finetuned(FinetuningRun(tiny, "toy", frozen, 0, None), tmp_path / WEIGHTS)
