"""A softmax in two steps over clusters of words (Grave et al. 2017; Baevski and Auli 2019; Transformer-XL).

The first words of a vocabulary, which are its frequent ones, and one entry for each cluster of rarer words share a
softmax; the words of a cluster share another one. A loss so needs the rows of a cluster where one of its words is
right, and nowhere else. Vectors are those of the word table. Where its clusters are of several widths (adaptive input,
`ClusteredTable`), states are multiplied by a cluster's matrix first, which is that of the input too; for frequent words
the softmax has a matrix of its own (``tie_projs`` of Transformer-XL's released code, on WikiText-103). Clusters are in
the order of ids, which the released code reverses in its head, and so are probabilities.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.batch import Encoded
from lightning_modules.model.losses import summed_cross_entropy

_STD = 0.02  # of the clusters' vectors
_PROJECTION_STD = 0.01


class _Part(NamedTuple):
    """What scores some words: vectors and biases, and the matrix that states are multiplied by before."""

    matrix: Tensor | None
    vectors: Tensor
    bias: Tensor | None = None

    def seen(self, states: Float[Tensor, "n e"]) -> Float[Tensor, "n f"]:
        """The states as the vectors meet them."""
        return states if self.matrix is None else F.linear(states, self.matrix.T)

    def log_shares(self, states: Float[Tensor, "n e"]) -> Float[Tensor, "n w"]:
        """The log-probability of each of these words among them."""
        return F.linear(self.seen(states), self.vectors, self.bias).float().log_softmax(1)

    def summed_loss(self, states: Float[Tensor, "n e"], ids: Int[Tensor, " n"]) -> Float[Tensor, ""]:
        """The summed cross-entropy in nats of these words."""
        return summed_cross_entropy(self.seen(states), self.vectors, self.bias, ids)


class AdaptiveSoftmax(nn.Module):
    """Probabilities of words by clusters, from tied word embeddings.

    Args:
        cutoffs: The first id of each cluster, ascending.
        width: Width e of states, and of the vectors of frequent words.
        bias: Whether clusters have a bias, as words do.
        projected: Whether the embeddings are of several widths.
    """

    def __init__(
        self, cutoffs: tuple[int, ...], vocab_size: int, width: int, *, bias: bool, projected: bool = False
    ) -> None:
        super().__init__()
        self.cutoffs = cutoffs
        self.sizes = [after - before for before, after in zip((0, *cutoffs), (*cutoffs, vocab_size), strict=True)]
        self.clusters = nn.Linear(width, len(cutoffs), bias=bias)
        nn.init.normal_(self.clusters.weight, std=_STD)
        if bias:
            nn.init.zeros_(self.clusters.bias)
        self.projection = nn.Parameter(torch.empty(width, width)) if projected else None
        if self.projection is not None:
            nn.init.normal_(self.projection, std=_PROJECTION_STD)

    def forward(
        self, states: Float[Tensor, "n e"], encoded: Encoded, bias: Float[Tensor, " v"] | None
    ) -> Float[Tensor, "n v"]:
        """The log-probability of each word, in the order of ids."""
        head, *tails = (part.log_shares(states) for part in self._parts(encoded, bias))
        first = self.sizes[0]
        of_clusters = head[:, first:].unbind(1)
        return torch.cat(
            [head[:, :first], *(tail + own[:, None] for tail, own in zip(tails, of_clusters, strict=True))], 1
        )

    def summed_loss(
        self,
        states: Float[Tensor, "n e"],
        encoded: Encoded,
        bias: Float[Tensor, " v"] | None,
        ids: Int[Tensor, " n"],
    ) -> Float[Tensor, ""]:
        """The summed cross-entropy in nats, of the words of a cluster where one of them is right."""
        head, *tails = self._parts(encoded, bias)
        cluster = torch.bucketize(ids, torch.tensor(self.cutoffs, device=ids.device), right=True)
        total = head.summed_loss(states, torch.where(cluster == 0, ids, self.sizes[0] + cluster - 1))
        for number, (part, first) in enumerate(zip(tails, self.cutoffs, strict=True), 1):
            (where,) = (cluster == number).nonzero(as_tuple=True)
            total = total + part.summed_loss(states[where], ids[where] - first)
        return total

    def _parts(self, encoded: Encoded, bias: Tensor | None) -> list[_Part]:
        """What scores the frequent words and the clusters, then the words of each cluster."""
        clusters: Sequence[tuple[Tensor, Tensor | None]] = encoded.clusters
        if not clusters:
            clusters = [(table, None) for table in encoded.table.split(self.sizes)]
        (head, _), *tails = clusters
        parts = [_Part(self.projection, torch.cat([head, self.clusters.weight]))]
        parts += [_Part(matrix, table) for table, matrix in tails]
        if bias is None:
            return parts
        first, *rest = bias.split(self.sizes)
        biases = [torch.cat([first, self.clusters.bias]), *rest]
        return [part._replace(bias=own) for part, own in zip(parts, biases, strict=True)]
