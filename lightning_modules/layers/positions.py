"""Where a token stands: tables added to the embeddings, and biases added to the attention scores."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sinusoids(length: int, width: int) -> Float[Tensor, "t d"]:
    """The fixed position table of Vaswani et al. (2017), section 3.5: sines in even, cosines in odd columns.

    >>> sinusoids(2, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: width // 2])
    return table.float()


def alibi_slopes(num_heads: int) -> Float[Tensor, " h"]:
    """The geometric slopes of ALiBi (Press et al. 2022, section 3): 2^(-8/h), 2^(-16/h), ..., 2^-8.

    Differs from the paper for head counts that are no power of two: the same formula is used, where the
    released code interleaves two sequences.
    """
    return torch.tensor([2.0 ** (-8.0 * (head + 1) / num_heads) for head in range(num_heads)])


def linear_bias(positions: Int[Tensor, "b t"], slopes: Float[Tensor, " h"]) -> Float[Tensor, "b h t t"]:
    """ALiBi made symmetric for encoders: minus slope times distance, in both directions.

    Differs from Press et al. (2022), whose models are causal and see distances of one sign only.
    """
    distance = (positions[:, :, None] - positions[:, None, :]).abs()
    return -slopes[None, :, None, None] * distance[:, None]
