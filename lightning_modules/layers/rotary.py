"""Rotary positions (Su et al. 2021, section 3.2): queries and keys turn by angles that grow with their position."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

BASE = 10_000.0  # of the frequencies (section 3.3)


class Rotation(NamedTuple):
    """Cosines and sines of the angles of each position, half as many as dimensions are turned."""

    cos: Float[Tensor, "#b t 1 1 r"]
    sin: Float[Tensor, "#b t 1 1 r"]


def rotation(positions: Int[Tensor, "#b t"], size: int, dtype: torch.dtype) -> Rotation:
    """The rotation at these positions: pair i of ``size / 2`` turns by ``position * BASE^(-2i / size)`` (equation 15).

    Args:
        positions: The position of each token.
        size: Dimensions of a head that are turned; even.
        dtype: Precision of the cosines and sines, that of queries and keys; angles are computed in float64.
    """
    pair = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)
    angles = (positions[:, :, None].double() * BASE ** (-pair / size))[:, :, None, None]
    return Rotation(angles.cos().to(dtype), angles.sin().to(dtype))


def rotate(x: Float[Tensor, "b t n h c"], by: Rotation) -> Float[Tensor, "b t n h c"]:
    """The vectors with their first dimensions turned, the others unchanged.

    Dimension i is paired with i + r, not with its neighbour as in equation 34: a permutation of the dimensions of a
    head, the same for queries and keys, which no dot product sees, and contiguous in memory.
    """
    return _Rotate.apply(x, by.cos, by.sin)


class _Rotate(torch.autograd.Function):
    """The derivative of a rotation is the rotation back; half as many passes over memory as autograd would make."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _turned(gradients[0], *ctx.saved_tensors, -1), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    turned = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.mul(first, cos, out=turned[..., :half]).addcmul_(second, sin, value=-sign)
    torch.mul(second, cos, out=turned[..., half : 2 * half]).addcmul_(first, sin, value=sign)
    turned[..., 2 * half :] = rest
    return turned
