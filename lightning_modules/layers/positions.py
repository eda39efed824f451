"""Position encodings: tables added to the embeddings, and biases added to the attention scores."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules import plugins
from lightning_modules.batch import Direction
from lightning_modules.layers.rotary import BASE, Rotation, rotation


def sinusoids(length: int, width: int) -> Float[Tensor, "t d"]:
    """The fixed position table of Vaswani et al. (2017), section 3.5: sines in even, cosines in odd columns.

    >>> sinusoids(2, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    position = _counted(length)[:, None]
    rate = torch.exp(2 * _counted(-(-width // 2)) * (-math.log(10_000.0) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: width // 2])
    return table.float()


def _counted(length: int) -> Float[Tensor, " t"]:
    """0, 1, 2 ... as of ``arange``, which on the meta device imports torch's compiler, a second's work."""
    return torch.ones(length, dtype=torch.float64).cumsum(0) - 1


class PositionScheme(nn.Module):
    """What attention itself knows of positions, the same in all layers. This one adds nothing and turns nothing.

    Its weights are trained at the depth of the first layer. A linear layer or an embedding is drawn as all others.

    Args:
        settings: Those of the stack, such as ``heads``, ``key_width`` and ``direction``.
    """

    def __init__(self, settings: Any) -> None:
        super().__init__()

    def bias(self, place: Int[Tensor, "#b t"], attended: Int[Tensor, "#b s"]) -> Float[Tensor, "#b h t s"] | None:
        """What is added to the scores of positions and those attended to; None is nothing."""
        return None

    def turn(self, place: Int[Tensor, "#b t"], dtype: torch.dtype) -> Rotation | None:
        """The rotation of queries and keys at these positions; None leaves them as they are."""
        return None


class LinearBias(PositionScheme):
    """Symmetric ALiBi for encoders: minus slope times distance, in both directions.

    Differs from Press et al. (2022), whose models are causal and have distances of one sign only.
    """

    slopes: Tensor

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        slopes = torch.tensor(self.each(settings.heads, settings.direction))
        self.register_buffer("slopes", slopes[:, None, None], persistent=False)

    def each(self, heads: int, direction: Direction) -> list[float]:
        """The geometric slopes of ALiBi (Press et al. 2022, section 3): 2^(-8/h), 2^(-16/h), ..., 2^-8.

        Differs from the released code for head counts that are not a power of two: the formula is the same, where the
        code interleaves two sequences.
        """
        return [2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)]

    def bias(self, place: Int[Tensor, "#b t"], attended: Int[Tensor, "#b s"]) -> Float[Tensor, "#b h t s"]:
        """See `PositionScheme.bias`."""
        return -self.slopes * (place[:, None, :, None] - attended[:, None, None]).abs()


class SidedLinearBias(LinearBias):
    """ALiBi for encoders with a sense of direction: each head attends to one side only, itself included.

    The non-symmetric form that the authors of ALiBi propose for encoders (released code, FAQ). Unlike the symmetric
    form it distinguishes left from right neighbours, and a masked language model leaves its plateau several times
    sooner.
    """

    def each(self, heads: int, direction: Direction) -> list[float]:
        """Signed slopes: 1, 1/4, 1/16, ... for the left half (negative), again for the right.

        They are steeper than ALiBi's, so that even with few heads one per side attends to direct neighbours. In a
        one-directional model all heads face its visible side; those of the other side would only see themselves.
        """
        left = {"left_to_right": heads, "right_to_left": 0}.get(direction, heads // 2)
        return [-(4.0**-k) for k in range(left)] + [4.0**-k for k in range(heads - left)]

    def bias(self, place: Int[Tensor, "#b t"], attended: Int[Tensor, "#b s"]) -> Float[Tensor, "#b h t s"]:
        """See `PositionScheme.bias`."""
        signed = (attended[:, None, None] - place[:, None, :, None]) * self.slopes.sign()
        return (-self.slopes.abs() * signed).masked_fill(signed < 0, float("-inf"))


class Rotary(PositionScheme):
    """`rotation`, whose frequencies may have another base."""

    base = BASE

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.size, self.width = settings.rotary_size, settings.key_width

    def turn(self, place: Int[Tensor, "#b t"], dtype: torch.dtype) -> Rotation:
        """See `PositionScheme.turn`."""
        return rotation(place, self.size, self.width, dtype, self.base)


POSITIONS: dict[str, type[PositionScheme]] = plugins.parts(
    "POSITIONS",
    {
        **dict.fromkeys(("learned", "sinusoidal"), PositionScheme),  # added to the embeddings
        "linear_bias": LinearBias,
        "sided_linear_bias": SidedLinearBias,
        "rotary": Rotary,
        **dict.fromkeys(("relative", "relative_learned", "none"), PositionScheme),  # the first two are of each layer
    },
    PositionScheme,
)
