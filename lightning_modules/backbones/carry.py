"""What a model carries from batch to batch of rows that go on: any nest of tensors whose first axis is the row."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from lightning_modules.batch import mapped


def reset(carry: Any, rows: Bool[Tensor, " b"]) -> Any:
    """A carry that is empty in some rows, where the text starts again. Zeros hold nothing (`BackboneModule.begin`)."""

    def emptied(held: Tensor) -> Tensor:
        return torch.where(rows.view(-1, *[1] * (held.ndim - 1)), torch.zeros_like(held), held)

    return mapped(carry, emptied)


def turned(carry: Any) -> Any:
    """A carry in which each row holds what belongs to the next one, and the last row what belongs to the first."""
    return mapped(carry, lambda held: held.roll(-1, dims=0))


def tensors(carry: Any) -> list[Tensor]:
    """The tensors of a carry, in order, as checkpoints hold them."""
    found: list[Tensor] = []
    mapped(carry, lambda held: found.append(held) or held)
    return found


def filled(like: Any, held: Sequence[Tensor]) -> Any:
    """A carry of a known form that holds these tensors, which are moved to the device of its own."""
    left = iter(held)
    return mapped(like, lambda tensor: next(left).to(tensor.device))
