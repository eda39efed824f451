"""Who looks at whom in a trained encoder, and what each head does on average (Clark et al. 2019).

Fast kernels never form the attention weights. Here they are computed a second time from what each attention module
was given, by forward hooks: nothing in the model knows of it.

Beside each head's weights stand those it would have if queries and keys said nothing, which is what visibility and
position biases alone make it look at. A head that may only look left, close by, attends to the token before whatever it
has learnt; what it has learnt is the difference.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Example
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.layers.attention import MultiHeadAttention, attention_weights


class Attention(NamedTuple):
    """The attention of one layer: row t of a head says how much position t takes from each position s."""

    weights: Float[Tensor, "b h t s"]
    prior: Float[Tensor, "b h t s"]  # the weights if queries and keys said nothing: uniform without a position bias


@torch.no_grad()
def attention_maps(backbone: nn.Module, example: Example) -> list[Attention]:
    """The attention of every layer, in order, without dropout; a module that layers share gives one a layer.

    Args:
        backbone: An encoder whose attention is `MultiHeadAttention`. It stays as it is.
        example: What it reads.
    """
    maps: list[Attention] = []

    def keep(module: MultiHeadAttention, inputs: tuple, output: Tensor) -> None:
        x, bias = inputs
        q, k, _ = module.queries_keys_values(x)
        bias = None if bias is None else bias.to(q.dtype)
        maps.append(Attention(attention_weights(q, k, bias), attention_weights(torch.zeros_like(q), k, bias)))

    training = backbone.training
    backbone.eval()
    with ExitStack() as hooks:
        for module in backbone.modules():
            if isinstance(module, MultiHeadAttention):
                hooks.callback(module.register_forward_hook(keep).remove)
        backbone(example)
    backbone.train(training)
    return maps


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """What each head does on average over the ordinary tokens of a text, each ``[layer head]``.

    Shares are of the attention that a token spends, as in Clark et al. (2019), section 3; a share may count twice, as
    where the token before is [CLS].
    """

    previous: np.ndarray  # share spent on the position before
    itself: np.ndarray  # on the token itself
    following: np.ndarray  # on the position after
    first: np.ndarray  # on [CLS]
    separator: np.ndarray  # on all [SEP]
    distance: np.ndarray  # mean distance of what is looked at, in positions
    entropy: np.ndarray  # in nats
    beyond: np.ndarray  # Kullback-Leibler divergence from the prior of `Attention`, in nats


def head_statistics(
    backbone: nn.Module, examples: Iterable[Example], vocabulary: Vocabulary
) -> tuple[HeadStatistics, HeadStatistics]:
    """The statistics of each head, and the same of what its positions alone would give (`Attention.prior`).

    Means are over the tokens that are neither special nor padding, each token counting alike. Differs from Clark et
    al., who let [CLS] and [SEP] ask too, and read segments of Wikipedia of at most 128 tokens.

    Args:
        backbone: See `attention_maps`.
        examples: The text.
        vocabulary: Which pieces are special.

    Raises:
        ValueError: For a text without ordinary tokens.
    """
    sums, count = [], 0
    for example in examples:
        tokens = example.inputs
        asking = tokens.real & ~tokens.special
        layers = attention_maps(backbone, example)
        sums.append([[_summed(side, layer, asking, tokens.ids, vocabulary) for layer in layers] for side in (0, 1)])
        count += int(asking.sum())
    if not count:
        raise ValueError("head statistics need a text with at least one ordinary token")
    totals = np.asarray(sums).sum(0) / count  # [2 layer statistic head]
    learnt, prior = (HeadStatistics(*side.swapaxes(0, 1)) for side in totals)
    return learnt, prior


def _summed(side: int, layer: Attention, asking: Tensor, ids: Tensor, vocabulary: Vocabulary) -> np.ndarray:
    """The statistics of one layer, summed over the positions that ask ``[statistic head]``."""
    rows = layer[side].double().permute(0, 2, 1, 3)[asking]  # [n h s]
    prior = layer.prior.double().permute(0, 2, 1, 3)[asking]
    row, place = asking.nonzero(as_tuple=True)
    columns, here = torch.arange(ids.shape[1]), place[:, None]
    chosen = [columns == here - 1, columns == here, columns == here + 1, ids[row] == vocabulary.cls]
    shares = [(rows * where[:, None]).sum((0, 2)) for where in (*chosen, ids[row] == vocabulary.sep)]
    distance = (rows * (columns - here).abs()[:, None]).sum((0, 2))
    entropy = torch.special.entr(rows).sum((0, 2))
    beyond = (torch.xlogy(rows, rows) - torch.xlogy(rows, prior)).sum((0, 2))
    return torch.stack([*shares, distance, entropy, beyond]).numpy()


STATISTICS = tuple(found.name for found in fields(HeadStatistics))


def most_beyond(statistics: HeadStatistics) -> tuple[int, int]:
    """Layer and head, counted from 0, whose attention differs most from what its positions alone would give."""
    layer, head = np.unravel_index(int(statistics.beyond.argmax()), statistics.beyond.shape)
    return int(layer), int(head)
