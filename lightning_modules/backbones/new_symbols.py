"""Rows of the embedding table for symbols that come after pretraining."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

FIRST_NEW = 1 << 20  # the id of the first new symbol: no vocabulary has so many pieces
_STD = 0.02  # of new rows (Radford et al. 2018, released code)


class ExtendedTable(nn.Embedding):
    """A table of word embeddings with rows for new symbols, whose ids start at ``FIRST_NEW``.

    The pretrained rows stay a parameter of their own under their own name. So weights of a pretraining fit, and a
    softmax over the vocabulary has no entry for a symbol that is no piece. New rows are normal with deviation 0.02,
    drawn from torch's current generator.

    Args:
        table: The pretrained table, whose parameter is taken over.
    """

    NEW = "new"  # the name of the parameter of new rows

    def __init__(self, table: nn.Embedding, count: int) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, _weight=table.weight.detach())
        self.weight = table.weight
        self.new = nn.Parameter(torch.empty(count, table.embedding_dim))
        nn.init.normal_(self.new, std=_STD)

    def forward(self, input: Int[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """The rows of pieces and of new symbols."""
        is_new = input >= FIRST_NEW
        old = F.embedding(input.masked_fill(is_new, 0), self.weight)
        new = F.embedding((input - FIRST_NEW).clamp_min(0), self.new)
        return torch.where(is_new[..., None], new, old)
