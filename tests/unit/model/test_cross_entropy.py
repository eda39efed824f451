"""The loss over the vocabulary equals torch's, in value and in every gradient, whatever is predicted."""

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.model import losses
from lightning_modules.model.losses import summed_cross_entropy


def parts(predictions=7, words=11, width=5, dtype=torch.float64, scale=1.0):
    noise = torch.Generator().manual_seed(0)
    states, table, bias = (
        scale * torch.randn(*shape, dtype=dtype, generator=noise)
        for shape in ((predictions, width), (words, width), (words,))
    )
    return [x.requires_grad_() for x in (states, table, bias)], torch.randint(words, (predictions,), generator=noise)


def plain(states, table, bias, ids):
    return F.cross_entropy(F.linear(states, table) + bias, ids, reduction="sum")


def gradients(loss, inputs, ids, factor=1.0):
    total = loss(*inputs, ids)
    return total, torch.autograd.grad(factor * total, inputs)


@pytest.mark.parametrize("entries", [1, 22, 1 << 18])
@pytest.mark.parametrize("predictions", [0, 1, 7])
def test_it_is_the_plain_loss(predictions, entries, monkeypatch):
    """In pieces of one row, of two rows, and undivided."""
    monkeypatch.setattr(losses, "_ENTRIES", entries)
    inputs, ids = parts(predictions)
    (wanted, slopes), (total, found) = (gradients(loss, inputs, ids, 0.3) for loss in (plain, summed_cross_entropy))
    assert torch.allclose(total, wanted)
    for one, other in zip(found, slopes, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("entries", [1, 22, 1 << 18])
def test_without_a_bias_it_is_that_of_a_bias_of_zeros(entries, monkeypatch):
    monkeypatch.setattr(losses, "_ENTRIES", entries)
    (states, table, bias), ids = parts()
    with torch.no_grad():
        bias.zero_()
    wanted = torch.autograd.grad(summed_cross_entropy(states, table, bias, ids), (states, table))
    found = torch.autograd.grad(summed_cross_entropy(states, table, None, ids), (states, table))
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        low = [part.detach().float().requires_grad_() for part in (states, table)]
        total = summed_cross_entropy(*low, None, ids)
    assert total.dtype == torch.float32, "the softmax is not rounded"
    assert total.item() == pytest.approx(summed_cross_entropy(states, table, None, ids).item(), rel=0.02)


def test_a_share_too_small_for_a_number_is_still_a_finite_loss():
    inputs, ids = parts(dtype=torch.float32, scale=100.0)
    (wanted, slopes), (total, found) = (gradients(loss, inputs, ids) for loss in (plain, summed_cross_entropy))
    assert wanted > 10_000
    assert torch.allclose(total, wanted)
    for one, other in zip(found, slopes, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-4)


def test_under_autocast_only_the_products_are_rounded():
    """Nearer to the exact gradient than rounding its factors can bring it, and the bias counts in full."""
    inputs, ids = parts(64, 300, 32, torch.float32)
    with torch.no_grad():
        inputs[2].mul_(0.001).add_(torch.linspace(0, 1, 300) * 1e-3)
    exact, slopes = gradients(plain, inputs, ids)
    with torch.autocast("cpu", torch.bfloat16):
        total, found = gradients(summed_cross_entropy, inputs, ids)
    assert total.dtype == torch.float32
    assert torch.allclose(total, exact, rtol=3e-3)
    for one, other in zip(found, slopes, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 1e-2 * other.norm()


def test_numbers_that_are_none_are_not_hidden():
    inputs, ids = parts()
    with torch.no_grad():
        inputs[0][2, 1] = float("nan")
    assert torch.isnan(summed_cross_entropy(*inputs, ids))
