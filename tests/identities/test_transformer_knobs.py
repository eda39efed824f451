"""What knobs of the backbone promise of its states: order, distances, padding, sight and widths."""

from dataclasses import replace

import pytest
import torch

from lightning_modules.batch import Example, Visibility, mapped
from lightning_modules.config import ConfigError
from lightning_modules.model import Transformer
from lightning_modules.model.attention import attend, attention_bias, explicit_attention
from tests.conftest import make_tokens

TINY = Transformer(num_layers=2, hidden_size=32, num_heads=2, max_positions=32)


def encoder(**changes):
    torch.manual_seed(0)
    return TINY.but(init_std=0.2, **changes).build(50).eval()


@torch.no_grad()
def states(model, **changes):
    """The last states of a batch whose tokens are changed."""
    return model(Example.of(replace(make_tokens(rows=1), **changes))).last


@pytest.mark.parametrize("knob", ["embedding_dropout", "dropout", "attention_dropout"])
def test_dropouts_are_off_in_evaluation(knob):
    assert torch.equal(states(encoder()), states(encoder(**{knob: 0.5})))


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "linear_bias", "sided_linear_bias", "rotary", "none"])
def test_order_matters_exactly_when_positions_are_known(positions):
    model, order = encoder(positions=positions), torch.randperm(16, generator=torch.Generator().manual_seed(3))
    shuffled = states(model, ids=make_tokens(rows=1).ids[:, order])
    assert torch.allclose(states(model)[:, order], shuffled, atol=1e-5) == (positions == "none")


@pytest.mark.parametrize("positions", ["linear_bias", "sided_linear_bias", "rotary"])
def test_relative_positions_see_distances_only(positions):
    """Shifting every position by a constant changes nothing under relative positions."""
    model = encoder(positions=positions)
    assert torch.allclose(states(model, positions=torch.arange(16)[None] + 100), states(model), atol=1e-6)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["learned", "linear_bias", "sided_linear_bias", "rotary"])
def test_padding_leaks_nothing(norm, positions):
    model, tokens = encoder(norm=norm, positions=positions), make_tokens(rows=4, padding=6)
    other = replace(tokens, ids=torch.where(tokens.real, tokens.ids, 33))
    cut = mapped(tokens, lambda table: table[1:2, :10] if table.ndim > 1 else table[1:2])
    with torch.no_grad():
        one, two, alone = (model(Example.of(each)).last for each in (tokens, other, cut))
    assert one.isfinite().all()
    assert torch.equal(one[tokens.real], two[tokens.real])
    assert torch.allclose(alone, one[1:2, :10], atol=1e-5)


def test_pairs_restrict_sight():
    """A visibility given pair by pair equals the causal flag when it says the same."""
    pairs = torch.ones(1, 1, 16, 16, dtype=torch.bool).tril()
    seen = (Example(make_tokens(), visible) for visible in (Visibility(causal=True), Visibility(pairs=pairs)))
    assert torch.equal(*(encoder()(example).last for example in seen))


@pytest.mark.parametrize(
    ("positions", "directed"), [("linear_bias", False), ("sided_linear_bias", True), ("rotary", True)]
)
def test_who_knows_left_from_right(positions, directed):
    """Reversing a sequence reverses the output exactly when direction is not seen."""
    model = encoder(positions=positions)
    reverse = states(model, ids=make_tokens(rows=1).ids.flip(1)).flip(1)
    assert torch.allclose(states(model), reverse, atol=1e-5) != directed


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("values", [8, 5])
def test_kernels_agree(masked, biased, values):
    """The explicit products and torch's fused kernel give the same numbers and gradients."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, width, dtype=torch.float64) for width in (8, 8, values))
    mask = torch.rand(2, 1, 7, 7) > 0.3 if masked else None
    if mask is not None:
        mask[..., 0] = True
    bias = torch.randn(1, 3, 7, 7, dtype=torch.float64) if biased else None
    added = attention_bias(mask, bias, torch.float64)
    results = []
    for kernel in (explicit_attention, attend):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        out = kernel(*inputs, added, 0.0)
        (out**2).sum().backward()
        results.append([out, *(x.grad for x in inputs)])
    for one, two in zip(*results, strict=True):
        assert torch.allclose(one, two, atol=1e-12)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ({"key_size": 5}, {}),  # of values of 16
        ({"key_size": 5, "attention_biases": False, "positions": "linear_bias"}, {"attention_biases": False}),
        ({}, {"key_size": 24}),
    ],
)
def test_keys_with_zeros_behind_them_compare_as_keys_without(narrow, wide):
    """Products are equal, and the root by which they are divided is that of the width of a key."""
    torch.manual_seed(0)
    form = TINY.but(init_std=0.3, **narrow)
    less, more = form.build(50).double().eval(), form.but(**{"key_size": None, **wide}).build(50).double().eval()
    weights, full = less.state_dict(), more.state_dict()
    small, large = (model.blocks[0]["attention"].function.key_size for model in (less, more))
    for name, tensor in weights.items():
        if "attention.function.qkv" not in name:
            full[name] = tensor
            continue
        *keys, values = tensor.split([2 * small, 2 * small, 32])
        parts = []
        for part, scale in zip(keys, ((large / small) ** 0.5, 1.0), strict=True):
            heads = part.unflatten(0, (2, small)) * scale
            parts.append(torch.cat([heads, heads.new_zeros(2, large - small, *heads.shape[2:])], 1).flatten(0, 1))
        full[name] = torch.cat([*parts, values])
    more.load_state_dict(full)
    example = Example.of(make_tokens())
    with torch.no_grad():
        assert torch.allclose(less(example).last, more(example).last, atol=1e-10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_size": 0}, "key_size"),
        ({"key_size": 8, "positions": "relative"}, "vectors that positions relative adds to queries.*= 16: leave"),
        ({"key_size": 8, "positions": "relative_learned"}, "positions relative_learned adds"),
        ({"key_size": 8, "segment_relation": True}, "vectors that segment_relation adds to queries"),
        ({"key_size": 5, "positions": "rotary"}, "rotary_size 5 must be even .* key_size 5"),
        ({"key_size": 4, "positions": "rotary", "rotary_size": 6}, "at most the size of a head, key_size 4"),
    ],
)
def test_a_width_that_keys_cannot_have_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        TINY.but(**changes)


def test_a_width_of_keys_that_is_that_of_values_is_none():
    for positions in ("learned", "relative"):
        form = TINY.but(positions=positions)
        assert form.but(key_size=16).essence() == form.essence()
    plain, same = (TINY.but(key_size=size).build(50).state_dict() for size in (None, 16))
    assert [tensor.shape for tensor in plain.values()] == [tensor.shape for tensor in same.values()]
