"""Rotary positions (Su et al. 2021, section 3.2): queries and keys turn by angles that grow with their position."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lightning_modules.layers.chosen import rows_at

BASE = 10_000.0  # of the frequencies (section 3.3)


class Rotation(NamedTuple):
    """What turns the vectors of a head at each position: ``x cos + other(x) sin``, see `rotate`.

    As wide as a head, so that one product runs over contiguous memory; 1 and 0 in dimensions that are not turned.
    """

    cos: Float[Tensor, "#b 1 t c"]
    sin: Float[Tensor, "#b 1 t c"]  # negative in the first of a pair
    size: int  # dimensions that are turned

    def at(self, read: Int[Tensor, "b m"]) -> "Rotation":
        """The rotation of flat positions."""
        return Rotation(rows_at(self.cos, read), rows_at(self.sin, read), self.size)

    def back(self) -> "Rotation":
        """The rotation by the opposite angles."""
        return self._replace(sin=-self.sin)


def rotation(positions: Int[Tensor, "#b t"], size: int, head: int, dtype: torch.dtype, base: float = BASE) -> Rotation:
    """The rotation at these positions: pair i of ``size / 2`` turns by ``position * base^(-2i / size)`` (equation 15).

    Args:
        size: Dimensions of a head that are turned; even.
        dtype: Precision of the cosines and sines, that of queries and keys; angles are computed in float64.
    """
    pair = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)
    angles = positions[:, None, :, None].double() * base ** (-pair / size)
    rest = angles.new_zeros(*angles.shape[:-1], head - size)
    cos = torch.cat([angles.cos(), angles.cos(), rest + 1], -1)
    sin = torch.cat([-angles.sin(), angles.sin(), rest], -1)
    return Rotation(cos.to(dtype), sin.to(dtype), size)


def rotate(x: Float[Tensor, "*n b h t c"], by: Rotation) -> Float[Tensor, "*n b h t c"]:
    """The vectors with their first dimensions turned, the others unchanged; without a gradient of its own.

    Dimension i is paired with i + r, not with its neighbour as in equation 34: a permutation of the dimensions of a
    head, the same for queries and keys, which no dot product sees, and contiguous in memory.
    """
    half = by.size // 2
    other = torch.cat([x[..., half : by.size], x[..., :half], x[..., by.size :]], -1)
    return (x * by.cos).addcmul_(other, by.sin)
