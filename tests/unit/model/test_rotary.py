"""Rotation of queries and keys: lengths stay, dot products depend on the distance alone, the derivative is exact."""

import pytest
import torch

from lightning_modules.config import ConfigError
from lightning_modules.model import Transformer
from lightning_modules.model.attention import in_heads
from lightning_modules.model.positions import rotate, rotation


def vectors(length=7, head=8):
    return torch.randn(2, 3, length, head, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def turned(x, size, first=0):
    return rotate(x, rotation(torch.arange(first, first + x.shape[-2])[None], size, x.shape[-1], x.dtype))


@pytest.mark.parametrize("size", [2, 6, 8])
def test_it_turns_the_first_dimensions_and_keeps_lengths(size):
    x = vectors()
    y = turned(x, size)
    assert torch.equal(y[..., size:], x[..., size:])
    assert torch.allclose(y.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(y[..., 0, :], x[..., 0, :])  # position 0 is not turned
    assert not torch.allclose(y[..., 1:, :size], x[..., 1:, :size])


@pytest.mark.parametrize("turns", [True, False])
def test_projections_in_heads_and_their_derivative(turns):
    """Parts side by side, each by head; the first two of three turned, as by plain operations."""
    x = torch.randn(2, 5, 3 * 3 * 8, dtype=torch.float64, requires_grad=True)
    turn = rotation(torch.arange(5)[None], 6, 8, x.dtype) if turns else None
    plain = x.view(2, 5, 3, 3, 8).permute(2, 0, 3, 1, 4)
    for part, found in enumerate(in_heads(x, 3, 3, turn, rotated=2)):
        assert torch.equal(found, rotate(plain[part], turn) if turn and part < 2 else plain[part])
    assert torch.autograd.gradcheck(lambda y: in_heads(y, 3, 3, turn, rotated=2), (x,))


@pytest.mark.parametrize(("size", "heads"), [(3, 2), (34, 1), (18, 2)])
def test_a_size_that_does_not_fit_a_head_is_refused(size, heads):
    with pytest.raises(ConfigError, match=r"rotary_size .* even and at most the size of a head"):
        Transformer(hidden_size=32, num_heads=heads).but(positions="rotary", rotary_size=size)


def test_frequencies_stay_where_the_number_of_dimensions_does():
    """Heads of 16 and of 32 that turn 16 dimensions turn them alike."""
    x = vectors(head=32)
    assert torch.equal(turned(x[..., :16], 16), turned(x, 16)[..., :16])
