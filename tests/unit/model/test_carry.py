"""A text read on from a carry has the states of the text read at once, wherever it is cut and however it is padded."""

import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import BEGIN, Example, Tokens, Unsupported, Visibility
from lightning_modules.model import Transformer
from tests.every import every
from tests.messages import naming

WAYS = {
    "learned": {},
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"positions": "rotary"},
    "linear bias": {"positions": "linear_bias"},
    "sided bias": {"positions": "sided_linear_bias"},
    "no positions": {"positions": "none"},
    "relative": {"positions": "relative", "norm": "pre", "query_biases": "layer", "clamp_length": 9},
    "learned distances": {"positions": "relative_learned", "max_positions": 8, "memory_length": 6, "same_length": True},
    "pre-norm": {"norm": "pre"},
    "narrow keys": {"key_size": 2},
    "wide keys, rotary": {"key_size": 12, "positions": "rotary"},
    "pre-norm, sided bias": {"norm": "pre", "positions": "sided_linear_bias"},
    "shared": {"sharing": "all", "embedding_size": 16},
    "half shared, rotary": {"sharing": "attention", "sharing_groups": 2, "num_layers": 4, "positions": "rotary"},
}
LENGTHS = (12, 5, 9, 1)


def encoder(**changes):
    torch.manual_seed(0)
    settings = {"num_layers": 3, "hidden_size": 32, "num_heads": 4, "max_positions": 64, "init_std": 0.2}
    return Transformer(**settings, direction="left_to_right").but(**changes).build(50).eval()


def batch(ids, real=None, positions=None):
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
    tokens = Tokens(ids, ~real, real, torch.arange(len(ids)), positions=positions)
    return Example(tokens, Visibility(causal=True, real=None if bool(real.all()) else real))


