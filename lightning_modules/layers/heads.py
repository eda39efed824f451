"""Projections of a stream divided among attention heads, in the layout of batched matrix products."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.layers.rotary import Rotation, rotate


def in_heads(
    x: Float[Tensor, "b t _"], parts: int, heads: int, turn: Rotation | None = None, turned: int = 0
) -> tuple[Float[Tensor, "b h t c"], ...]:
    """The parts that ``x`` holds side by side, each divided among the heads; the first of them are turned.

    Args:
        x: Projections; its width is parts x heads x c.
        parts: How many there are: queries, keys and values are three.
        heads: Number of heads.
        turn: A rotation of queries and keys.
        turned: How many parts it turns.
    """
    return _InHeads.apply(x, parts, heads, turn, turned if turn else 0)


class _InHeads(torch.autograd.Function):
    """One copy each way. Autograd's own gradient of taking parts fills each with zeros and adds them up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: int, heads: int, turn: Rotation | None, turned: int) -> tuple[Tensor, ...]:
        ctx.turn, ctx.turned = turn, turned
        b, t, width = x.shape
        split = x.view(b, t, parts, heads, width // (parts * heads)).permute(2, 0, 3, 1, 4)
        if turn is None:
            return split.contiguous().unbind()
        first = rotate(split[:turned].contiguous(), turn)
        return *first.unbind(), *split[turned:].contiguous().unbind()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        b, h, t, c = gradients[0].shape
        joined = gradients[0].new_empty(b, t, len(gradients), h, c)
        for part, gradient in enumerate(gradients):
            if part < ctx.turned:
                gradient = rotate(gradient, ctx.turn.back())
            joined[:, :, part] = gradient.transpose(1, 2)
        return joined.flatten(2), None, None, None, None
