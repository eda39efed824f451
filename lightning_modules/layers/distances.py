"""Distances between the positions of a batch, and what attention by distance reads of them."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.batch import Direction
from lightning_modules.layers.chosen import rows_at


@dataclass(frozen=True, eq=False)
class Distances:
    """How far each position of a batch is from each one that it may attend to.

    Attributes:
        each: All distances that there are, in descending steps of one. A clamped one represents those beyond it.
        size: Positions attended to.
        place: Which of them a pair of positions has; None where both are numbered without gaps and end together.
        beyond: The same of rows behind those of the positions that attend.
    """

    each: Int[Tensor, " n"]
    size: int
    place: Int[Tensor, "#b 1 t s"] | None = None
    beyond: Int[Tensor, "b 1 m s"] | None = None

    @classmethod
    def between(
        cls, queries: Int[Tensor, "#b t"], attended: Int[Tensor, "#b s"], direction: Direction, clamp: int = 0
    ) -> "Distances":
        """The distances of any positions.

        Args:
            queries: The positions that attend.
            attended: The positions attended to.
            direction: Of the model; one that reads to the right has no distance below 0, since it never attends there.
            clamp: The largest distance; farther ones count as this one. 0 means none.
        """
        distance = queries[:, :, None] - attended[:, None, :]
        if direction == "left_to_right":
            distance = distance.clamp(min=0)
        low, high = (int(bound) for bound in distance.aminmax())
        return cls(_range(high, low, clamp, distance.device), attended.shape[1], (high - distance)[:, None])

    @classmethod
    def regular(cls, new: int, size: int, direction: Direction, clamp: int, device: torch.device) -> "Distances":
        """The distances of the last ``new`` of ``size`` positions that are numbered without gaps."""
        low = 0 if direction == "left_to_right" else 1 - new
        return cls(_range(size - 1, low, clamp, device), size)

    def at(self, read: Int[Tensor, "b m"], length: int) -> "Distances":
        """The distances of flat positions, of ``length`` in a row."""
        if self.beyond is None:
            return replace(self, place=rows_at(self._places(length), read))
        own = self._places(length - self.beyond.shape[2]).expand(len(self.beyond), -1, -1, -1)
        return replace(self, place=rows_at(torch.cat([own, self.beyond], 2), read), beyond=None)

    def also_at(self, read: Int[Tensor, "b m"], length: int) -> "Distances":
        """These distances and, behind them, those of flat positions once more."""
        return replace(self, beyond=rows_at(self._places(length), read))

    def _places(self, length: int) -> Int[Tensor, "#b 1 t s"]:
        """Which distance each pair has."""
        if self.place is not None:
            return self.place
        row = torch.arange(length, device=self.each.device)[:, None]
        column = torch.arange(self.size, device=self.each.device)
        return (length - 1 - row + column).clamp(max=len(self.each) - 1)[None, None]

    def pick(self, terms: Float[Tensor, "b h t n"]) -> Float[Tensor, "b h t s"]:
        """The term of each pair, from those of each position and distance.

        Where a direction hides a pair, any finite number is allowed.
        """
        behind = 0 if self.beyond is None else self.beyond.shape[2]
        own, more = terms.split([terms.shape[2] - behind, behind], 2)
        picked = skewed(own, self.size) if self.place is None else _gathered(own, self.place)
        return picked if self.beyond is None else torch.cat([picked, _gathered(more, self.beyond)], 2)


def _gathered(terms: Float[Tensor, "b h t n"], place: Int[Tensor, "#b 1 t s"]) -> Float[Tensor, "b h t s"]:
    b, h, t, _ = terms.shape
    return terms.gather(3, place.expand(b, h, t, -1))


def _range(high: int, low: int, clamp: int, device: torch.device) -> Int[Tensor, " n"]:
    each = torch.arange(high, low - 1, -1, device=device)
    return each.clamp(-clamp, clamp) if clamp else each


def skewed(x: Float[Tensor, "b h t n"], size: int) -> Float[Tensor, "b h t s"]:
    """Row i from its column ``t - 1 - i`` on: ``out[i, j] = x[i, t - 1 - i + j]``; zero or of another row beyond ``n``.

    A view of memory with one column more (Dai et al. 2019, appendix B), as `Distances.pick` gathers it.
    """
    t, n = x.shape[2:]
    return F.pad(x, (0, 1)).flatten(2)[..., t - 1 : t - 1 + t * n].unflatten(2, (t, n))[..., :size]


def waves(distances: Int[Tensor, " n"], width: int, dtype: torch.dtype) -> Float[Tensor, "n d"]:
    """The sinusoids of distances: all sines, then all cosines (Transformer-XL's released code)."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=distances.device) / width)
    angles = distances[:, None].double() * rates
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :width].to(dtype)


class QueryBiases(nn.Module):
    """What is added to queries before they meet keys, u, and before they meet distances, v; of all layers or of one."""

    def __init__(self, num_heads: int, head_size: int, *, with_v: bool) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.empty(num_heads, 1, head_size))
        self.v = nn.Parameter(torch.empty(num_heads, 1, head_size)) if with_v else None
