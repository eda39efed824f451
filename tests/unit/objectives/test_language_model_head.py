"""Output layers of language models: BERT's transform and bias, or the word table alone."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.backbones import Transformer
from lightning_modules.batch import Example
from lightning_modules.config import ConfigError, identity
from lightning_modules.objectives import LanguageModel
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary

MODEL = Transformer(num_layers=1, hidden_size=16, num_heads=2, max_positions=16, direction="left_to_right")
CHOICES = [("bert", True), ("bert", False), ("none", True), ("none", False)]


def built(objective, model=MODEL):
    torch.manual_seed(0)
    example = objective.corrupt(Example.of(make_tokens()), make_draws(), make_vocabulary())
    return objective.heads(model.size(50)), model.build(50).eval()(example), example


@pytest.mark.parametrize(("transform", "bias"), CHOICES)
def test_the_head_has_what_it_is_given_and_nothing_else(transform, bias):
    heads, _, _ = built(LanguageModel(transform=transform, bias=bias))
    counted = sum(parameter.numel() for parameter in heads.parameters())
    assert counted == (transform == "bert") * (16 * 16 + 16 + 2 * 16) + bias * 50


def test_without_both_logits_are_states_times_the_word_table():
    objective = LanguageModel(transform="none", bias=False)
    heads, encoded, example = built(objective)
    states = encoded.at(example.targets["next"].where)
    assert torch.equal(objective.logits(heads, encoded, example), states @ encoded.table.T)


@pytest.mark.parametrize(("transform", "bias"), CHOICES)
def test_the_loss_is_that_of_the_logits(transform, bias):
    objective = LanguageModel(transform=transform, bias=bias)
    heads, encoded, example = built(objective)
    wanted = torch.nn.functional.cross_entropy(
        objective.logits(heads, encoded, example), example.targets["next"].ids, reduction="sum"
    )
    total = objective.loss(heads, encoded, example)["next"]
    assert torch.allclose(total, wanted)
    for one, other in zip(
        *(torch.autograd.grad(loss, encoded.table, retain_graph=True) for loss in (total, wanted)), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(("transform", "bias"), CHOICES)
@pytest.mark.parametrize("direction", ["left_to_right", "two_way"])
def test_flops_are_those_that_torch_counts(transform, bias, direction):
    objective = LanguageModel(direction=direction, transform=transform, bias=bias)
    model = MODEL.but(direction=direction, num_layers=2)
    heads, encoded, example = built(objective, model)
    with FlopCounterMode(display=False) as counter:
        for name in objective.targets:
            objective.logits(heads, encoded, example, name)
    assert objective.flops_per_sequence(16, model.size(50)) * 4 == counter.get_total_flops()


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
def test_a_block_without_special_tokens_has_one_prediction_less_than_positions(name):
    system = SYSTEMS[name].but(
        **{
            "model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2, "data.tokenizer.vocab_size": 64,
            "format.sequence_length": 16, "training.batch_size": 1, "training.steps": 1,
        }
    )  # fmt: skip
    assert system.flops() == 3 * (system.model.flops_per_sequence(16) + 15 * 2 * 16 * 64)


def test_what_a_missing_transform_would_have_is_no_part_of_the_identity():
    system = SYSTEMS["gpt"]
    for path, value in (("objectives.lm.activation", "relu"), ("objectives.lm.norm_eps", 1e-5)):
        assert identity(system.but(**{path: value}).essence()) == identity(system.essence())


def test_states_that_do_not_fit_the_word_table_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"embedding_size to null, or objectives\.lm\.transform to bert"):
        SYSTEMS["gpt"].but(**{"model.embedding_size": 128})
    SYSTEMS["gpt"].but(**{"model.embedding_size": 128, "objectives.lm.transform": "bert"})