def texts(length=24):
    return torch.randint(5, 50, (len(LENGTHS), length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_parts_are_the_whole(model, begin, atol):
    """The states of a text that is read in parts, wherever it is cut, are those of the text at once."""
    ids = texts()
    whole = model(batch(ids))
    for cuts in ((), (1,), (10,), (3, 4, 5, 20), range(1, 24)):
        carry, parts = begin, []
        for start, end in itertools.pairwise((0, *cuts, 24)):
            parts.append(model(batch(ids[:, start:end]), carry))
            carry = parts[-1].carry
        for *joined, states in zip(*((*part.layers, part.last) for part in parts), (*whole.layers, whole.last)):
            assert torch.allclose(torch.cat(joined, 1), states, atol=atol)
    assert whole.carry is None, "who asks for no carry pays for none"


@every("way", WAYS)
def test_a_text_in_parts_is_the_text_at_once(way):
    assert_parts_are_the_whole(encoder(**WAYS[way]), BEGIN, atol=1e-5)


@every("side", ["left", "right", "both"])
@every("way", WAYS)
@torch.no_grad()
def test_texts_of_unequal_length_go_on_as_each_alone(way, side):
    """Padding on either side, once more in what follows: each row has the states it has by itself."""
    model, ids, width = encoder(**WAYS[way]), texts(), 14
    rows = torch.full((len(LENGTHS), width), 7)
    real, positions = torch.zeros_like(rows, dtype=torch.bool), torch.zeros_like(rows)
    for row, length in enumerate(LENGTHS):
        begin = {"left": width - length, "right": 0, "both": (width - length) // 2}[side]
        rows[row, begin : begin + length] = ids[row, :length]
        real[row, begin : begin + length] = True
        positions[row, begin : begin + length] = torch.arange(length)
    first = model(batch(rows, real, None if side == "right" else positions), BEGIN)
    second = torch.stack([row[n : n + 4] for row, n in zip(ids, LENGTHS, strict=True)])
    there = torch.ones_like(second, dtype=torch.bool)
    there[1, 2:] = False
    middle = model(batch(second, there), first.carry)
    third = torch.stack([row[n : n + 3] for row, n in zip(ids, (16, 7, 13, 5), strict=True)])
    last = model(batch(third), middle.carry)
    for row, length in enumerate(LENGTHS):
        more = 2 if row == 1 else 4
        alone = model(batch(ids[row : row + 1, : length + more + 3])).last[0]
        parts = [first.last[row][real[row]], middle.last[row, :more], last.last[row]]
        assert torch.allclose(torch.cat(parts), alone, atol=1e-5)
        assert torch.isfinite(first.last[row]).all()


@every("padding", [slice(0, 3), slice(5, 8), slice(2, 4)])
@every("way", WAYS)
@torch.no_grad()
def test_positions_go_on_behind_the_last_of_a_row(way, padding):
    """Where none are given, padding before a token counts, and padding behind the last does not."""
    model, ids = encoder(**WAYS[way]), texts(12)
    real = torch.ones_like(ids, dtype=torch.bool)
    real[:, padding] = False
    positions = torch.arange(12).repeat(len(ids), 1)
    if padding.stop == 8:
        positions[:, 8:] -= 3
    whole = model(batch(ids, real, positions)).last
    first = model(batch(ids[:, :8], real[:, :8]), BEGIN)
    second = model(batch(ids[:, 8:]), first.carry)
    assert torch.allclose(second.last, whole[:, 8:], atol=1e-5)


@torch.no_grad()
def test_two_texts_go_on_from_one_carry():
    """Reading on from a carry leaves it as it was: two continuations do not see each other."""
    model, ids = encoder(positions="rotary"), texts()
    carry = model(batch(ids[:, :10]), BEGIN).carry
    wanted = [model(batch(torch.cat([ids[:, :10], tail], 1))).last[:, 10:] for tail in (ids[:, 10:], ids[:, :14])]
    one = model(batch(ids[:, 10:13]), carry)
    other = model(batch(ids[:, :14]), carry)
    one_more = model(batch(ids[:, 13:]), one.carry)
    assert torch.allclose(torch.cat([one.last, one_more.last], 1), wanted[0], atol=1e-5)
    assert torch.allclose(other.last, wanted[1], atol=1e-5)


def test_gradients_stay_within_a_batch():
    """What was read before gets no gradient; the batch itself has that of its own keys and values."""
    model, ids = encoder(num_layers=2), texts()
    seen = {}
    model.embeddings.register_forward_hook(lambda _, __, x: seen.setdefault(x.shape[1], x).retain_grad())

    def gradients(ids, *carry):
        model.zero_grad()
        model(batch(ids), *carry).last.square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    carried = gradients(ids[:, 10:], model(batch(ids[:, :10]), BEGIN).carry)
    assert seen[10].grad is None
    with torch.no_grad():
        carry = model(batch(ids[:, :10]), BEGIN).carry
    again = gradients(ids[:, 10:], carry), carried, 1e-6
    for one, two, tolerance in (again, (gradients(ids, BEGIN), gradients(ids), 1e-4)):
        assert all(torch.allclose(a, b, atol=tolerance, rtol=tolerance) for a, b in zip(one, two, strict=True))


@torch.no_grad()
def test_states_at_some_positions_with_a_carry():
    model, ids = encoder(), texts()
    carry = model(batch(ids[:, :10]), BEGIN).carry
    example = batch(ids[:, 10:])
    wanted = model(example, carry).last[:, -1]
    example.output_positions = (torch.arange(len(ids)) * 14 + 13)[:, None]
    assert torch.allclose(model(example, carry).last[:, -1], wanted, atol=1e-6)


@every("direction", ["both", "right_to_left", "two_way"])
def test_a_model_without_a_carry_says_so(direction):
    model = encoder(direction=direction, num_layers=4)
    assert not model.carries
    with pytest.raises(Unsupported, match=naming(direction, "no carry")):
        model(batch(texts()), BEGIN)


def test_what_does_not_fit_a_carry_is_refused():
    model, ids = encoder(max_positions=16), texts()
    carry = model(batch(ids[:, :10]), BEGIN).carry
    with pytest.raises(Unsupported, match=naming("4 rows", "2 rows")):
        model(batch(ids[:2, :3]), carry)
    with pytest.raises(Unsupported, match=naming("2 layers", "3 layers")):
        model(batch(ids[:, :3]), encoder(num_layers=2)(batch(ids[:, :4]), BEGIN).carry)
    with pytest.raises(ValueError, match=naming("17", "model.max_positions is 16")):
        model(batch(ids[:, :7]), carry)
    example = batch(ids[:, :3])
    example.visible.pairs = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    with pytest.raises(Unsupported, match="pairs"):
        model(example, carry)


@torch.no_grad()
def test_the_work_for_a_token_hardly_grows_with_the_text():
    """Matrix products of one more token, batch 8: after 256 tokens nearly as after 32; without a carry eight times."""
    model = encoder(max_positions=512, hidden_size=256)
    ids = torch.randint(5, 50, (8, 257), generator=torch.Generator().manual_seed(1))
    work = {}
    for length in (32, 256):
        carry = model(batch(ids[:, :length]), BEGIN).carry
        for name, ask in {
            "carry": lambda: model(batch(ids[:, length : length + 1]), carry),
            "anew": lambda: model(batch(ids[:, : length + 1])),
        }.items():
            with FlopCounterMode(display=False) as counter:
                ask()
            work[name, length] = counter.get_total_flops()
    assert work["carry", 256] < 1.2 * work["carry", 32]
    assert work["anew", 256] > 7 * work["anew", 32]
