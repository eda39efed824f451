"""The fine-tuning loop: what it starts from, what it reads, its losses, and that any Trainer runs it."""

import math

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.scores.kept import PROBABILITY, unpack, unpack_probabilities
from tests.messages import naming
from tests.tuning import tunings

SETTINGS, tuning = tunings()

QUIET = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0, "accelerator": "cpu",
}  # fmt: skip


def weights(system, folder):
    """The file of weights of an untrained system."""
    module = system.build(7)
    save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, folder / "w.safetensors")
    return folder / "w.safetensors", module


def test_it_starts_from_the_pretrained_backbone(tiny, tmp_path):
    path, pretrained = weights(tiny, tmp_path)
    module = tuning(tiny, path).build()
    for name, tensor in pretrained.backbone.state_dict().items():
        assert torch.equal(module.backbone.state_dict()[name], tensor), name
    scratch = tuning(tiny).build()
    assert not torch.equal(scratch.backbone.embeddings.word.weight, pretrained.backbone.embeddings.word.weight)
    assert torch.equal(scratch.head.output.weight, module.head.output.weight)
    other = tuning(tiny, path, seed=1).build()
    assert not torch.equal(other.head.output.weight, module.head.output.weight)


@pytest.mark.parametrize("name", ["toy", "toy_pairs", "toy_numbers"])
def test_a_plain_trainer_learns_a_task(tiny, name):
    run = tuning(tiny, task=name, epochs=12)
    data = run.data
    module = run.build()
    trainer = pl.Trainer(max_epochs=1, **QUIET)
    before = trainer.validate(module, data, verbose=False)[0]
    torch.manual_seed(0)  # dropout
    trainer = pl.Trainer(max_epochs=1, **QUIET)
    trainer.fit(module, data)
    assert trainer.global_step == module.steps
    after = trainer.validate(module, data, verbose=False)[0]
    assert set(after) == {"dev.loss", *(f"dev.{metric}" for metric in TASKS[name].metrics)}
    assert after["dev.loss"] < before["dev.loss"]
    assert after[f"dev.{TASKS[name].main}"] > 0.6  # the majority has 0.5, a constant 0
    assert math.isfinite(module.training_loss()["loss"])


def test_the_dev_loss_is_the_exact_mean(tiny):
    run = tuning(tiny, batch_size=7)
    data, module = run.data, run.build()
    found = pl.Trainer(**QUIET).validate(module, data, verbose=False)[0]
    whole = data.dev.batch(np.arange(len(data.dev)))
    with torch.no_grad():
        outputs = module.eval()(whole)
    labels = torch.from_numpy(data.dev.labels)
    assert found["dev.loss"] == pytest.approx(float(F.cross_entropy(outputs, labels)), rel=1e-5)
    assert found["dev.accuracy"] == pytest.approx(float((outputs.argmax(1) == labels).float().mean()))


@pytest.mark.parametrize("name", ["toy", "toy_pairs", "toy_numbers"])
def test_scores_keep_the_probabilities_of_classes_in_the_order_of_the_examples(tiny, name):
    data = tuning(tiny, task=name).data
    outputs = np.random.default_rng(1).normal(0, 3, (len(data.dev), 2 if TASKS[name].shape.classes else 1))
    kept = data.score(list(outputs[data.val_dataloader().order])).kept
    if name == "toy_numbers":
        assert PROBABILITY not in kept
        return
    found = unpack_probabilities(kept[PROBABILITY], 2)
    assert found[:, 1] == pytest.approx(1 / (1 + np.exp(outputs[:, 0] - outputs[:, 1])), abs=1e-4)
    assert (found.argmax(1) == unpack(kept["answer"])).all()


def test_a_trainer_that_clips_otherwise_than_the_recipe_is_refused(tiny):
    run = tuning(tiny, clip_norm=1.0)
    with pytest.raises(ConfigError, match=r"gradient_clip_val: the Trainer asks for 0\.5.*finetuning\.clip_norm"):
        pl.Trainer(max_epochs=1, gradient_clip_val=0.5, **QUIET).fit(run.build(), run.data)
    by_value = {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}
    with pytest.raises(ConfigError, match=naming("gradient_clip_algorithm", "value", "finetuning.clip_norm")):
        pl.Trainer(max_epochs=1, **by_value, **QUIET).fit(run.build(), run.data)


def test_data_modules_are_shown_by_what_they_hold(tiny):
    """Lightning's own text draws batches and fails on ours."""
    for fresh, opened, words in (
        (tuning(tiny, seed=3).data, "train", ("Low", "8", "3")),
        (tiny.data_module(seed=3), "sequences", (*tiny.data.corpora, "16", "12", "8", "3")),
    ):
        before = str(fresh)
        assert opened not in vars(fresh), "nothing is opened to be shown"
        getattr(fresh, opened)
        assert str(fresh) == repr(fresh) == before
        assert all(word in before for word in words)
