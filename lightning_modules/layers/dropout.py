"""Dropout (Srivastava et al. 2014, section 4), with random bits that are cheap on CPUs.

On CPUs torch draws a Bernoulli variable per entry, which takes most of dropout's time. Here one 64-bit draw decides
four entries, 16 bits each: the rate is rounded to a multiple of 2^-16, and kept entries are scaled by the rounded
rate, which preserves the mean.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

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
