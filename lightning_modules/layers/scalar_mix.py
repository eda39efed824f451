"""A learned weighting of layers (Peters et al. 2018, section 3.2, equation 1)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

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
