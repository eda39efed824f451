"""Attention weights of a trained encoder, and averages for each head (Clark et al. 2019).

Fast kernels never form the attention weights. Here forward hooks recompute them from the inputs of each attention
module, without changes to the model.

Each head's weights are compared with its prior: the weights with uninformative queries and keys, determined by
visibility and position bias alone. A head restricted to near tokens on the left attends to the previous token without
any training; what it has learnt is the difference from its prior.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Example, Unsupported
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model.attention import CrossAttention, MultiHeadAttention, Source, attention_weights
from lightning_modules.model.seq2seq import SourceAttention


class Attention(NamedTuple):
    """The attention of one layer: row t of a head has the weights of position t on each position s."""

    weights: Float[Tensor, "b h t s"]
    prior: Float[Tensor, "b h t s"]  # the weights for queries of zero: uniform without a position bias or relation


@torch.no_grad()
def attention_maps(backbone: nn.Module, example: Example) -> list[Attention]:
    """The attention of every layer to its own sequence, in order, without dropout.

    A shared module yields one entry per layer. Of an encoder-decoder the layers of the encoder come first; what attends
    to a source is of `source_attention`.

    Raises:
        Unsupported: For an encoder without attention.
    """
    own = [
        module
        for module in backbone.modules()
        if isinstance(module, MultiHeadAttention) and not isinstance(module, CrossAttention)
    ]
    if not own:
        raise Unsupported("this encoder has no attention (model.kind). Attention maps need a transformer.")
    maps: list[Attention] = []

    def keep(module: MultiHeadAttention, inputs: tuple, output: Tensor) -> None:
        x, context, _ = inputs
        q, k, _ = module.queries_keys_values(x, context)
        asked = (module.biased(queries, context) for queries in (q, torch.zeros_like(q)))
        maps.append(Attention(*(attention_weights(queries, k, bias) for queries, bias in asked)))

    _hooked(backbone, example, own, keep)
    return maps


@torch.no_grad()
def source_attention(backbone: nn.Module, example: Example) -> list[Float[Tensor, "b h t s"]]:
    """The shares of the source in what each position of the target attends to, by layer, without dropout.

    Row t is of the state that predicts what follows position t. Rows sum to 1 over the source, and padding has nothing.

    Args:
        backbone: An encoder-decoder; it is not changed. An LSTM has one layer of attention with one head.

    Raises:
        Unsupported: For a model that does not attend to a source.
    """
    attending = [module for module in backbone.modules() if isinstance(module, (CrossAttention, SourceAttention))]
    if not attending:
        raise Unsupported(
            "this model attends to no source. Choose an encoder_decoder, or an lstm_encoder_decoder whose "
            "model.attention is not none."
        )
    maps: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, Source], output: Tensor) -> None:
        x, source = inputs
        if isinstance(module, SourceAttention):
            maps.append(module.weights(x, source)[:, None])
        else:
            assert isinstance(module, CrossAttention)
            q, k, _ = module.queries_keys_values(x, attended=source.states)
            maps.append(attention_weights(q, k, source.bias.to(q.dtype).expand(-1, -1, q.shape[2], -1)))

    _hooked(backbone, example, attending, keep)
    return maps


def _hooked(backbone: nn.Module, example: Example, modules: Iterable[nn.Module], keep: Callable[..., None]) -> None:
    """Encodes an example without dropout, with a hook after each of some modules."""
    with ExitStack() as hooks:
        hooks.callback(backbone.train, backbone.training)
        backbone.eval()
        for module in modules:
            hooks.callback(module.register_forward_hook(keep).remove)
        backbone(example)


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Averages for each head over the ordinary tokens of a text ``[layer head]``.

    Shares are of a token's attention, as in Clark et al. (2019), section 3. They may overlap, for example if the
    previous token is [CLS].
    """

    previous: np.ndarray  # share on the previous position
    itself: np.ndarray  # on the token itself
    following: np.ndarray  # on the next position
    first: np.ndarray  # on [CLS]
    separator: np.ndarray  # on all [SEP]
    distance: np.ndarray  # mean distance of attention, in positions
    entropy: np.ndarray  # in nats
    beyond: np.ndarray  # Kullback-Leibler divergence from the prior of `Attention`, in nats


def head_statistics(
    backbone: nn.Module, examples: Iterable[Example], vocabulary: Vocabulary
) -> tuple[HeadStatistics, HeadStatistics]:
    """The statistics of each head's weights, and those of its prior (`Attention.prior`).

    Means are over all tokens that are neither special nor padding. Unlike here, Clark et al. include queries at [CLS]
    and [SEP], and use segments of Wikipedia of at most 128 tokens.

    Raises:
        ValueError: For a text without ordinary tokens.
    """
    sums, count = [], 0
    for example in examples:
        tokens = example.inputs
        queries = tokens.real & ~tokens.special
        layers = attention_maps(backbone, example)
        sums.append([[_summed(side, layer, queries, tokens.ids, vocabulary) for layer in layers] for side in (0, 1)])
        count += int(queries.sum())
    if not count:
        raise ValueError("head statistics need a text with at least one ordinary token")
    totals = np.asarray(sums).sum(0) / count  # [2 layer statistic head]
    learnt, prior = (HeadStatistics(*side.swapaxes(0, 1)) for side in totals)
    return learnt, prior


def _summed(side: int, layer: Attention, queries: Tensor, ids: Tensor, vocabulary: Vocabulary) -> np.ndarray:
    """The statistics of one layer, summed over the query positions ``[statistic head]``."""
    rows = layer[side].double().permute(0, 2, 1, 3)[queries]  # [n h s]
    prior = layer.prior.double().permute(0, 2, 1, 3)[queries]
    row, place = queries.nonzero(as_tuple=True)
    columns, own = torch.arange(ids.shape[1]), place[:, None]
    chosen = [columns == own - 1, columns == own, columns == own + 1, ids[row] == vocabulary.cls]
    shares = [(rows * where[:, None]).sum((0, 2)) for where in (*chosen, ids[row] == vocabulary.sep)]
    distance = (rows * (columns - own).abs()[:, None]).sum((0, 2))
    entropy = torch.special.entr(rows).sum((0, 2))
    beyond = (torch.xlogy(rows, rows) - torch.xlogy(rows, prior)).sum((0, 2))
    return torch.stack([*shares, distance, entropy, beyond]).numpy()


STATISTICS = tuple(part.name for part in fields(HeadStatistics))


def most_beyond(statistics: HeadStatistics) -> tuple[int, int]:
    """Layer and head, counted from 0, whose attention differs most from its prior."""
    layer, head = np.unravel_index(int(statistics.beyond.argmax()), statistics.beyond.shape)
    return int(layer), int(head)
