"""Multi-head attention for every visibility: one formula, the fastest kernel that gives the same numbers.

Scaled dot-product attention of Vaswani et al. (2017), equation 1. The attention mask comes from data (`Visibility`);
together with the position bias it forms the attention bias, a tensor that is added to the scores.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightning_modules.batch import Visibility
from lightning_modules.layers.carried import Growing
from lightning_modules.layers.chosen import rows_at, states_at
from lightning_modules.layers.dropout import drop
from lightning_modules.layers.heads import in_heads
from lightning_modules.layers.rotary import Rotation


def attention_mask(visible: Visibility, length: int, device: torch.device) -> Bool[Tensor, "#b #h t s"] | None:
    """The conjunction of all parts of a visibility, True where attention is allowed; None when it is everywhere.

    A padded position attends at least to itself, so that no row of scores is empty.
    """
    parts = []
    if visible.causal:
        parts.append(torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None])
    if visible.anticausal:
        parts.append(torch.ones(length, length, dtype=torch.bool, device=device).triu()[None, None])
    if visible.real is not None:
        itself = torch.eye(length, dtype=torch.bool, device=device)
        parts.append(visible.real[:, None, None, :] | itself)
    if visible.pairs is not None:
        parts.append(visible.pairs)
    if not parts:
        return None
    mask = parts[0]
    for part in parts[1:]:
        mask = mask & part
    return mask


def attention_bias(
    mask: Bool[Tensor, "#b #h t s"] | None, position_bias: Float[Tensor, "#b h t s"] | None, dtype: torch.dtype
) -> Float[Tensor, "#b #h t s"] | None:
    """The bias that is added to the scores: the position bias, and minus infinity where the mask is False."""
    if mask is None:
        return None if position_bias is None else position_bias.to(dtype)
    if position_bias is None:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))
    return position_bias.to(dtype).masked_fill(~mask, float("-inf"))


def attention_weights(
    q: Float[Tensor, "b h t c"], k: Float[Tensor, "b h s c"], bias: Float[Tensor, "#b #h t s"] | None
) -> Float[Tensor, "b h t s"]:
    """The attention weights: the softmax over s of ``q k^T / sqrt(c)`` plus the bias, in the precision of ``q``."""
    b, h, t, c = q.shape
    s = k.shape[2]
    flat_q, flat_k = (q * c**-0.5).reshape(b * h, t, c), k.reshape(b * h, s, c)
    if bias is None:
        scores = torch.bmm(flat_q, flat_k.transpose(1, 2))
    else:
        bias = bias.expand(b, h, t, s).reshape(b * h, t, s)
        scores = torch.baddbmm(bias, flat_q, flat_k.transpose(1, 2))
    return torch.softmax(scores, dim=-1, dtype=q.dtype).reshape(b, h, t, s)


def explicit_attention(
    q: Float[Tensor, "b h t c"],
    k: Float[Tensor, "b h s c"],
    v: Float[Tensor, "b h s c"],
    bias: Float[Tensor, "#b #h t s"] | None,
    dropout: float,
) -> Float[Tensor, "b h t c"]:
    """Attention as two batched matrix products, in the precision of ``q``.

    On CPUs under bfloat16 this is faster than the fused kernel, whose backward pass is slow there.
    """
    b, h, t, c = q.shape
    weights = drop(attention_weights(q, k, bias).reshape(b * h, t, -1), dropout)
    return torch.bmm(weights, v.reshape(b * h, -1, c)).reshape(b, h, t, c)


def attend(
    q: Float[Tensor, "b h t c"],
    k: Float[Tensor, "b h s c"],
    v: Float[Tensor, "b h s c"],
    bias: Float[Tensor, "#b #h t s"] | None,
    dropout: float,
) -> Float[Tensor, "b h t c"]:
    """Attention by the kernel that suits device and precision."""
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return explicit_attention(q, k, v, bias, dropout)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)


class MultiHeadAttention(nn.Module):
    """Queries, keys and values from one projection, attention, and the output projection (all with biases).

    Args:
        hidden_size: Width d of the stream; a multiple of ``num_heads``.
        num_heads: Number of heads h.
        dropout: Probability of dropping an attention weight.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        bias: Float[Tensor, "#b #h t s"] | None,
        turn: Rotation | None = None,
        past: Growing | None = None,
        read: Int[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b m d"]:
        """Self-attention over ``x``, of all positions or of flat ones (see `states_at`).

        ``bias`` comes from `attention_bias`, ``turn`` from `rotation`; both are for all positions. With a ``past``,
        keys and values are those of the positions before ``x`` and of ``x``.
        """
        if read is None:
            q, k, v = self.queries_keys_values(x, turn)
        else:
            q, k, v = self._read_queries(x, turn, read)
            bias = None if bias is None else rows_at(bias, read)
        if past is not None:
            k, v = past(k, v)
        if bias is not None:
            bias = bias.to(q.dtype)
        mixed = attend(q, k, v, bias, self.dropout if self.training else 0.0)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def queries_keys_values(
        self, x: Float[Tensor, "b t d"], turn: Rotation | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of the stream divided among the heads, each ``[b h t c]``; queries and keys are turned."""
        q, k, v = in_heads(self.qkv(x), 3, self.num_heads, turn, turned=2)
        return q, k, v

    def _read_queries(
        self, x: Float[Tensor, "b t d"], turn: Rotation | None, read: Int[Tensor, "b m"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`queries_keys_values` with the queries of some positions, in the order of ``read``."""
        d = x.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        there = None if turn is None else turn.at(read)
        (q,) = in_heads(F.linear(states_at(x, read), weight[:d], bias[:d]), 1, self.num_heads, there, turned=1)
        k, v = in_heads(F.linear(x, weight[d:], bias[d:]), 2, self.num_heads, turn, turned=1)
        return q, k, v
