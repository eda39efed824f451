"""Output layers of language models: BERT's transform and bias, or the word table alone."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError, identity
from lightning_modules.model import Transformer
from lightning_modules.objectives import LanguageModel
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary

MODEL = Transformer(num_layers=1, hidden_size=16, num_heads=2, max_positions=16, direction="left_to_right")
CHOICES = [("bert", True), ("bert", False), ("none", True), ("none", False)]


def built(objective, model=MODEL):
    torch.manual_seed(0)
    example = objective.corrupt(Example.of(make_tokens()), make_draws(), make_vocabulary())
    return objective.heads(model.size(50)), model.build(50).eval()(example), example


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


CLUSTERED = [((20, 35), True), ((20, 35), False), ((1,), True), ((10, 11, 49), True)]


@pytest.mark.parametrize(("cutoffs", "bias"), CLUSTERED)
def test_an_adaptive_softmax_by_its_formula(cutoffs, bias):
    """Word by word, in the order of ids: that of its cluster times its own within the cluster; all add up to 1."""
    objective = LanguageModel(transform="none", bias=bias, cutoffs=cutoffs)
    heads, encoded, example = built(objective)
    head = heads["vocabulary"]
    if bias:
        torch.nn.init.normal_(head.bias)
        torch.nn.init.normal_(head.adaptive.clusters.bias)
    states, table = encoded.at(example.targets["next"].where), encoded.table
    found = objective.logits(heads, encoded, example)
    scores = states @ table.T + (head.bias if bias else 0.0)
    clusters = head.adaptive.clusters(states)
    first = torch.cat([scores[:, : cutoffs[0]], clusters], 1).softmax(1)
    for word in range(50):
        cluster = sum(word >= cutoff for cutoff in cutoffs)
        wanted = first[:, cutoffs[0] + cluster - 1 if cluster else word]
        if cluster:
            begin, end = (*cutoffs, 50)[cluster - 1 : cluster + 1]
            wanted = wanted * scores[:, begin:end].softmax(1)[:, word - begin]
        assert torch.allclose(found[:, word].exp(), wanted, atol=1e-6)
    assert torch.allclose(found.exp().sum(1), torch.ones(len(found)), atol=1e-5)


@pytest.mark.parametrize(("cutoffs", "bias"), CLUSTERED)
@pytest.mark.parametrize("transform", ["bert", "none"])
def test_the_loss_of_an_adaptive_softmax_is_that_of_its_probabilities(cutoffs, bias, transform):
    objective = LanguageModel(transform=transform, bias=bias, cutoffs=cutoffs)
    heads, encoded, example = built(objective)
    ids = example.targets["next"].ids
    wanted = -objective.logits(heads, encoded, example).gather(1, ids[:, None]).sum()
    total = objective.loss(heads, encoded, example)["next"]
    assert torch.allclose(total, wanted)
    parts = [encoded.table, *heads.parameters()]
    for one, other in zip(*(torch.autograd.grad(loss, parts, retain_graph=True) for loss in (total, wanted))):
        assert torch.allclose(one, other, atol=1e-5)


def test_cutoffs_that_cannot_be():
    for cutoffs in ([20, 20], [40, 20], [0, 20]):
        with pytest.raises(ConfigError, match=r"cutoffs .* must be ascending ids above 0"):
            SYSTEMS["gpt"].but(**{"objectives.lm.cutoffs": cutoffs})
    with pytest.raises(ConfigError, match=r"cutoffs \[20, 64\] must be below data.tokenizer.vocab_size 64"):
        SYSTEMS["gpt"].but(**{"objectives.lm.cutoffs": [20, 64], "data.tokenizer.vocab_size": 64})


def test_transformer_xls_clusters_are_1233_parameters():
    plain = SYSTEMS["transformer_xl_base"]
    adaptive = plain.but(**{"objectives.lm.cutoffs": [20_000, 40_000, 200_000]})
    assert adaptive.parameters() - plain.parameters() == 3 * 410 + 3


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
