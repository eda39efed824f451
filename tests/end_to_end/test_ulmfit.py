"""The three stages of ULMFiT, really trained: each from the one before, each resumed to the bit."""

import pytest
import torch
from safetensors.torch import load_file

from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.pretraining import fit
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.tasks.protocols import PROTOCOLS
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as simple
from tests.end_to_end.test_training import stop_after
from tests.toy import toy_task

SMALL = {
    "model.num_layers": 2, "model.hidden_size": 24, "model.embedding_size": 16, "model.output_size": 16,
    "data.tokenizer.vocab_size": 70, "format.sequence_length": 16, "training.batch_size": 4, "training.steps": 8,
    "evaluation.sequences": 8, "evaluation.points": 2,
}  # fmt: skip
CLASSIFIER = {"epochs": 5, "batch_size": 16, "max_length": 64, "window": 8, "precision": "fp32"}


@pytest.fixture
def ulmfit(tmp_path):
    general, target = (simple.text(tmp_path / name, documents) for name, documents in (("general", 24), ("target", 12)))
    start = {**SYSTEMS["ulmfit"].training.start, "data.corpora": [general], "training.steps": 6}
    start["data.tokenizer.vocab_size"] = 64
    return SYSTEMS["ulmfit"].but(**SMALL, **{"data.corpora": [target], "training.start": start})


def test_every_stage_starts_from_the_one_before_and_resumes_to_the_bit(ulmfit, tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    fit(ulmfit.ancestor(), 0, tmp_path / "general")
    general = tmp_path / "general" / WEIGHTS
    straight = fit(ulmfit, 0, tmp_path / "target", start=general)
    with pytest.raises(Interrupted):
        fit(ulmfit, 0, tmp_path / "again", start=general, stop=stop_after(5))
    torch.manual_seed(999)
    resumed = fit(ulmfit, 0, tmp_path / "again", start=general)
    assert (resumed.metrics, resumed.curve) == (straight.metrics, straight.curve)
    target, again = (load_file(tmp_path / name / WEIGHTS) for name in ("target", "again"))
    assert all(torch.equal(tensor, again[name]) for name, tensor in target.items())
    assert load_file(general)["backbone.embeddings.word.weight"].shape == (64, 16)
    assert target["backbone.embeddings.word.weight"].shape == (70, 16)

    settings = FineTuning().but(**{**PROTOCOLS["ulmfit"].settings("toy"), **CLASSIFIER})
    run = FinetuningRun(ulmfit, "toy", settings, 0, tmp_path / "target" / WEIGHTS)
    whole = finetune(run, tmp_path / "classifier")
    with pytest.raises(Interrupted):
        finetune(run, tmp_path / "classifier again", stop=stop_after(9))
    assert finetune(run, tmp_path / "classifier again").curve == whole.curve
    assert len(whole.curve["toy.accuracy"]) == 5, "the error after each epoch, as in Figure 4"
