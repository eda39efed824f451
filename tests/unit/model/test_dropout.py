"""Dropout: the rate, the mean and the gradient that it promises, from torch's own generator."""

import pytest
import torch

from lightning_modules.model.layers import Dropout, drop


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rate", [0.1, 0.5, 2**-16, 0.999999])
def test_rate_and_scale(rate, dtype):
    torch.manual_seed(0)
    x = torch.ones(1001, 999, dtype=dtype)
    left = drop(x, rate)
    assert left.dtype == dtype
    exact = min(round(rate * 2**16), 2**16 - 1) / 2**16
    dropped, spread = float((left == 0).double().mean()), (exact * (1 - exact) / x.numel()) ** 0.5
    assert abs(dropped - exact) <= 5 * spread
    assert left[left != 0].unique() == torch.tensor(1 / (1 - exact), dtype=dtype)


def test_the_gradient_passes_where_the_value_did():
    x = torch.randn(7, 13, requires_grad=True)
    left = drop(x, 0.3)
    left.backward(torch.ones_like(left))
    assert torch.equal(x.grad * x, left)
    assert 0 < int((x.grad == 0).sum()) < x.numel()


def test_entries_are_independent_of_their_neighbours():
    torch.manual_seed(0)
    kept = (drop(torch.ones(1 << 20), 0.5) != 0).double() - 0.5
    for lag in range(1, 9):
        assert abs(float((kept[lag:] * kept[:-lag]).mean())) < 0.25 * 5 / (1 << 10)


def test_it_follows_from_the_generator_and_the_layout_does_not_matter():
    x = torch.randn(6, 10).t()
    torch.manual_seed(3)
    one = drop(x, 0.4)
    torch.manual_seed(3)
    assert torch.equal(one, drop(x.contiguous(), 0.4))
    assert not torch.equal(one, drop(x, 0.4))


def test_nothing_is_drawn_where_nothing_is_dropped():
    x, before = torch.randn(4), torch.get_rng_state()
    assert drop(x, 0.0) is x
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(Dropout(0.5)(torch.ones(64)), torch.ones(64))
