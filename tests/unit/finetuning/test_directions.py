"""Fine-tuning of models that read one way: whose state stands for a text, and a BiLSTM on top."""

import numpy as np
import pytest
import torch

from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.layers.bilstm import BiLSTMOnTop
from lightning_modules.tasks import TASKS, FineTuning, pins
from tests.toy import toy_task

SETTINGS = FineTuning().but(
    **{"epochs": 6, "batch_size": 8, "max_length": 16, "precision": "fp32", "optimizer.peak_lr": 1e-2}
)
WAYS = ("left_to_right", "right_to_left", "two_way")


@pytest.fixture
def toy(monkeypatch):
    """A task of single texts and one of pairs that a tiny model learns."""
    for task in (toy_task("toy"), toy_task("toy_pairs", shape="pair")):
        monkeypatch.setitem(TASKS, task.name, task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})


def reading(tiny, direction):
    return tiny.but(**{"model.direction": direction, "model.num_layers": 2})


@pytest.mark.parametrize(
    ("direction", "bilstm", "expected"),
    [
        ("both", 0, "first"), ("left_to_right", 0, "last"), ("right_to_left", 0, "first"), ("two_way", 0, "ends"),
        ("both", 1, "ends"), ("left_to_right", 1, "ends"),
    ],
)  # fmt: skip
def test_by_default_it_is_the_state_that_has_seen_all(direction, bilstm, expected):
    settings = SETTINGS.but(bilstm_layers=bilstm)
    assert settings.reading(direction).reader == expected
    assert settings.but(reader="first").reading(direction).reader == "first"
    if not bilstm:
        frozen = settings.but(**{"features.layers": "concat_last_four"}).reading(direction).reader
        assert frozen == {"ends": "first"}.get(expected, expected)


@pytest.mark.parametrize("bilstm", [0, 1])
@pytest.mark.parametrize("direction", ["both", *WAYS])
@pytest.mark.parametrize("task", ["toy", "toy_pairs"])
def test_every_token_of_a_text_is_heard_and_no_padding(tiny, toy, direction, task, bilstm):
    """The answer follows from each token, whichever way the model reads, and from nothing else in the batch."""
    tuning = FinetuningRun(reading(tiny, direction), task, SETTINGS.but(bilstm_layers=bilstm), 0, None)
    module, inputs = tuning.build().eval(), tuning.data.train
    order = np.argsort(inputs.sizes[:, 0])
    number, longest = int(order[len(order) // 2]), int(order[-1])
    example = inputs.batch(np.array([number]))
    together = module(inputs.batch(np.array([longest, number])))[1]
    answer = module(example)
    assert torch.allclose(together, answer[0], atol=1e-6)
    for place in range(1, example.inputs.ids.shape[1]):
        changed = inputs.batch(np.array([number]))
        changed.inputs.ids[0, place] = (changed.inputs.ids[0, place] - 5 + 7) % 59 + 5
        assert not torch.equal(module(changed), answer), place


def test_the_bilstm_is_new_and_learns_with_everything_below(tiny, toy, tmp_path):
    settings = SETTINGS.but(bilstm_layers=2)
    tuning = FinetuningRun(reading(tiny, "left_to_right"), "toy", settings, 0, None)
    module = tuning.build()
    assert isinstance(module.backbone, BiLSTMOnTop)
    assert module.backbone.width == 16
    example = next(iter(tuning.data.train_dataloader()))
    assert module.backbone(example).last.shape[-1] == 16
    module.train()(example).square().sum().backward()
    still = {name for name, p in module.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert not still
    fitted = finetune(tuning, tmp_path)
    assert fitted.metrics["toy.accuracy"] > 0.6


def test_the_encoder_below_is_the_pretrained_one(tiny, toy, tmp_path):
    from tests.unit.finetuning.test_finetune import weights

    system = reading(tiny, "left_to_right")
    path, pretrained = weights(system, tmp_path)
    module = FinetuningRun(system, "toy", SETTINGS.but(bilstm_layers=1), 0, path).build()
    for name, tensor in pretrained.backbone.state_dict().items():
        assert torch.equal(module.backbone.encoder.state_dict()[name], tensor), name


def test_work_of_the_bilstm_is_counted(tiny):
    plain, more = (SETTINGS.but(bilstm_layers=n).flops_per_sequence(tiny, 16, 1.0) for n in (0, 1))
    assert more - plain == 3 * 16 * 2 * (2 * 4 * 8 * (16 + 8))  # gates of two directions, each 8 wide, reading 16
