"""Position encodings: tables added to the embeddings, rotations of queries and keys, and biases of attention scores."""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules import plugins
from lightning_modules.batch import Direction
from lightning_modules.model.layers import gather_rows

_BASE = 10_000.0  # of the frequencies of sinusoids and rotations


def sinusoids(length: int, width: int) -> Float[Tensor, "t d"]:
    """The fixed position table of Vaswani et al. (2017), section 3.5: sines in even, cosines in odd columns.

    >>> sinusoids(2, 4)[0]
    tensor([0., 1., 0., 1.])
    """

    def arange(count: int) -> Float[Tensor, " t"]:
        # torch's own imports its compiler on the meta device, a second's work
        return torch.ones(count, dtype=torch.float64).cumsum(0) - 1

    position = arange(length)[:, None]
    rate = torch.exp(2 * arange(-(-width // 2)) * (-math.log(_BASE) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: width // 2])
    return table.float()


class Rotation(NamedTuple):
    """What rotates the vectors of a head at each position, as wide as a head: ``x cos + other(x) sin`` (`rotate`)."""

    cos: Float[Tensor, "#b 1 t c"]
    sin: Float[Tensor, "#b 1 t c"]  # negative in the first of a pair
    size: int  # dimensions that are rotated

    def at(self, positions: Int[Tensor, "b m"]) -> "Rotation":
        """The rotation of flat positions."""
        return Rotation(gather_rows(self.cos, positions), gather_rows(self.sin, positions), self.size)

    def back(self) -> "Rotation":
        """The rotation by the opposite angles."""
        return self._replace(sin=-self.sin)


def rotation(positions: Int[Tensor, "#b t"], size: int, head: int, dtype: torch.dtype, base: float = _BASE) -> Rotation:
    """Rotary positions: pair i of ``size / 2`` by ``position * base^(-2i / size)`` (Su et al. 2021, equation 15).

    An even ``size`` of the dimensions of a ``head`` are rotated. Angles are computed in float64; ``dtype`` is the
    precision of queries and keys.
    """
    pair = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)
    angles = positions[:, None, :, None].double() * base ** (-pair / size)
    rest = angles.new_zeros(*angles.shape[:-1], head - size)
    cos = torch.cat([angles.cos(), angles.cos(), rest + 1], -1)
    sin = torch.cat([-angles.sin(), angles.sin(), rest], -1)
    return Rotation(cos.to(dtype), sin.to(dtype), size)


def rotate(x: Float[Tensor, "*n b h t c"], by: Rotation) -> Float[Tensor, "*n b h t c"]:
    """The vectors with their first dimensions rotated, the others unchanged; without a gradient of its own.

    Dimension i is paired with i + r, not with its neighbour as in equation 34: a permutation of the dimensions of a
    head, the same for queries and keys, which no dot product sees, and contiguous in memory.
    """
    half = by.size // 2
    other = torch.cat([x[..., half : by.size], x[..., :half], x[..., by.size :]], -1)
    return (x * by.cos).addcmul_(other, by.sin)


@dataclass(frozen=True, eq=False)
class Distances:
    """How far each position of a batch is from each one that it may attend to.

    Attributes:
        each: All distances that there are, in descending steps of one. A clamped one represents those beyond it.
        size: Positions attended to.
        index: Which of them a pair of positions has; None where both are numbered without gaps and end together.
        query_index: The same of the rows of a query stream, behind those of the positions.
    """

    each: Int[Tensor, " n"]
    size: int
    index: Int[Tensor, "#b 1 t s"] | None = None
    query_index: Int[Tensor, "b 1 m s"] | None = None

    @classmethod
    def between(
        cls,
        queries: Int[Tensor, "#b t"],
        attended: Int[Tensor, "#b s"],
        direction: Direction,
        clamp: int = 0,
        *,
        consecutive: bool = False,
    ) -> "Distances":
        """The distances of the positions that attend and those attended to.

        Args:
            direction: Of the model; one that reads to the right has no distance below 0, since it never attends there.
            clamp: The largest distance; farther ones count as this one. 0 means none.
            consecutive: Whether both are numbered without gaps and end together.
        """
        rightward, index = direction == "left_to_right", None
        if consecutive:
            high, low = attended.shape[1] - 1, 0 if rightward else 1 - queries.shape[1]
        else:
            distance = queries[:, :, None] - attended[:, None, :]
            distance = distance.clamp(min=0) if rightward else distance
            low, high = (int(bound) for bound in distance.aminmax())
            index = (high - distance)[:, None]
        each = torch.arange(high, low - 1, -1, device=queries.device)
        return cls(each.clamp(-clamp, clamp) if clamp else each, attended.shape[1], index)

    def at(self, positions: Int[Tensor, "b m"], length: int) -> "Distances":
        """The distances of flat positions, of ``length`` in a row."""
        if self.query_index is None:
            return replace(self, index=gather_rows(self._indices(length), positions))
        own = self._indices(length - self.query_index.shape[2]).expand(len(self.query_index), -1, -1, -1)
        index = gather_rows(torch.cat([own, self.query_index], 2), positions)
        return replace(self, index=index, query_index=None)

    def with_queries(self, positions: Int[Tensor, "b m"], length: int) -> "Distances":
        """These distances and, behind them, those of flat positions once more."""
        return replace(self, query_index=gather_rows(self._indices(length), positions))

    def _indices(self, length: int) -> Int[Tensor, "#b 1 t s"]:
        if self.index is not None:
            return self.index
        row = torch.arange(length, device=self.each.device)[:, None]
        column = torch.arange(self.size, device=self.each.device)
        return (length - 1 - row + column).clamp(max=len(self.each) - 1)[None, None]

    def pick(self, terms: Float[Tensor, "b h t n"]) -> Float[Tensor, "b h t s"]:
        """The term of each pair, from those of each position and distance; any number where a direction hides it."""
        queries = 0 if self.query_index is None else self.query_index.shape[2]
        own, more = terms.split([terms.shape[2] - queries, queries], 2)
        picked = skewed(own, self.size) if self.index is None else _picked(own, self.index)
        return picked if self.query_index is None else torch.cat([picked, _picked(more, self.query_index)], 2)


def _picked(terms: Float[Tensor, "b h t n"], index: Int[Tensor, "#b 1 t s"]) -> Float[Tensor, "b h t s"]:
    b, h, t, _ = terms.shape
    return terms.gather(3, index.expand(b, h, t, -1))


def skewed(x: Float[Tensor, "b h t n"], size: int) -> Float[Tensor, "b h t s"]:
    """``out[i, j] = x[i, t - 1 - i + j]``, zero or of another row beyond ``n`` (Dai et al. 2019, appendix B)."""
    t, n = x.shape[2:]
    return F.pad(x, (0, 1)).flatten(2)[..., t - 1 : t - 1 + t * n].unflatten(2, (t, n))[..., :size]


def distance_sinusoids(distances: Int[Tensor, " n"], width: int, dtype: torch.dtype) -> Float[Tensor, "n d"]:
    """The sinusoids of distances: all sines, then all cosines (Transformer-XL's released code)."""
    rates = _BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=distances.device) / width)
    angles = distances[:, None].double() * rates
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :width].to(dtype)


