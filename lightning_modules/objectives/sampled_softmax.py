"""A softmax over a sample of words while a model trains (Bengio and Senecal 2008; Jean et al. 2015; ELMo).

Word w is in the sample of a step with a known chance p(w), independently of the others, and all predictions of a step
share the sample. In the sum over all words, each other word of the sample represents ``1 / p(w)`` like it. So the
expected sum is that of all words. The right word is itself, and never one of its own negatives.

The released code of ELMo draws a fixed number of words, and divides by the chance of the right word too.
"""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

_HALVINGS = 100  # of the interval in which the number of draws lies


class SampledSoftmax(nn.Module):
    """Draws of words by the logarithm of their ids, which number frequent words first.

    A draw is of word w with chance ``log((w + 2) / (w + 1)) / log(v + 1)``, and a word is in the sample if one of so
    many draws is of it that ``negatives`` words are expected.

    Args:
        words: Size v of the vocabulary.
        negatives: Expected words of a sample; as many as there are words or more are all of them.
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
