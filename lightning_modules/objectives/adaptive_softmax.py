"""A softmax in two steps over clusters of words (Grave et al. 2017; Baevski and Auli 2019; Transformer-XL).

The first words of a vocabulary, which are its frequent ones, and one entry for each cluster of rarer words share a
softmax; the words of a cluster share another one. A loss so needs the rows of a cluster where one of its words is
right, and nowhere else. All vectors are those of the table, equally wide (``div_val`` 1 of Transformer-XL's released
code); narrower ones for rarer words, and the adaptive input that goes with them, are not here. Clusters are in the
order of ids, which the released code reverses in its head, and so are probabilities.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.layers.cross_entropy import summed_cross_entropy

_STD = 0.02  # of the clusters' vectors


class AdaptiveSoftmax(nn.Module):
    """Probabilities of words by clusters, from a tied table.

    Args:
        cutoffs: The first id of each cluster, ascending.
        vocab_size: Number of words.
        width: Width e of the table.
        bias: Whether clusters have a bias, as words do.
    """

    def __init__(self, cutoffs: tuple[int, ...], vocab_size: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.cutoffs = cutoffs
        self.sizes = [after - before for before, after in zip((0, *cutoffs), (*cutoffs, vocab_size), strict=True)]
        self.clusters = nn.Linear(width, len(cutoffs), bias=bias)
        nn.init.normal_(self.clusters.weight, std=_STD)
        if bias:
            nn.init.zeros_(self.clusters.bias)

    def forward(
        self, states: Float[Tensor, "n e"], table: Float[Tensor, "v e"], bias: Float[Tensor, " v"] | None
    ) -> Float[Tensor, "n v"]:
        """The log-probability of each word, in the order of ids."""
        (head, *tails) = (F.linear(states, *part).float().log_softmax(1) for part in self._parts(table, bias))
        first = self.sizes[0]
        of_clusters = head[:, first:].unbind(1)
        return torch.cat(
            [head[:, :first], *(tail + own[:, None] for tail, own in zip(tails, of_clusters, strict=True))], 1
        )

    def summed_loss(
        self,
        states: Float[Tensor, "n e"],
        table: Float[Tensor, "v e"],
        bias: Float[Tensor, " v"] | None,
        ids: Int[Tensor, " n"],
    ) -> Float[Tensor, ""]:
        """The summed cross-entropy in nats, of the words of a cluster where one of them is right."""
        head, *tails = self._parts(table, bias)
        cluster = torch.bucketize(ids, torch.tensor(self.cutoffs, device=ids.device), right=True)
        total = summed_cross_entropy(states, *head, torch.where(cluster == 0, ids, self.sizes[0] + cluster - 1))
        for number, (part, first) in enumerate(zip(tails, self.cutoffs, strict=True), 1):
            (where,) = (cluster == number).nonzero(as_tuple=True)
            total = total + summed_cross_entropy(states[where], *part, ids[where] - first)
        return total

    def _parts(self, table: Tensor, bias: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
        """Vectors and biases of the frequent words and the clusters, then of the words of each cluster."""
        head, *tails = table.split(self.sizes)
        vectors = [torch.cat([head, self.clusters.weight]), *tails]
        if bias is None:
            return [(part, None) for part in vectors]
        first, *rest = bias.split(self.sizes)
        return [*zip(vectors, [torch.cat([first, self.clusters.bias]), *rest], strict=True)]
