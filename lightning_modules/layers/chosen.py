"""Some positions of sequences: those whose states are read after the last layer (`Example.read`)."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor


def states_at(x: Float[Tensor, "b t d"], read: Int[Tensor, "b m"]) -> Float[Tensor, "b m d"]:
    """The states of a stream at flat positions; any state where there is none."""
    return x.flatten(0, 1).index_select(0, read.flatten().clamp(min=0)).view(*read.shape, -1)


def states_back(x: Float[Tensor, "b m d"], read: Int[Tensor, "b m"], length: int) -> Float[Tensor, "b t d"]:
    """A stream with these states at flat positions and NaN elsewhere, the inverse of `states_at`."""
    rows, _, width = x.shape
    nowhere = rows * length
    stream = x.new_full((nowhere + 1, width), torch.nan)
    stream.index_copy_(0, torch.where(read < 0, nowhere, read).flatten(), x.flatten(0, 1))
    return stream[:nowhere].view(rows, length, width)


def rows_at(table: Shaped[Tensor, "..."], read: Int[Tensor, "b m"]) -> Shaped[Tensor, "..."]:
    """The rows of some flat positions in a table ``[#b #h t s]``, such as an attention bias: ``[b #h m s]``."""
    _, h, length, s = table.shape
    index = (read % length)[:, None, :, None].expand(-1, h, -1, s)
    return table.expand(len(read), -1, -1, -1).gather(2, index)
