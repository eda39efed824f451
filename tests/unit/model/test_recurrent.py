"""An LSTM in the transformer's place: what it computes, what it sees, what it is refused."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Example, Unsupported, Visibility
from lightning_modules.config import ConfigError, identity
from lightning_modules.model import Recurrent, Transformer
from lightning_modules.model.weights import shaping
from lightning_modules.pretraining import fit
from lightning_modules.tasks import Features, FineTuning
from lightning_modules.tasks.fitting import check
from lightning_modules.training.optimizers import parameter_groups
from tests.conftest import make_tokens
from tests.every import every

WAYS = ("left_to_right", "right_to_left", "two_way")
TINY = Recurrent(num_layers=2, hidden_size=12, embedding_size=8, init_std=0.2)
LSTM = {
    "model.kind": "lstm",
    "model.num_layers": 1,
    "model.hidden_size": 16,
    "model.embedding_size": 8,
    "objectives.mlm": None,
    "objectives.lm.direction": "left_to_right",
}


def encoder(**changes):
    torch.manual_seed(0)
    return TINY.but(**changes).build(50).eval()


@pytest.fixture
def lstm(tiny):
    """A language model of LSTM cells that trains in a second."""
    return tiny.but(**LSTM)


def by_hand(cell, rows):
    """The states of an LSTM over a row of inputs, by the equations."""
    weights = (cell.weight_ih_l0, cell.weight_hh_l0)
    bias = cell.bias_ih_l0 + cell.bias_hh_l0
    state = memory = torch.zeros(cell.hidden_size)
    states = []
    for x in rows:
        read, forget, new, out = (weights[0] @ x + weights[1] @ state + bias).chunk(4)
        memory = forget.sigmoid() * memory + read.sigmoid() * new.tanh()
        state = out.sigmoid() * memory.tanh()
        states.append(state)
    return torch.stack(states)


@torch.no_grad()
@every("direction", WAYS)
def test_states_are_those_of_the_equations(direction):
    model, tokens = encoder(direction=direction, num_layers=4, output_size=10), make_tokens(padding=5)
    layers = model(Example.of(tokens)).layers
    length = 11  # of row 1
    for stack, reverse in zip(model.stacks, {"left_to_right": [0], "right_to_left": [1]}.get(direction, [0, 1])):
        x = model.embeddings(tokens)[1, :length]
        for number, layer in enumerate(stack, 1):
            x = by_hand(layer, x.flip(0)).flip(0) if reverse else by_hand(layer, x)
            part = layers[number].chunk(len(model.stacks), -1)[reverse if direction == "two_way" else 0]
            assert torch.allclose(part[1, :length], x, atol=1e-6)


@every("direction", WAYS)
@every("layers", [2, 4])
def test_the_flop_formula_is_that_of_the_products(direction, layers):
    """torch counts no products inside its own LSTM, so they are counted as linear layers of the same shapes."""
    settings, length = TINY.but(direction=direction, num_layers=layers), 9
    model, counted = settings.build(50), 0
    for name, weight in model.stacks.named_parameters():
        if "weight" in name:
            with FlopCounterMode(display=False) as counter:
                nn.functional.linear(torch.zeros(length, weight.shape[1]), weight)
            counted += counter.get_total_flops()
    assert settings.flops_per_sequence(length) == counted


def test_biases_are_spared_from_weight_decay_and_remember_at_the_start():
    model = encoder()
    decayed, spared = ({id(p) for p in group["params"]} for group in parameter_groups(model, 0.01, False))
    for name, parameter in model.stacks.named_parameters():
        is_bias = "bias" in name
        assert (id(parameter) in spared, id(parameter) in decayed) == (is_bias, not is_bias)
    for layer in model.stacks[0]:
        gates = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().chunk(4)
        assert [float(gate.mean()) for gate in gates] == [0.0, 1.0, 0.0, 0.0]


# --- trained


KNOBS = {
    "model.num_layers": 2,
    "model.hidden_size": 8,
    "model.embedding_size": 16,
    "model.segment_types": 2,
    "model.embedding_dropout": 0.0,
    "model.dropout": 0.0,
    "model.embedding_norm": False,
    "model.norm_eps": 0.1,
    "model.init_std": 0.1,
    "model.init": "truncated_normal",
    "model.output_size": 8,
    "model.word_type_dropout": 0.3,
    "model.input_dropout": 0.3,
    "model.weight_dropout": 0.3,
    "model.output_dropout": 0.3,
    "model.cell_size": 24,
}
OF_SEVERAL_LAYERS = {"model.residual": True, "model.hidden_dropout": 0.3}


def test_every_knob_changes_the_training(lstm, tiny, tmp_path):
    reference = fit(lstm, 0, tmp_path / "reference").curve
    again = fit(lstm.but(**{"model.embedding_size": 8}), 0, tmp_path / "again").curve
    assert again == reference
    for path, value in KNOBS.items():
        changed = lstm.but(**{path: value})
        assert fit(changed, 0, tmp_path / path).curve != reference, path
        assert identity(changed.essence()) != identity(lstm.essence())


def test_what_lies_between_layers_needs_several(lstm, tmp_path):
    deep = lstm.but(**{"model.num_layers": 2})
    reference = fit(deep, 0, tmp_path / "reference").curve
    for path, value in OF_SEVERAL_LAYERS.items():
        assert fit(deep.but(**{path: value}), 0, tmp_path / path).curve != reference, path
        assert identity(lstm.but(**{path: value}).essence()) == identity(lstm.essence())
    assert identity(lstm.but(**{"model.output_size": 16}).essence()) == identity(lstm.essence()), "that of all layers"


# --- what it is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.warm_start": [1], "model.num_layers": 2}, "training.warm_start .* model.kind is lstm"),
        ({"evaluation.direction": "left_to_right"}, "evaluation.direction left_to_right restricts"),
        ({"model.direction": "two_way"}, "two_way needs an even number of layers"),
        ({"model.direction": "right_to_left"}, "needs direction left_to_right, which model does not support"),
        ({"model.direction": "both"}, "model.direction: 'both' is not allowed"),
        ({"model.num_layers": 2, "model.residual": True, "model.output_size": 8}, "residual adds 16 units"),
        ({"objectives.lm.transform": "none", "model.output_size": 12}, "needs word embeddings as wide as its states"),
        ({"model.num_heads": 2}, "is a knob of model.kind transformer or encoder_decoder, and model.kind is lstm"),
        ({"training.start": {"model.kind": "transformer", "model.direction": "left_to_right",
                             "model.num_heads": 4}}, "training.start.model.kind: must be 'lstm' as here"),
    ],
)  # fmt: skip
def test_a_system_it_cannot_be_is_refused(lstm, changes, message):
    with pytest.raises(ConfigError, match=message):
        lstm.but(**changes)


def test_a_masked_model_that_reads_apart_cannot_be_shown_one_side(tiny):
    model = {"model.kind": "lstm", "model.num_layers": 2, "model.direction": "two_way"}
    assert tiny.but(**model).looks == "two_way"
    with pytest.raises(ConfigError, match="restricts a masked transformer"):
        tiny.but(**model, **{"evaluation.direction": "left_to_right"})


@every(
    "direction, visible, message",
    [
        ("two_way", {"causal": True}, "hides what follows"),
        ("left_to_right", {"anticausal": True}, "hides what precedes"),
        ("right_to_left", {"causal": True}, "hides what follows"),
        ("left_to_right", {"pairs": torch.ones(1, 1, 16, 16, dtype=torch.bool)}, "hides single positions"),
    ],
)
def test_a_visibility_it_cannot_obey_is_refused(direction, visible, message):
    example = dataclasses.replace(Example.of(make_tokens()), visible=Visibility(**visible))
    with pytest.raises(Unsupported, match=f"reads {direction} cannot obey .*{message}"):
        encoder(direction=direction)(example)
    numbered = dataclasses.replace(make_tokens(), positions=torch.arange(16).repeat(4, 1))
    with pytest.raises(Unsupported, match="no table of positions"):
        encoder()(Example.of(numbered))


@torch.no_grad()
@every("direction", WAYS)
def test_padding_may_stand_before_text(direction):
    """A row with its padding in front has the states of the same row with its padding at the end."""
    model, behind, before = encoder(direction=direction), make_tokens(padding=5), make_tokens(padding=5)
    for name in ("ids", "special", "real"):
        rows = getattr(behind, name)
        getattr(before, name)[1::2] = torch.cat([rows[1::2, 11:], rows[1::2, :11]], 1)
    one, two = (model(Example.of(each)).last for each in (behind, before))
    assert torch.allclose(one[behind.real], two[before.real], atol=1e-6)


def test_weights_of_another_kind_do_not_fit():
    assert shaping(TINY, Transformer(), 50) == shaping(Transformer(), TINY, 50) == ["kind"]


# --- its states as features


def test_layers_of_several_widths_are_not_mixed(lstm):
    system = lstm.but(**{"model.num_layers": 4, "model.output_size": 8})
    check(system, "sst2", FineTuning(features=Features(layers="last")))
    with pytest.raises(ConfigError, match=r"finetuning.features.layers: .* these have 8 and 16"):
        check(system, "sst2", FineTuning(features=Features(layers="weighted_sum_all")))
