"""Another task first: the chain of runs, the weights that go from one to the next, and questions to a tuned model."""

import pytest
import torch
from safetensors.torch import load_file

from ablations.planning import cells
from ablations.schema.run import Run
from lightning_modules.analysis.probes import answer
from lightning_modules.config import ConfigError
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.tasks.reading.passages import Question
from lightning_modules.tasks.shapes.span import Spans
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


@pytest.mark.parametrize("unanswerable", [False, True])
def test_an_answer_is_words_of_the_passage(tiny, toy, unanswerable):
    tuning = FinetuningRun(tiny, "toy", SETTINGS, 0, None)
    backbone, _ = tuning.networks()
    spans = Spans(unanswerable=unanswerable)
    head = spans.head(tiny.model.hidden_size, SETTINGS)
    passage = "w01 w02 w03 w04 w05 w06 w07 w08 w09 w10 w11 w12"
    asked = Question("q", "w05 w06", passage, ())
    said = answer((backbone.eval(), head.eval()), tuning.data.encoder, spans, 12, asked)
    assert said in passage
    assert said or unanswerable
    assert isinstance(tuning.data.encoder.vocabulary, Vocabulary)
