"""Activations, dropout, gathers of states, and small layers that heads and tasks share."""

from collections.abc import Callable
from typing import Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

Activation = Literal["gelu", "gelu_tanh", "relu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}
_VALUES = 1 << 16  # of a 16-bit integer, which counts from -_VALUES / 2
_STD = 0.02  # of new heads, cut at two standard deviations
_EPS = 1e-12  # of the variance of a layer that is mixed


def drop(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Dropout (Srivastava et al. 2014, section 4): zeros for a share of the entries, the others divided by 1 - rate.

    On CPUs torch draws a Bernoulli variable per entry, which takes most of dropout's time. Here one 64-bit draw decides
    four entries, 16 bits each: the rate is rounded to a multiple of 2^-16, and kept entries are scaled by the rounded
    rate, which preserves the mean.
    """
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


def gather_states(x: Float[Tensor, "b t d"], positions: Int[Tensor, "b m"] | None) -> Float[Tensor, "b m d"]:
    """The states of a stream at flat positions, any state at those with -1; all of it with None."""
    if positions is None:
        return x
    return x.flatten(0, 1).index_select(0, positions.flatten().clamp(min=0)).view(*positions.shape, -1)


def scatter_states(x: Float[Tensor, "b m d"], positions: Int[Tensor, "b m"], length: int) -> Float[Tensor, "b t d"]:
    """A stream with these states at flat positions and NaN elsewhere, the inverse of `gather_states`."""
    rows, _, width = x.shape
    nowhere = rows * length
    stream = x.new_full((nowhere + 1, width), torch.nan)
    stream.index_copy_(0, torch.where(positions < 0, nowhere, positions).flatten(), x.flatten(0, 1))
    return stream[:nowhere].view(rows, length, width)


def gather_rows(table: Shaped[Tensor, "..."], positions: Int[Tensor, "b m"]) -> Shaped[Tensor, "..."]:
    """The rows of flat positions in a table ``[#b #h t s]``, such as an attention bias: ``[b #h m s]``."""
    _, h, length, s = table.shape
    index = (positions % length)[:, None, :, None].expand(-1, h, -1, s)
    return table.expand(len(positions), -1, -1, -1).gather(2, index)


def draw(*layers: nn.Linear | nn.Embedding) -> None:
    """Draws the weights of new heads as BERT's are, in turn, from torch's global generator; biases are 0."""
    for layer in layers:
        nn.init.trunc_normal_(layer.weight, std=_STD, a=-2 * _STD, b=2 * _STD)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


class Frozen(nn.Module):
    """A trained network that teaches another one: no dropout, no gradient; subclasses freeze themselves once built."""

    def freeze(self) -> None:
        """Takes the gradients of all parameters, and leaves the training mode."""
        self.requires_grad_(False)
        super().train(False)

    def train(self, mode: bool = True) -> Self:
        """Stays in evaluation mode."""
        return self


class ScalarMix(nn.Module):
    """``scale * sum_k softmax(weights)_k layer_k``, for all positions (Peters et al. 2018, section 3.2, equation 1).

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
        """The mixture; with ``norm`` of positions that are ``real``, and zeros on padding."""
        if self.norm:
            mask = torch.ones_like(layers[..., :1, :1]) if real is None else real[:, :, None, None].to(layers.dtype)
            count = mask.sum() * layers.shape[-1]
            mean = (layers * mask).sum((0, 1, 3), keepdim=True) / count
            away = (layers - mean) * mask
            layers = away / ((away**2).sum((0, 1, 3), keepdim=True) / count + _EPS).sqrt()
        return self.scale * torch.einsum("k,btkd->btd", torch.softmax(self.weights, 0).to(layers.dtype), layers)
