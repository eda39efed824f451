"""Tags, choices and mentions in the fine-tuning loop: batches do not matter, tiny models learn, records are full."""

import numpy as np
import pytest
import torch

from lightning_modules.finetuning.finetune import TASK
from lightning_modules.finetuning.run import finetune
from lightning_modules.tasks import TASKS, expected_work, pins
from lightning_modules.tasks.scores.kept import unpack
from tests.toy_shapes import COUNTS, TOYS, reading_task
from tests.tuning import tunings

SETTINGS, tuning = tunings(epochs=8)
SHAPES = [*((name, None) for name in TOYS), ("toy_spans", None), ("toy_spans", {})]


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for task in (*TOYS.values(), reading_task()):
        monkeypatch.setitem(TASKS, task.name, task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})


@pytest.mark.parametrize(("name", "beam"), SHAPES)
def test_an_answer_does_not_depend_on_the_rest_of_its_batch(tiny, name, beam):
    run = tuning(tiny, task=name, span_beam=beam)
    module, inputs = run.build().eval(), run.data.train
    order = np.argsort(inputs.sizes.max(1))[[-1, 0, len(inputs) // 2]]
    together = inputs.batch(order)
    found = module.head.by_item(module(together), together)
    assert len(found) == 3
    for number, item in zip(order, found, strict=True):
        alone = inputs.batch(np.array([number]))
        (one,) = module.head.by_item(module(alone), alone)
        assert torch.allclose(item, one, atol=1e-6)
    assert together.inputs.real.sum() == inputs.sizes[order].sum()


@pytest.mark.parametrize(("name", "beam"), SHAPES)
def test_losses_add_up_whatever_the_batches(tiny, name, beam):
    run = tuning(tiny, task=name, span_beam=beam)
    module, inputs = run.build().eval(), run.data.train
    batches = [inputs.batch(np.arange(5)), inputs.batch(np.arange(2)), inputs.batch(np.arange(2, 5))]
    terms = [module.terms(module.backbone(example), example)[TASK] for example in batches]
    whole, *parts = (torch.stack([total, torch.tensor(count)]) for total, count, _ in terms)
    assert torch.allclose(whole, parts[0] + parts[1], rtol=1e-5)


@pytest.mark.parametrize("name", TOYS)
def test_a_tiny_model_learns_it_and_the_record_is_full(tiny, name, tmp_path):
    run, main = tuning(tiny, task=name), TOYS[name].main
    fitted = finetune(run, tmp_path)
    shape = TOYS[name].shape
    simple = {method: fitted.metrics[f"{name}.{main}.{method}"] for method in shape.methods}
    assert fitted.metrics[f"{name}.{main}"] > max(0.7, simple["majority"] + 0.2)
    assert {f"{name}.{metric}" for metric in TOYS[name].metrics} <= set(fitted.metrics)
    right = unpack(fitted.examples["right"])
    assert len(right) == COUNTS["dev"]
    if "answer" in fitted.examples:
        labels = run.data.dev.examples.labels
        assert (unpack(fitted.examples["answer"]) == labels).tolist() == right.tolist()
        assert fitted.metrics[f"{name}.accuracy"] == pytest.approx(right.mean())


@pytest.mark.parametrize("name", TOYS)
def test_some_examples_are_a_part_of_all_and_work_is_near_what_is_planned(tiny, name):
    data = tuning(tiny, task=name, train_examples=20).data
    whole = TOYS[name].examples("train").items_for_pin()
    assert len(data.train.examples) == 20
    assert all(item in whole for item in data.train.examples.items_for_pin())
    steps, positions, _ = expected_work(tiny, name, SETTINGS)
    batches = tuning(tiny, task=name).data.train_dataloader()
    assert steps == pytest.approx(len(batches), rel=0.1)
    assert 0.5 < positions / batches.shapes[:, 2].sum() < 2
