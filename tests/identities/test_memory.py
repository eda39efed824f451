"""Memory of layer inputs: cached is recomputed, gradients stop, and what is hidden is hidden."""

import dataclasses
import itertools

import pytest
import torch

from lightning_modules.batch import BEGIN, Example, SegmentState, Tokens, Unsupported, Visibility
from lightning_modules.model import Transformer

LENGTH, ROWS = 24, 3
POSITIONS = {
    "relative": {"positions": "relative"},
    "relative, pre-norm": {"positions": "relative", "norm": "pre", "query_biases": "layer"},
    "learned distances": {"positions": "relative_learned"},
    "rotary": {"positions": "rotary"},
    "linear bias": {"positions": "linear_bias"},
    "sided bias, pre-norm": {"positions": "sided_linear_bias", "norm": "pre"},
    "none": {"positions": "none"},
    "shared layers": {"positions": "relative", "sharing": "all"},
}


def encoder(**changes):
    torch.manual_seed(0)
    settings = {"num_layers": 3, "hidden_size": 16, "num_heads": 2, "max_positions": 64, "init_std": 0.3}
    settings |= {"direction": "left_to_right", "norm_eps": 1e-5}
    return Transformer(**settings).but(**changes).build(40).double().eval()


def batch(ids, real=None):
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
    tokens = Tokens(ids, ~real, real, torch.arange(len(ids)))
    return Example(tokens, Visibility(causal=True, real=None if bool(real.all()) else real))


def texts(length=LENGTH):
    return torch.randint(5, 40, (ROWS, length), generator=torch.Generator().manual_seed(1))


def in_parts(model, ids, cuts):
    """The states of a text that is read part by part, each with the memory of those before."""
    carry, states = model.begin(len(ids)), []
    for begin, end in itertools.pairwise((0, *cuts, ids.shape[1])):
        encoded = model(batch(ids[:, begin:end]), carry)
        carry = encoded.carry
        states.append(encoded.last)
    return torch.cat(states, 1)


@torch.no_grad()
@pytest.mark.parametrize("way", POSITIONS)
def test_a_memory_of_everything_is_the_text_at_once(way):
    model, ids = encoder(**POSITIONS[way], memory_length=LENGTH), texts()
    whole = model(batch(ids))
    assert whole.carry is None
    for cuts in ((8, 16), (1, 2, 23), (20,)):
        assert torch.allclose(in_parts(model, ids, cuts), whole.last, atol=1e-10)
    carry = model(batch(ids[:, :9]), BEGIN).carry
    assert torch.allclose(model(batch(ids[:, 9:]), carry).last, whole.last[:, 9:], atol=1e-10), "keys and values"


@torch.no_grad()
@pytest.mark.parametrize("way", POSITIONS)
def test_a_short_memory_of_the_same_length_is_a_band(way):
    """Without the band every position sees another stretch, so that neither is the other."""
    model, ids, memory = encoder(**POSITIONS[way], memory_length=5), texts(), 5
    within = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH) <= memory
    example = batch(ids)
    example.visible.pairs = within[None, None]
    band, every = model(example).last, model(batch(ids)).last
    loose = in_parts(model, ids, (5, 10, 15, 20))
    assert not torch.allclose(loose, band, atol=1e-3)
    assert not torch.allclose(loose, every, atol=1e-3)
    model.same_length = True
    assert torch.allclose(model(batch(ids)).last, band, atol=1e-10), "a long row is a band by itself"
    for cuts in ((5, 10, 15, 20), (3, 6, 9, 12, 15, 18, 21), (12,)):
        assert torch.allclose(in_parts(model, ids, cuts), band, atol=1e-10)
    carry = model(batch(ids[:, :9]), BEGIN).carry
    assert torch.allclose(model(batch(ids[:, 9:]), carry).last, band[:, 9:], atol=1e-10), "keys and values"


