"""ELMo, really trained on a small text: its measures, its resumption to the bit, and its use as features."""

import math

import pytest
import torch
from safetensors.torch import load_file

from lightning_modules.finetuning.run import FinetuningRun, finetune
from lightning_modules.pretraining import fit
from lightning_modules.systems import ELMO
from lightning_modules.tasks import TASKS, FineTuning, pins
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.training.weights import WEIGHTS
from tests import tiny as simple
from tests.end_to_end.test_training import stop_after
from tests.toy import toy_task

SMALL = {
    "model.hidden_size": 8, "model.embedding_size": 8, "model.cell_size": 12, "model.characters.filters": [4, 4, 8],
    "model.characters.size": 4, "model.characters.highways": 1, "data.tokenizer.vocab_size": 300,
    "objectives.lm.negatives": 40, "format.sequence_length": 16, "training.batch_size": 4, "training.steps": 8,
    "evaluation.sequences": 8, "evaluation.points": 2,
}  # fmt: skip
FROZEN = {"epochs": 2, "batch_size": 16, "max_length": 32, "precision": "fp32", "optimizer.peak_lr": 1e-2}


@pytest.fixture
def elmo(tmp_path):
    return ELMO.but(**SMALL, **{"data.corpora": [simple.text(tmp_path / "text")]})


def test_it_trains_and_resumes_to_the_bit(elmo, tmp_path):
    """Dropout and the samples of words are drawn alike after a kill; 5 of 8 steps lie between two evaluations."""
    straight = fit(elmo, 0, tmp_path / "straight")
    with pytest.raises(Interrupted):
        fit(elmo, 0, tmp_path / "again", stop=stop_after(5))
    torch.manual_seed(999)
    resumed = fit(elmo, 0, tmp_path / "again")
    assert (resumed.metrics, resumed.curve) == (straight.metrics, straight.curve)
    one, other = (load_file(tmp_path / name / WEIGHTS) for name in ("straight", "again"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    losses = [straight.metrics[f"heldout.{way}_word_loss"] for way in ("next", "previous")]
    assert straight.metrics["heldout.word_perplexity"] == pytest.approx(sum(map(math.exp, losses)) / 2)
    assert losses[0] < math.log(300)


def test_micro_batches_have_the_gradient_of_the_whole(elmo):
    """Words are counted over the step, and characters are of each micro-batch."""
    exact = elmo.but(**{"objectives.lm.negatives": 0, "model.dropout": 0.0, "model.embedding_dropout": 0.0})
    gradients = []
    for size in (4, 2):
        system = exact.but(**{"training.micro_batch_size": size})
        module, batches = system.build(0), system.data_module(0).train_dataloader()
        for example in batches.step(0):
            terms = module.objectives.loss(module.heads, module(example), example)
            sum(weight * total / example.counts[name] for name, (total, _, weight) in terms.items()).backward()
        gradients.append([parameter.grad for parameter in module.parameters()])
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(*gradients, strict=True))


def test_frozen_it_is_read_by_a_task(elmo, tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    fit(elmo, 0, tmp_path / "elmo")
    for layers in ("weighted_sum_all", "last", "embeddings"):
        settings = FineTuning().but(**FROZEN, **{"features": {"layers": layers, "bilstm_size": 8}})
        run = FinetuningRun(elmo, "toy", settings, 0, tmp_path / "elmo" / WEIGHTS)
        assert 0 <= finetune(run, tmp_path / layers).metrics["toy.accuracy"] <= 1
    tuned = FinetuningRun(elmo, "toy", FineTuning().but(**FROZEN), 0, tmp_path / "elmo" / WEIGHTS)
    assert 0 <= finetune(tuned, tmp_path / "tuned").metrics["toy.accuracy"] <= 1
