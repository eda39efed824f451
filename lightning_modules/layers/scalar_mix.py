"""A learned weighting of layers (Peters et al. 2018, section 3.2, equation 1)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """``scale * sum_k softmax(weights)_k layer_k``: one weight per layer and one scale, for all positions.

    It starts as the mean: weights 0, scale 1. Peters et al. may normalise each layer first; here layers are not
    normalised.

    Args:
        count: Number of layers k.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Float[Tensor, "b t k d"]) -> Float[Tensor, "b t d"]:
        """The mixture."""
        return self.scale * torch.einsum("k,btkd->btd", torch.softmax(self.weights, 0).to(layers.dtype), layers)
