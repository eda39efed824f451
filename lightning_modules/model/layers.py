"""Activations, dropout, and small layers that heads and tasks share."""

from collections.abc import Callable
from typing import Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

Activation = Literal["gelu", "gelu_tanh", "relu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


_VALUES = 1 << 16  # of a 16-bit integer, which counts from -_VALUES / 2


def drop(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Zeros for a share ``rate`` of the entries, drawn from torch's generator; the others divided by 1 - rate."""
    if not rate:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, rate)
    zeros = min(round(rate * _VALUES), _VALUES - 1)  # of the values an entry's bits can take
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    values = bits.view(torch.int16)[: x.numel()].view(x.shape)
    factors = torch.ge(values, zeros - _VALUES // 2, out=torch.empty_like(x, memory_format=torch.contiguous_format))
    return x * factors.mul_(_VALUES / (_VALUES - zeros))


class Dropout(nn.Dropout):
    """`drop` while training, nothing otherwise."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return drop(x, self.p if self.training else 0.0)


class LockedDropout(nn.Dropout):
    """Dropout with one mask for all positions of a row, another one for each row (Gal and Ghahramani 2016)."""

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        if not (self.training and self.p):
            return x
        return x * drop(x.new_ones(len(x), 1, x.shape[2]), self.p)


_STD = 0.02  # cut at two standard deviations


def draw(*layers: nn.Linear | nn.Embedding) -> None:
    """Draws the weights of layers, in turn, from torch's global generator; biases are 0."""
    for layer in layers:
        nn.init.trunc_normal_(layer.weight, std=_STD, a=-2 * _STD, b=2 * _STD)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


class Frozen(nn.Module):
    """A module that stays in evaluation mode, and has no gradients; subclasses freeze themselves once built."""

    def freeze(self) -> None:
        """Takes the gradients of all parameters, and leaves the training mode."""
        self.requires_grad_(False)
        super().train(False)

    def train(self, mode: bool = True) -> Self:
        """Stays in evaluation mode."""
        return self


_EPS = 1e-12


class ScalarMix(nn.Module):
    """``scale * sum_k softmax(weights)_k layer_k``: one weight per layer and one scale, for all positions.

    It starts as the mean: weights 0, scale 1.

    Args:
        count: Number of layers k.
        norm: Whether each layer is normalised first, over all positions that are no padding and all units together, as
            in allennlp: what a text becomes then depends on its batch.
    """

    def __init__(self, count: int, norm: bool = False) -> None:
        super().__init__()
        self.norm = norm
        self.weights = nn.Parameter(torch.zeros(count))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(
        self, layers: Float[Tensor, "b t k d"], real: Bool[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b t d"]:
        """The mixture; with ``norm`` of positions that are ``real``."""
        if self.norm:
            layers = _normalised(layers, real)
        return self.scale * torch.einsum("k,btkd->btd", torch.softmax(self.weights, 0).to(layers.dtype), layers)


def _normalised(layers: Float[Tensor, "b t k d"], real: Bool[Tensor, "b t"] | None) -> Float[Tensor, "b t k d"]:
    """Each layer less its mean, over its standard deviation; zeros on padding."""
    mask = torch.ones_like(layers[..., :1, :1]) if real is None else real[:, :, None, None].to(layers.dtype)
    count = mask.sum() * layers.shape[-1]
    mean = (layers * mask).sum((0, 1, 3), keepdim=True) / count
    away = (layers - mean) * mask
    return away / ((away**2).sum((0, 1, 3), keepdim=True) / count + _EPS).sqrt()
