"""Penalties on the states of a recurrence against sums by hand, and who may have them."""

import pytest
import torch
from torch import nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.config import ConfigError
from lightning_modules.objectives import ActivationRegularization
from lightning_modules.systems import SYSTEMS
from lightning_modules.training.module import step_loss
from tests.conftest import make_tokens


def encoded(states, dropped):
    return Encoded(layers=[states], last=dropped, table=torch.zeros(1, 1))


def test_they_are_the_released_codes_means():
    """``alpha * dropped.pow(2).mean() + beta * (h[1:] - h[:-1]).pow(2).mean()`` where no position is padding."""
    states, dropped = torch.randn(4, 16, 6), torch.randn(4, 16, 6)
    penalty, example = ActivationRegularization(activation=2.0, temporal=1.0), Example.of(make_tokens())
    losses = penalty.loss(nn.ModuleDict(), encoded(states, dropped), example)
    counts = penalty.counts(example)
    found = {name: float(total) / counts[name] for name, total in losses.items()}
    assert found["activation"] == pytest.approx(2.0 * float(dropped.pow(2).mean()), rel=1e-5)
    assert found["temporal"] == pytest.approx(float((states[:, 1:] - states[:, :-1]).pow(2).mean()), rel=1e-5)


def test_padding_counts_nothing():
    tokens = make_tokens(padding=5)
    states = torch.where(tokens.real[..., None], torch.ones(4, 16, 6), torch.nan)
    states[:, 1] = 2.0
    penalty = ActivationRegularization(activation=1.0, temporal=1.0)
    losses = penalty.loss(nn.ModuleDict(), encoded(states, states), Example.of(tokens))
    counts = penalty.counts(Example.of(tokens))
    assert counts == {"activation": float(tokens.real.sum()), "temporal": float(tokens.real.sum()) - 4}
    assert float(losses["activation"]) == counts["activation"] + 4 * 3
    assert float(losses["temporal"]) == 4 * 2


def test_the_whole_loss_has_them_once(tiny):
    """In training only; the held-out loss is of words."""
    lstm = {"model.kind": "lstm", "model.hidden_size": 16, "model.embedding_size": None, "objectives.mlm": None,
            "objectives.lm.transform": "none"}  # fmt: skip
    system = tiny.but(**lstm, **{"objectives.activations.activation": 2.0})
    module = system.build(0)
    example = next(iter(system.data_module(0).train_dataloader()))
    output = module.backbone.eval()(example)
    terms = system.objectives.loss(module.heads, output, example)
    assert set(terms) == {"next", "activation", "temporal"} == set(example.counts)
    assert set(system.objectives.measure(module.heads, output, example)) == {"next_loss", "next_accuracy"}
    assert system.parameters() == tiny.but(**lstm).parameters()
    means = sum(float(total.detach()) / count for total, count, _ in terms.values())
    assert float(step_loss(terms, example.counts).detach()) == pytest.approx(means, rel=1e-5)


def test_a_transformer_has_none():
    with pytest.raises(ConfigError, match=r"objectives.activations needs recurrent states.*set model.kind to lstm"):
        SYSTEMS["gpt"].but(**{"objectives.activations.activation": 2.0})