@torch.no_grad()
@pytest.mark.parametrize("way", ["relative", "learned distances", "rotary", "sided bias, pre-norm"])
@pytest.mark.parametrize("memory", [5, LENGTH])
def test_rows_that_go_on_to_the_left_remember_what_stands_to_their_right(way, memory):
    """A pass over the text at once, in which each part sees itself and the nearest positions of those read before."""
    model, ids, part = encoder(**POSITIONS[way], memory_length=memory, direction="both"), texts(), LENGTH // 3
    column = torch.arange(LENGTH)
    start = column // part * part
    seen = {
        False: (column >= (start - memory)[:, None]) & (column < (start + part)[:, None]),
        True: (column >= start[:, None]) & (column < (start + part + memory)[:, None]),
    }
    backward = torch.tensor([True, False, True])
    rows = torch.stack([seen[bool(left)] for left in backward])
    whole = batch(ids)
    wanted = model(dataclasses.replace(whole, visible=Visibility(pairs=rows[:, None]))).last
    carry, found = model.begin(ROWS), torch.zeros_like(wanted)
    for step in range(3):
        at = torch.where(backward, 2 - step, step)[:, None] * part + torch.arange(part)
        example = batch(ids.gather(1, at))
        example.inputs.segment_state = SegmentState(backward=backward)
        encoded = model(dataclasses.replace(example, visible=Visibility()), carry)
        carry = encoded.carry
        found.scatter_(1, at[..., None].expand(-1, -1, wanted.shape[2]), encoded.last)
    assert torch.allclose(found, wanted, atol=1e-10)
    padded = batch(ids[:, :part], torch.arange(part).expand(ROWS, -1) < part - 1)
    padded.inputs.segment_state = SegmentState(backward=backward)
    with pytest.raises(Unsupported, match="full"):
        model(padded, carry)
    example.inputs.segment_state = SegmentState(backward=backward)
    with pytest.raises(Unsupported, match="left"):
        encoder(**POSITIONS[way])(example)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_tables_of_positions_begin_anew_in_each_batch(positions):
    """The control: memory and batch have the same positions, so a text in parts is another text."""
    model, ids = encoder(positions=positions, memory_length=LENGTH, max_positions=LENGTH), texts()
    assert torch.equal(model(batch(ids), model.begin(ROWS)).last, in_parts(model, ids, ()))
    first = model(batch(ids[:, :12]), model.begin(ROWS))
    second = model(batch(ids[:, :12]), first.carry)
    assert torch.equal(first.layers[0], second.layers[0]), "the same words at the same positions"
    assert not torch.allclose(in_parts(model, ids, (12,)), model(batch(ids)).last, atol=1e-3)


@pytest.mark.parametrize("way", ["relative", "learned distances", "sided bias, pre-norm"])
def test_no_gradient_reaches_the_memory_and_yet_it_is_read(way):
    model, ids = encoder(**POSITIONS[way], memory_length=8), texts(16)
    probe = torch.randn(ROWS, 8, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    first = model(batch(ids[:, :8]), model.begin(ROWS))
    assert not any(layer.requires_grad for layer in first.carry.layers)
    embedded = first.layers[0]
    embedded.retain_grad()
    (model(batch(ids[:, 8:]), first.carry).last * probe).sum().backward()
    assert embedded.grad is None
    slopes = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    other = ids.clone()
    other[:, 3] = (ids[:, 3] - 4) % 35 + 5
    with torch.no_grad():
        carry, changed = (model(batch(text[:, :8]), model.begin(ROWS)).carry for text in (ids, other))
        moved = model(batch(ids[:, 8:]), changed).last - model(batch(ids[:, 8:]), carry).last
    assert (moved.abs().amax(-1) > 1e-9).all(), "every position reads it"
    model.zero_grad()
    (model(batch(ids[:, 8:]), carry).last * probe).sum().backward()
    for name, slope in slopes.items():
        weight = dict(model.named_parameters())[name]
        assert torch.allclose(weight.grad, slope, atol=1e-12), f"{name}: as if what was read were given"


@torch.no_grad()
@pytest.mark.parametrize("way", ["relative", "learned distances", "rotary", "linear bias"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_of_unequal_length_go_on_as_each_alone(way, side):
    model, ids, lengths = encoder(**POSITIONS[way], memory_length=30), texts(), (8, 5, 2)
    rows, real = torch.full((ROWS, 8), 7), torch.zeros(ROWS, 8, dtype=torch.bool)
    for row, length in enumerate(lengths):
        where = slice(8 - length, 8) if side == "left" else slice(0, length)
        rows[row, where], real[row, where] = ids[row, :length], True
    first = model(batch(rows, real), model.begin(ROWS))
    second = torch.stack([row[length : length + 6] for row, length in zip(ids, lengths, strict=True)])
    middle = model(batch(second), first.carry)
    third = torch.stack([row[length + 6 : length + 9] for row, length in zip(ids, lengths, strict=True)])
    last = model(batch(third), middle.carry)
    for row, length in enumerate(lengths):
        alone = model(batch(ids[row : row + 1, : length + 9])).last[0]
        parts = [first.last[row][real[row]], middle.last[row], last.last[row]]
        assert torch.allclose(torch.cat(parts), alone, atol=1e-10)


@torch.no_grad()
def test_another_memory_at_evaluation():
    """Length, band and largest distance are attributes that no weight depends on; a memory keeps its own length."""
    model, ids = encoder(positions="relative", memory_length=4), texts()
    short = in_parts(model, ids, (8, 16))
    model.memory_length = 16
    assert model.begin(ROWS).length == 16
    long = in_parts(model, ids, (8, 16))
    assert torch.allclose(long[:, :8], short[:, :8], atol=1e-10)
    assert not torch.allclose(long[:, 8:], short[:, 8:], atol=1e-3)
    model.clamp_length = 3
    assert not torch.allclose(in_parts(model, ids, (8, 16)), long, atol=1e-3)
    model.memory_length = 0
    assert model.begin(ROWS) is None
