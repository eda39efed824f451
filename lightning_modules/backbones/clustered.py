"""Word embeddings that are narrower for rarer words (adaptive input: Baevski and Auli 2019; Transformer-XL).

Words are clustered by their ids, which number frequent ones first. Cluster i has vectors of width e / divisor^i and a
matrix from there to width e, also where both are equally wide, as in the released code of Transformer-XL.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class ClusteredTable(nn.Module):
    """Word embeddings in clusters.

    Args:
        width: Width e of what it gives, and of the vectors of the first cluster.
        cutoffs: The first id of each further cluster, ascending.
        divisor: How many times narrower a cluster's vectors are than those before it.
    """

    def __init__(self, vocab_size: int, width: int, cutoffs: tuple[int, ...], divisor: int) -> None:
        super().__init__()
        self.cutoffs = cutoffs
        edges = (0, *cutoffs, vocab_size)
        self.tables = nn.ModuleList(
            nn.Embedding(edges[i + 1] - edges[i], width // divisor**i) for i in range(len(cutoffs) + 1)
        )
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(width, width // divisor**i)) for i in range(len(cutoffs) + 1)
        )

    @property
    def weight(self) -> Float[Tensor, "v e"]:
        """The vectors of the first cluster."""
        return self.clusters[0][0]

    @property
    def clusters(self) -> list[tuple[Tensor, Tensor]]:
        """Vectors ``[v_i e_i]`` and matrix ``[e e_i]`` of each cluster, to which an adaptive softmax is tied."""
        return [(table.get_parameter("weight"), own) for table, own in zip(self.tables, self.projections, strict=True)]

    def forward(self, ids: Int[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """The vectors of words. Each cluster is looked up at all positions, so that nothing waits for the ids."""
        found = None
        for start, (table, projection) in zip((0, *self.cutoffs), self.clusters, strict=True):
            rows = F.linear(F.embedding((ids - start).clamp(0, len(table) - 1), table), projection)
            found = rows if found is None else torch.where((ids >= start)[..., None], rows, found)
        assert found is not None
        return found