class PositionScheme(nn.Module):
    """What attention itself knows of positions, the same in all layers. This one adds nothing and rotates nothing.

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

        For head counts that are no power of two the released code interleaves two sequences.
        """
        return [2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)]

    def bias(self, place: Int[Tensor, "#b t"], attended: Int[Tensor, "#b s"]) -> Float[Tensor, "#b h t s"]:
        """See `PositionScheme.bias`."""
        return -self.slopes * (place[:, None, :, None] - attended[:, None, None]).abs()


class SidedLinearBias(LinearBias):
    """ALiBi for encoders with a sense of direction: each head attends to one side only, itself included.

    The non-symmetric form that the authors of ALiBi propose for encoders (released code, FAQ). A masked language model
    leaves its plateau several times sooner than with the symmetric one.
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

    base = _BASE

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.size, self.width = settings.rotary_size, settings.key_width

    def turn(self, place: Int[Tensor, "#b t"], dtype: torch.dtype) -> Rotation:
        """See `PositionScheme.turn`."""
        return rotation(place, self.size, self.width, dtype, self.base)


TABLED = ("learned", "sinusoidal")  # added to the embeddings
BY_DISTANCE = ("relative", "relative_learned")  # each layer reads the distances
POSITIONS: dict[str, type[PositionScheme]] = plugins.parts(
    "POSITIONS",
    {
        **dict.fromkeys(TABLED, PositionScheme),
        "linear_bias": LinearBias,
        "sided_linear_bias": SidedLinearBias,
        "rotary": Rotary,
        **dict.fromkeys((*BY_DISTANCE, "none"), PositionScheme),
    },
    PositionScheme,
)
