"""An LSTM in the transformer's place: what it computes, what it sees, what it is refused."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.analysis import reach
from lightning_modules.analysis.attention_maps import attention_maps
from lightning_modules.analysis.probes import pretrained
from lightning_modules.backbones import Recurrent, Transformer
from lightning_modules.backbones.shapes import shaping
from lightning_modules.batch import Example, Unsupported, Visibility
from lightning_modules.config import ConfigError, identity
from lightning_modules.finetuning.features import FrozenFeatures
from lightning_modules.interop.families import family_of
from lightning_modules.objectives import LanguageModel
from lightning_modules.pretraining import fit
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import Features, FineTuning
from lightning_modules.tasks.fitting import check
from lightning_modules.training.optim import parameter_groups
from lightning_modules.training.pretrain import stacked
from lightning_modules.training.weights import WEIGHTS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every

WAYS = ("left_to_right", "right_to_left", "two_way")
TINY = Recurrent(num_layers=2, hidden_size=12, embedding_size=8, init_std=0.2)
HERE = 7
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
    model, tokens = encoder(direction=direction), make_tokens(padding=5)
    layers = model(Example.of(tokens)).layers
    length = 11  # of row 1
    for stack, reverse in zip(model.stacks, {"left_to_right": [0], "right_to_left": [1]}.get(direction, [0, 1])):
        x = model.embeddings(Example.of(tokens))[1, :length]
        for number, layer in enumerate(stack, 1):
            x = by_hand(layer, x.flip(0)).flip(0) if reverse else by_hand(layer, x)
            part = layers[number].chunk(len(model.stacks), -1)[reverse if direction == "two_way" else 0]
            assert torch.allclose(part[1, :length], x, atol=1e-6)


@torch.no_grad()
@every("direction", WAYS)
def test_what_stands_on_padding_changes_nothing(direction):
    model, tokens, other = encoder(direction=direction), make_tokens(padding=5), make_tokens(padding=5)
    other.ids[~other.real] = 17
    one, two = (model(Example.of(each)) for each in (tokens, other))
    assert torch.equal(one.last, two.last)
    assert not one.last[~tokens.real].any()
    alone = make_tokens(padding=5)
    rows = dataclasses.replace(
        alone, ids=alone.ids[1:2, :11], special=alone.special[1:2, :11], real=alone.real[1:2, :11],
        sample=alone.sample[1:2], tables={}, labels={},
    )  # fmt: skip
    assert torch.allclose(model(Example.of(rows)).last[0], one.last[1, :11], atol=1e-6)


@torch.no_grad()
@every("direction", WAYS)
def test_a_state_depends_on_its_side_alone(direction):
    model = encoder(direction=direction)
    for hidden, (first, last) in (("right", (HERE + 1, 12)), ("left", (1, HERE))):
        tokens, other = make_tokens(padding=3), make_tokens(padding=3)
        other.ids[:, first:last] = (other.ids[:, first:last] + 6) % 45 + 5
        one, two = (model(Example.of(each)).last[:, HERE] for each in (tokens, other))
        sides = {"left_to_right": ("right",), "right_to_left": ("left",)}.get(direction, ("right", "left"))
        for side, (a, b) in zip(sides, zip(one.chunk(len(sides), -1), two.chunk(len(sides), -1)), strict=True):
            assert torch.equal(a, b) == (side == hidden)


@every("direction", WAYS)
def test_widths_and_layers_are_as_stated(direction):
    settings = TINY.but(direction=direction)
    encoded = settings.build(50)(Example.of(make_tokens()))
    assert len(encoded.layers) == settings.depth + 1
    assert [layer.shape[2] for layer in encoded.layers] == [settings.layer_width(n) for n in range(settings.depth + 1)]
    assert encoded.last.shape[2] == settings.width == settings.size(50).hidden_size
    assert encoded.table.shape == (50, settings.size(50).embedding_size)


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


def test_depths_are_those_of_the_layers():
    model = encoder(num_layers=4, direction="two_way")
    depths = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert {depth for name, depth in depths.items() if name.startswith("embeddings.")} == {0}
    assert {depth for name, depth in depths.items() if ".0." in name.removeprefix("stacks.0")} >= {1}
    assert {depths["stacks.0.1.weight_hh_l0"], depths["stacks.1.1.weight_hh_l0"]} == {2}


@every("direction", WAYS)
def test_no_prediction_knows_its_answer(direction):
    objective, model = LanguageModel(direction=direction), encoder(direction=direction)
    heads = objective.heads(TINY.but(direction=direction).size(50))
    for name in objective.targets:
        step, logits = (1 if name == "next" else -1), []
        for shift in (0, 6):
            tokens = make_tokens(padding=3)
            beyond = slice(HERE + 1, 12) if step == 1 else slice(1, HERE)
            tokens.ids[:, beyond] = (tokens.ids[:, beyond] + shift) % 45 + 5
            example = objective.corrupt(Example.of(tokens), make_draws(), make_vocabulary())
            with torch.no_grad():
                found = objective.logits(heads, model(example), example, name)
            logits.append(found[example.targets[name].where % 16 == HERE])
        assert torch.equal(*logits)


# --- trained


def test_it_learns_is_measured_and_loads(lstm, tmp_path):
    trained = fit(lstm.but(**{"training.steps": 120, "optimizer.peak_lr": 0.02}), 0, tmp_path)
    assert trained.metrics["heldout.next_loss"] < 0.8 * math.log(64)
    assert trained.layers == {}  # a layer's output has another width than its input
    assert trained.cost["parameters"] == lstm.parameters()
    module = pretrained(lstm, tmp_path / WEIGHTS)
    assert not module.training


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
OF_ELMO = {"cell_clip", "projection_clip", "characters"}  # test_elmo.py
OF_SEVERAL_LAYERS = {"model.residual": True, "model.hidden_dropout": 0.3}


def test_every_knob_is_tried():
    untried = {"kind", "direction", *OF_ELMO}  # the one is tried below, the other above
    assert {f"model.{name}" for name in Recurrent.model_fields if name not in untried} == {*KNOBS, *OF_SEVERAL_LAYERS}


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


def test_a_width_that_is_that_of_all_layers_is_no_change(lstm):
    assert identity(lstm.but(**{"model.output_size": 16}).essence()) == identity(lstm.essence())


def test_a_continued_training_starts_from_its_weights(lstm, tmp_path):
    fit(lstm, 0, tmp_path / "trunk")
    arm = lstm.but(**{"training.start": {"training.steps": 12}, "training.steps": 4, "optimizer.peak_lr": 1e-9})
    continued = fit(arm, 0, tmp_path / "arm", start=tmp_path / "trunk" / WEIGHTS)
    fresh = fit(lstm.but(**{"training.steps": 4, "optimizer.peak_lr": 1e-9}), 0, tmp_path / "fresh")
    assert continued.metrics["heldout.next_loss"] < fresh.metrics["heldout.next_loss"]


def test_a_transformer_is_the_kind_that_needs_no_name():
    plain, named = SYSTEMS["bert_base"], SYSTEMS["bert_base"].to_dict()
    assert named["model"].pop("kind") == "transformer"
    assert System.read(named) == plain
    assert "kind" not in plain.essence()["model"]
    assert (
        plain.but(**LSTM, **{"objectives.sentence": None, "format.kind": "full_sentences"}).essence()["model"]["kind"]
        == "lstm"
    )


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


def test_numbered_positions_are_refused():
    tokens = make_tokens()
    tokens.positions = torch.arange(16).repeat(4, 1)
    with pytest.raises(Unsupported, match="no table of positions"):
        encoder()(Example.of(tokens))


def test_what_needs_a_transformer_says_so(lstm):
    with pytest.raises(Unsupported, match="no attention"):
        attention_maps(encoder(), Example.of(make_tokens()))
    for needs in (
        lambda: family_of(lstm),
        lambda: reach.relative(TINY, 32),
        lambda: stacked({}, TINY, TINY, []),
    ):
        with pytest.raises(ConfigError, match=r"model.kind: .* needs transformer, not lstm"):
            needs()
    assert reach.reach(TINY, 32) > 0


def test_weights_of_another_kind_do_not_fit():
    assert shaping(TINY, Transformer(), 50) == shaping(Transformer(), TINY, 50) == ["kind"]


# --- its states as features


@every("direction", ["left_to_right", "two_way"])
@every("layers", ["embeddings", "last", "weighted_sum_all", "concat_last_four"])
def test_frozen_layers_feed_a_head(direction, layers):
    ways = {"model.direction": direction, "objectives.lm.direction": direction, "model.num_layers": 8}
    system = SYSTEMS["roberta_base"].but(**LSTM | ways)
    settings = system.model
    features = Features(layers=layers, bilstm_layers=0)
    frozen = FrozenFeatures(settings.build(50), settings, features)
    example = Example.of(make_tokens())
    states = frozen(example).last
    assert states.shape == (4, 16, frozen.hidden_size)
    tuning = FineTuning(features=features)
    assert tuning.flops_per_sequence(system, 16, 1.0) >= settings.flops_per_sequence(16)


def test_layers_of_several_widths_are_not_mixed(lstm):
    system = lstm.but(**{"model.num_layers": 4, "model.output_size": 8})
    check(system, "sst2", FineTuning(features=Features(layers="last")))
    with pytest.raises(ConfigError, match=r"finetuning.features.layers: .* these have 8 and 16"):
        check(system, "sst2", FineTuning(features=Features(layers="weighted_sum_all")))


def test_more_layers_than_it_has_are_refused():
    with pytest.raises(ConfigError, match=r"takes 4 layers\. The encoder is 2 deep"):
        FrozenFeatures(TINY.build(50), TINY, Features())
