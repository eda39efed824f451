"""The output layer of all language models, and its summed losses and measures."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Size, Target
from lightning_modules.model.layers import ACTIVATIONS, draw
from lightning_modules.model.losses import summed_cross_entropy
from lightning_modules.objectives.adaptive_softmax import AdaptiveSoftmax
from lightning_modules.objectives.sampled_softmax import SampledSoftmax

HeadTransform = Literal["bert", "none"]  # what states go through before they are multiplied by the word table
_CACHED, _AT_ONCE = 1 << 19, 1 << 24  # logits at a time on a processor, 2 MB, and on other devices, 64 MB


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
        self.dense = self.norm = None
        if transform == "bert":
            self.dense = nn.Linear(size.hidden_size, size.embedding_size)
            self.norm = nn.LayerNorm(size.embedding_size, eps=norm_eps)
            draw(self.dense)
        self.activation = ACTIVATIONS[activation]
        self.bias = nn.Parameter(torch.zeros(size.vocab_size)) if bias else None
        self.adaptive = None
        if cutoffs:
            projected = size.divisor > 1
            self.adaptive = AdaptiveSoftmax(
                cutoffs, size.vocab_size, size.embedding_size, bias=bias, projected=projected
            )

        self.sampled = SampledSoftmax(size.vocab_size, negatives) if negatives else None
        self.table = None
        if not tied:
            width = size.embedding_size if transform == "bert" else size.hidden_size
            self.table = nn.Parameter(torch.empty(size.vocab_size, width))
            nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, hidden: Float[Tensor, "n d"], encoded: Encoded) -> Float[Tensor, "n v"]:
        """Logits for hidden states (tied weights: Press and Wolf 2017); log-probabilities of an adaptive softmax."""
        if self.adaptive is not None:
            return self.adaptive(self.below(hidden), encoded, self.bias)
        logits = F.linear(self.below(hidden), self._table(encoded))
        return logits if self.bias is None else logits + self.bias

    def below(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """What is multiplied by the word table."""
        if self.dense is None or self.norm is None:
            return hidden
        return self.norm(self.activation(self.dense(hidden)))

    def summed_loss(
        self, hidden: Float[Tensor, "n d"], encoded: Encoded, target: Target, smoothing: float = 0.0
    ) -> Tensor:
        """Summed cross-entropy in nats over the predictions, equal to that of the logits and several times as fast.

        Without an adaptive softmax labels may be smoothed; see `summed_cross_entropy`.
        """
        if self.adaptive is not None:
            return self.adaptive.summed_loss(self.below(hidden), encoded, self.bias, target.ids)
        if self.sampled is not None and self.training:
            return self.sampled.summed_loss(self.below(hidden), self._table(encoded), self.bias, target.ids)
        return summed_cross_entropy(self.below(hidden), self._table(encoded), self.bias, target.ids, smoothing)

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


def measured(
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
