"""Another task first: the chain of runs, the weights that go from one to the next, and questions to a tuned model."""

import pytest
import torch
from safetensors.torch import load_file

from ablations.planning import cells
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.finetuning.run import finetune, finetuned
from lightning_modules.tasks import pins
from lightning_modules.training.weights import WEIGHTS
from tests.tuning import planned, tunings

SETTINGS, tuning = tunings(**{"epochs": 1, "batch_size": 16, "optimizer.peak_lr": 1e-3})


def test_the_chain_follows_from_the_settings(tiny):
    plain, run = (planned(tiny, SETTINGS.but(first=first), seed=3) for first in (None, "toy_numbers"))
    before = Run.finetuning_of(plain.start, "toy_numbers", pins.fingerprint("toy_numbers"), SETTINGS)
    assert (run.start, run.parents) == (before, (before.id,))
    assert Run.read(run.to_dict()).id == run.id != plain.id


def test_weights_go_from_one_to_the_next(tiny, tmp_path):
    finetune(tuning(tiny, task="toy_pairs"), tmp_path / "first")
    left = load_file(tmp_path / "first" / WEIGHTS)
    after = tuning(tiny, tmp_path / "first" / WEIGHTS).build()
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


def test_frozen_encoders_are_refused(tiny, tmp_path):
    with pytest.raises(ConfigError, match="a frozen encoder learns nothing"):
        cells.finetuning({"finetuning.first": "mrpc", "finetuning.features.layers": "last"}, "rte")
    frozen = SETTINGS.but(**{"features": {"layers": "last", "bilstm_layers": 0}})
    with pytest.raises(ConfigError, match="no whole model"):
        finetuned(tuning(tiny, settings=frozen), tmp_path / WEIGHTS)
