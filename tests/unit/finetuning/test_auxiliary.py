"""The language model's loss beside a task's: its head, its weight, its counts, its work; and what has no such model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytorch_lightning import Trainer

from lightning_modules.config import ConfigError
from lightning_modules.finetuning.finetune import TASK
from lightning_modules.finetuning.run import finetune, finetuned
from lightning_modules.tasks import fitting
from lightning_modules.training.weights import WEIGHTS, keep_weights
from tests.tuning import tunings

SETTINGS, tuning = tunings(dropout=0.0, layout="extract", pooler=False, auxiliary_lm=0.5)
READS = {
    "left_to_right": {
        "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right",
        "model.embedding_dropout": 0.0, "model.dropout": 0.0, "model.attention_dropout": 0.0,
    },
    "right_to_left": {
        "objectives.mlm": None, "objectives.lm.direction": "right_to_left", "model.direction": "right_to_left",
    },
    "both": {},
    "masked, left to right": {"model.direction": "left_to_right"},
}  # fmt: skip


@pytest.fixture
def gpt(tiny):
    return tiny.but(**READS["left_to_right"])


@pytest.fixture
def weights(gpt, tmp_path):
    """The weights of a model whose head is unlike any fresh one."""
    module = gpt.build(seed=3)
    with torch.no_grad():
        for parameter in module.heads.parameters():
            parameter.add_(torch.randn(parameter.shape) / 10)
    keep_weights(module, tmp_path)
    return tmp_path / WEIGHTS


def step_of(module, example):
    module.zero_grad()
    module.training_step(example, 0).backward()
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters() if parameter.grad is not None}


def prepared(gpt, task, weights, **changes):
    return tuning(gpt, weights, task=task, **changes)


@pytest.mark.parametrize("task", ["toy", "toy_pairs", "toy_options"])
def test_the_pretrained_head_is_asked_for_every_next_piece_of_every_row(gpt, weights, task):
    """Counted one by one: the first piece from [start], wrong options included, symbols and padding never."""
    tuning = prepared(gpt, task, weights)
    module = tuning.build().eval()
    assert module.heads.lm.vocabulary.bias.abs().max() > 0.1, "it is the pretrained one"
    example = next(iter(tuning.data.train_dataloader()))
    encoded = module.backbone(example)
    tokens, expected, count = example.inputs, 0.0, 0
    for row in range(len(tokens.ids)):
        for place in range(tokens.ids.shape[1] - 1):
            if tokens.real[row, place + 1] and not tokens.special[row, place + 1]:
                logits = module.heads.lm.vocabulary(encoded.last[row, place][None], encoded)
                assert logits.shape[1] == 64, "no new symbol can be predicted"
                expected += F.cross_entropy(logits, tokens.ids[row, place + 1][None]).item()
                count += 1
    total, counted, weight = module.terms(encoded, example)["next"]
    assert counted == count == int((tokens.real & ~tokens.special).sum())
    assert weight == 0.5
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_micro_batches_have_the_gradient_of_the_whole_batch(gpt, weights):
    """Rows of uneven lengths: a mean of means would weigh short rows more, in either term."""
    tuning = prepared(gpt, "toy_options", weights)
    inputs = tuning.data.train_dataloader().inputs
    order = np.argsort(inputs.sizes.max(1), kind="stable")
    numbers = np.concatenate([order[:5], order[-2:]])
    whole = step_of(tuning.build(), inputs.batch(numbers))
    module, parts = tuning.build(), [inputs.batch(part) for part in (numbers[:5], numbers[5:])]
    counts = dict.fromkeys((TASK, "next"), 0.0)
    for part in parts:
        for name, (_, count, _) in module.terms(module.backbone(part), part).items():
            counts[name] += count
    assert counts[TASK] == 7
    module.trainer = Trainer(accumulate_grad_batches=2, logger=False, enable_checkpointing=False)
    module.zero_grad()
    for part in parts:
        (module.training_step(replace(part, counts=counts), 0) / 2).backward()  # Lightning divides by their number
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(parameter.grad, whole[name], atol=1e-6), name


def test_it_trains_is_recorded_and_opens_again(gpt, weights, tmp_path):
    run = prepared(gpt, "toy", weights, epochs=8)
    fitted = finetune(run, tmp_path / "tuned")
    curve = fitted.curve["toy.train_next_loss"]
    assert curve[-1] < curve[0]
    assert fitted.metrics["toy.train_next_loss"] == curve[-1]
    plain = finetune(prepared(gpt, "toy", weights, epochs=8, auxiliary_lm=0.0), tmp_path / "plain")
    assert fitted.metrics["toy.dev_loss"] != plain.metrics["toy.dev_loss"]
    assert fitted.metrics["toy.dev_loss"] < 1.0, "the task's alone"
    backbone, head = finetuned(run, tmp_path / "tuned" / WEIGHTS)
    example = run.data.dev.batch(np.arange(4))
    assert head(backbone(example), example).shape == (4, 2)
    after = tuning(gpt, tmp_path / "tuned" / WEIGHTS, task="toy_pairs").build()
    first = prepared(gpt, "toy", weights).build()
    assert not after.heads.lm.vocabulary.bias.equal(first.heads.lm.vocabulary.bias), "the head that the first trained"


def test_its_work_is_counted(gpt):
    none, some, more = (SETTINGS.but(auxiliary_lm=w).flops_per_sequence(gpt, 16, 1.0) for w in (0.0, 0.5, 1.0))
    assert some == more
    assert some - none == 3 * gpt.objectives.lm.flops_per_sequence(16, gpt.model.size(64))


def test_a_memory_of_pretraining_is_no_work_of_a_fine_tuning(gpt):
    """Rows of a task follow no others."""
    stream = {"model.positions": "relative", "format.kind": "stream", "format.frame": "none"}
    without, remembering = (gpt.but(**stream, **{"model.memory_length": n}) for n in (0, 24))
    assert remembering.flops() > without.flops()
    for weight in (0.0, 0.5):
        one, other = (SETTINGS.but(auxiliary_lm=weight).flops_per_sequence(s, 16, 1.0) for s in (without, remembering))
        assert one == other


def test_from_scratch_its_head_is_new(gpt):
    tuning = prepared(gpt, "toy", None, from_scratch=True)
    assert tuning.build().heads.lm.vocabulary.bias.abs().max() == 0


class TestRefusals:
    @pytest.mark.parametrize("reads", ["right_to_left", "both", "masked, left to right"])
    def test_of_models_that_were_not_pretrained_on_next_tokens(self, tiny, reads):
        message = r"finetuning\.auxiliary_lm: 0\.5 continues with a left-to-right language model.*set it to 0"
        with pytest.raises(ConfigError, match=message):
            fitting.check(tiny.but(**READS[reads]), "toy", SETTINGS)
        fitting.check(tiny.but(**READS[reads]), "toy", SETTINGS.but(auxiliary_lm=0.0))
