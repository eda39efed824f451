"""The output layer of all language models: over the whole vocabulary, over clusters of words, or over a sample."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Size, Target
from lightning_modules.model.layers import ACTIVATIONS, draw
from lightning_modules.model.losses import summed_cross_entropy

HeadTransform = Literal["bert", "none"]  # what states go through before they are multiplied by the word table
_CACHED, _AT_ONCE = 1 << 19, 1 << 24  # logits at a time on a processor, 2 MB, and on other devices, 64 MB
_HALVINGS = 100  # of the interval in which the number of draws of a sample lies


class VocabularyHead(nn.Module):
    """The output layer over the tied word table, with or without a transform before it and a bias for each word.

    BERT's transform is dense, activation and LayerNorm; GPT has neither transform nor bias. With ``cutoffs`` the
    softmax is an adaptive one, and with ``negatives`` a sampled one while it trains. The head runs at the predicted
    positions only. The table belongs to the backbone and comes with `Encoded`, unless it is not ``tied``: then it is
    as wide as what is multiplied by it.
    """

    def __init__(
        self,
        size: Size,
        activation: str,
        norm_eps: float,
        *,
        transform: HeadTransform = "bert",
        bias: bool = True,
        cutoffs: tuple[int, ...] = (),
        negatives: int = 0,
        tied: bool = True,
    ) -> None:
        super().__init__()
        width, words = size.embedding_size, size.vocab_size
        self.dense = self.norm = self.adaptive = self.table = None
        if transform == "bert":
            self.dense, self.norm = nn.Linear(size.hidden_size, width), nn.LayerNorm(width, eps=norm_eps)
            draw(self.dense)
        self.activation = ACTIVATIONS[activation]
        self.bias = nn.Parameter(torch.zeros(words)) if bias else None
        if cutoffs:
            self.adaptive = AdaptiveSoftmax(cutoffs, words, width, bias=bias, projected=size.divisor > 1)
        self.sampled = SampledSoftmax(words, negatives) if negatives else None
        if not tied:
            width = width if transform == "bert" else size.hidden_size
            self.table = nn.Parameter(torch.empty(words, width))
            nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, hidden: Float[Tensor, "n d"], encoded: Encoded) -> Float[Tensor, "n v"]:
        """Logits for hidden states (tied weights: Press and Wolf 2017); log-probabilities of an adaptive softmax."""
        states = self.transformed(hidden)
        if self.adaptive is not None:
            return self.adaptive(states, encoded, self.bias)
        logits = F.linear(states, self._table(encoded))
        return logits if self.bias is None else logits + self.bias

    def transformed(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """The states that are multiplied by the word table."""
        if self.dense is None or self.norm is None:
            return hidden
        return self.norm(self.activation(self.dense(hidden)))

    def summed_loss(
        self, hidden: Float[Tensor, "n d"], encoded: Encoded, target: Target, smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """Summed cross-entropy in nats over the predictions, equal to that of the logits and several times as fast.

        Without an adaptive softmax labels may be smoothed; see `summed_cross_entropy`.
        """
        states, ids = self.transformed(hidden), target.ids
        if self.adaptive is not None:
            return self.adaptive.summed_loss(states, encoded, self.bias, ids)
        if self.sampled is not None and self.training:
            return self.sampled.summed_loss(states, self._table(encoded), self.bias, ids)
        return summed_cross_entropy(states, self._table(encoded), self.bias, ids, smoothing)

    def words(self, encoded: Encoded) -> int:
        """Words that it distinguishes."""
        return encoded.words if self.table is None else len(self.table)

    def _table(self, encoded: Encoded) -> Float[Tensor, "v e"]:
        return encoded.table if self.table is None else self.table


def vocabulary_head(heads: nn.ModuleDict) -> VocabularyHead:
    """The vocabulary head among the heads of an objective."""
    head = heads["vocabulary"]
    assert isinstance(head, VocabularyHead)
    return head


class _Cluster(NamedTuple):
    """What scores some words."""

    vectors: Tensor
    projection: Tensor | None  # what states are multiplied by before
    bias: Tensor | None = None

    def of(self, states: Float[Tensor, "n e"]) -> tuple[Tensor, Tensor, Tensor | None]:
        """The factors of their logits: projected states, vectors, bias."""
        return states if self.projection is None else F.linear(states, self.projection.T), self.vectors, self.bias


class AdaptiveSoftmax(nn.Module):
    """A softmax in two steps over clusters of words (Grave et al. 2017; Baevski and Auli 2019; Transformer-XL).

    The frequent words, the first of a vocabulary, and one entry for each cluster of rarer words share a softmax; the
    words of a cluster share another one. A loss so needs the rows of a cluster only where one of its words is right.
    Vectors are those of the word table. Where its clusters are of several widths (adaptive input, `ClusteredTable`),
    states are multiplied by a cluster's matrix first, which is that of the input too; for frequent words the softmax
    has a matrix of its own (``tie_projs`` of Transformer-XL's released code, on WikiText-103). Clusters are in the
    order of ids, which the released code reverses in its head.

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
        nn.init.normal_(self.clusters.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.clusters.bias)
        self.projection = nn.Parameter(torch.empty(width, width)) if projected else None
        if self.projection is not None:
            nn.init.normal_(self.projection, std=0.01)

    def forward(
        self, states: Float[Tensor, "n e"], encoded: Encoded, bias: Float[Tensor, " v"] | None
    ) -> Float[Tensor, "n v"]:
        """The log-probability of each word, in the order of ids."""
        parts = self._parts(encoded, bias)
        head, *tails = (F.linear(*part.of(states)).float().log_softmax(1) for part in parts)
        first = self.sizes[0]
        within = [tail + own[:, None] for tail, own in zip(tails, head[:, first:].unbind(1), strict=True)]
        return torch.cat([head[:, :first], *within], 1)

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
        first_ids = torch.where(cluster == 0, ids, self.sizes[0] + cluster - 1)
        total = summed_cross_entropy(*head.of(states), first_ids)
        for number, (part, first) in enumerate(zip(tails, self.cutoffs, strict=True), 1):
            (where,) = (cluster == number).nonzero(as_tuple=True)
            total = total + summed_cross_entropy(*part.of(states[where]), ids[where] - first)
        return total

    def _parts(self, encoded: Encoded, bias: Tensor | None) -> list[_Cluster]:
        """The frequent words with an entry for each cluster, then the words of each cluster."""
        (frequent, _), *tails = encoded.clusters or [(table, None) for table in encoded.table.split(self.sizes)]
        parts = [_Cluster(torch.cat([frequent, self.clusters.weight]), self.projection)]
        parts += [_Cluster(*tail) for tail in tails]
        if bias is None:
            return parts
        first, *rest = bias.split(self.sizes)
        biases = [torch.cat([first, self.clusters.bias]), *rest]
        return [part._replace(bias=own) for part, own in zip(parts, biases, strict=True)]


class SampledSoftmax(nn.Module):
    """A softmax over a sample of words while a model trains (Bengio and Senecal 2008; Jean et al. 2015; ELMo).

    A draw is of word w with chance ``log((w + 2) / (w + 1)) / log(v + 1)``: frequent words have small ids. There are so
    many draws that ``negatives`` words are expected in a sample. Each is in it with a known chance p(w), independently
    of the others, and represents ``1 / p(w)`` words like it, so the expected sum is that over all words. Predictions of
    a step share the sample. The right word is itself, and never one of its own negatives.

    The released code of ELMo draws a fixed number of words, and divides by the chance of the right word too.
    """

    chances: Tensor

    def __init__(self, words: int, negatives: int) -> None:
        super().__init__()
        self.register_buffer("chances", _chances(words, negatives), persistent=False)

    def summed_loss(
        self,
        states: Float[Tensor, "n e"],
        table: Float[Tensor, "v e"],
        bias: Float[Tensor, " v"] | None,
        ids: Int[Tensor, " n"],
    ) -> Float[Tensor, ""]:
        """The summed cross-entropy in nats over the words of a new sample, drawn from torch's generator."""
        (sample,) = (torch.rand_like(self.chances) < self.chances).nonzero(as_tuple=True)
        others = F.linear(states, table[sample]).float()
        right = (states * table[ids]).sum(1).float()
        if bias is not None:
            others, right = others + bias[sample], right + bias[ids]
        others = others - self.chances[sample].log()
        others = others.masked_fill(sample == ids[:, None], -torch.inf)
        return (torch.cat([right[:, None], others], 1).logsumexp(1) - right).sum()


def _chances(words: int, negatives: int) -> Float[Tensor, " v"]:
    """The chance of each word to be in a sample."""
    if negatives >= words:
        return torch.ones(words)
    rank = np.arange(words)
    misses = np.log1p(-np.log((rank + 2) / (rank + 1)) / np.log(words + 1))
    low, high = 0.0, 1.0
    while -np.expm1(high * misses).sum() < negatives:
        high *= 2
    for _ in range(_HALVINGS):
        draws = (low + high) / 2
        low, high = (low, draws) if -np.expm1(draws * misses).sum() > negatives else (draws, high)
    return torch.tensor(-np.expm1(high * misses), dtype=torch.float32)


def heldout_measures(
    head: Callable[[Tensor], Tensor], states: Float[Tensor, "n d"], target: Target, words: int, prefix: str = ""
) -> dict[str, tuple[Tensor, Tensor]]:
    """Held-out loss in nats and accuracy, each as (sum, count).

    Logits are made a few rows at a time, which on a processor never leave its cache: two to three times as fast as all
    at once.

    Args:
        head: Logits ``[m v]`` of states ``[m d]``.
        prefix: It is before the names of the measures.
    """
    nats, right = torch.zeros((), device=states.device), torch.zeros((), device=states.device)
    is_cpu = states.device.type == "cpu"
    step = max(1, (_CACHED if is_cpu else _AT_ONCE) // words)
    for some, ids in zip(states.split(step), target.ids.split(step), strict=True):
        logits = head(some).float()
        own = logits.gather(1, ids[:, None])[:, 0]
        nats += (logits.logsumexp(1) - own).sum()
        if is_cpu:  # argmax, which names the first of equal ones, is slow there: rows that it cannot change are spared
            best = own >= logits.amax(1)
            logits, ids = logits[best], ids[best]
        right += (logits.argmax(1) == ids).sum()
    count = torch.tensor(target.count())
    return {f"{prefix}loss": (nats, count), f"{prefix}accuracy": (right, count)}
