"""Attention by distance: terms that a layer adds to its scores, from how far apart two positions are.

With queries q, keys k and the distance p_i - p_j of positions i and j, per head::

    relative           (q_i + u) k_j + (q_i + v) W r(p_i - p_j)     Dai et al. (2019), section 3.3: terms a to d
    relative_learned   (q_i + u) k_j + q_i e_(p_i - p_j) + s_(p_i - p_j)     Shaw et al. (2018), section 3.2

all divided by the square root of a head's width. r is a sinusoid without parameters, W a projection of each layer; e
and s are learned, a vector and a number for each head, layer and distance. Shaw et al. have the terms of q alone; u and
s are in Transformer-XL's released code (``attn_type`` 1), where each layer has its own u: ``query_biases: layer``. By
default it is common to all layers, as in the same paper's own encoding.

Each distance is projected once, whatever the batch: O((m + t) d) for m positions before the t of a batch. Distances
have a sign, so that both directions are right, and positions are whole numbers of any origin: what is added depends on
their differences alone.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Direction
from lightning_modules.layers.distances import QueryBiases
from lightning_modules.layers.scene import Scene


class Relation(nn.Module, ABC):
    """Terms that a layer adds to its scores.

    Args:
        biases: The layer's own `QueryBiases`; None if those of the scene serve all layers.
    """

    with_v: bool = False  # does it read v?

    def __init__(self, biases: QueryBiases | None) -> None:
        super().__init__()
        self.biases = biases

    def forward(
        self, q: Float[Tensor, "b h t c"], scene: Scene
    ) -> tuple[Float[Tensor, "b h t c"], Float[Tensor, "b h t s"]]:
        """The queries that meet the keys, and what is added to their scores, divided as they are."""
        biases = scene.biases if self.biases is None else self.biases
        assert biases is not None
        assert scene.distances is not None
        return q + biases.u.to(q.dtype), scene.distances.pick(self.terms(q * q.shape[3] ** -0.5, biases, scene))

    @abstractmethod
    def terms(self, q: Float[Tensor, "b h t c"], biases: QueryBiases, scene: Scene) -> Float[Tensor, "b h t n"]:
        """The terms of each divided query and distance."""


class ProjectedRelation(Relation):
    """Projected sinusoids of distances: Transformer-XL."""

    with_v = True

    def __init__(self, num_heads: int, head_size: int, biases: QueryBiases | None) -> None:
        super().__init__(biases)
        self.project = nn.Linear(num_heads * head_size, num_heads * head_size, bias=False)
        self.num_heads = num_heads

    def terms(self, q: Float[Tensor, "b h t c"], biases: QueryBiases, scene: Scene) -> Float[Tensor, "b h t n"]:
        """See `Relation.terms`."""
        assert scene.waves is not None
        assert biases.v is not None
        keys = self.project(scene.waves).unflatten(1, (self.num_heads, -1))
        v = biases.v.to(q.dtype) * q.shape[3] ** -0.5
        return torch.einsum("bhtc,nhc->bhtn", q + v, keys.to(q.dtype))


class SegmentRelation(nn.Module):
    """``(q_i + w) s`` with one s for positions of the same segment and one for others (Yang et al. 2019, section 2.5).

    Which segments they are has no effect, so that a model of two segments reads more. w and both s are of each layer
    and head, and the term is divided as scores are.
    """

    def __init__(self, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(num_heads, 1, head_size))
        self.s = nn.Parameter(torch.empty(2, num_heads, head_size))

    def forward(self, q: Float[Tensor, "b h t c"], scene: Scene) -> Float[Tensor, "b h t s"]:
        """What is added to the scores of queries."""
        assert scene.apart is not None
        asking = (q + self.w.to(q.dtype)) * q.shape[3] ** -0.5
        same, different = torch.einsum("bhtc,xhc->xbht", asking, self.s.to(q.dtype))[..., None]
        return torch.where(scene.apart, different, same)


class LearnedRelation(Relation):
    """A learned vector and number of each distance, up to a farthest one that represents all beyond it: Shaw et al."""

    def __init__(
        self, num_heads: int, head_size: int, biases: QueryBiases | None, farthest: int, direction: Direction
    ) -> None:
        super().__init__(biases)
        self.low = 0 if direction == "left_to_right" else -farthest
        self.high = 0 if direction == "right_to_left" else farthest
        self.table = nn.Parameter(torch.empty(self.high - self.low + 1, num_heads, head_size))
        self.number = nn.Parameter(torch.zeros(self.high - self.low + 1, num_heads))

    def terms(self, q: Float[Tensor, "b h t c"], biases: QueryBiases, scene: Scene) -> Float[Tensor, "b h t n"]:
        """See `Relation.terms`."""
        assert scene.distances is not None
        row = scene.distances.each.clamp(self.low, self.high) - self.low
        products = torch.einsum("bhtc,nhc->bhtn", q, self.table[row].to(q.dtype))
        return products + (self.number[row] * q.shape[3] ** -0.5).T[:, None].to(q.dtype)
