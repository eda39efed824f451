"""The span boundary objective (Joshi et al. 2020, SpanBERT, section 3.2, and the released code)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example, Size, Target, Unsupported, Vocabulary
from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.model.layers import draw
from lightning_modules.model.losses import summed_cross_entropy
from lightning_modules.objectives.heads import heldout_measures
from lightning_modules.objectives.objective import MLM, Objective

SBO = "sbo"  # the target


class SpanHead(nn.Module):
    """Two layers above the states next to a span and a position within it, and the tied word table.

    Each layer is dense, GELU and LayerNorm; the table's bias is the head's own.
    """

    def __init__(self, size: Size, longest: int, position_size: int, norm_eps: float) -> None:
        super().__init__()
        self.position = nn.Embedding(longest, position_size)
        self.first = nn.Linear(2 * size.hidden_size + position_size, size.hidden_size)
        self.first_norm = nn.LayerNorm(size.hidden_size, eps=norm_eps)
        self.second = nn.Linear(size.hidden_size, size.embedding_size)
        self.second_norm = nn.LayerNorm(size.embedding_size, eps=norm_eps)
        self.bias = nn.Parameter(torch.zeros(size.vocab_size))
        draw(self.position, self.first, self.second)

    def forward(self, encoded: Encoded, target: Target) -> Float[Tensor, "n e"]:
        """The states that are multiplied by the word table."""
        assert target.output_positions is not None
        left, right = target.output_positions.unbind(1)
        # in a row, the left state is one position before the span's first
        position = self.position(target.where - left - 1)
        x = torch.cat([encoded.at(left), encoded.at(right), position], dim=-1)
        x = self.first_norm(F.gelu(self.first(x)))
        return self.second_norm(F.gelu(self.second(x)))


class SpanBoundary(Objective):
    """Predict the pieces of a hidden span from the two visible pieces next to it, and from their place in the span.

    Worked example, one span, at most ``longest`` pieces of each::

        ids       [CLS]  an  American [MASK] [MASK] [MASK] game  [SEP]
        target      -    -      -     football match  1     -      -
        reads       -    -      both  2 and 6  2 and 6 ...         and the positions 0, 1, 2

    A span at the edge of a text, next to a special piece, has no such loss. Nor have batches without a span, which are
    harmless. The term is the mean over these predictions and is added to that of the masked words.
    """

    masks_inputs: ClassVar[bool] = False
    reads_targets_only: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = (SBO,)

    weight: float = knob(1.0, "Factor on this objective's mean loss. With 0 there is none.", ge=0)
    longest: int = knob(15, "Most pieces of a span that are predicted, from its start.", ge=1, le=512)
    position_size: int = knob(200, "Width of the embeddings of positions within a span.", ge=1, le=1 << 16)
    norm_eps: float = knob(1e-12, "Epsilon of the head's LayerNorms.", neutral=1e-12, gt=0)

    def heads(self, size: Size) -> nn.ModuleDict:
        """The head of this objective."""
        return nn.ModuleDict({"span": SpanHead(size, self.longest, self.position_size, self.norm_eps)})

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Adds the target ``sbo``: predicted pieces of spans, with the positions next to each span.

        Raises:
            Unsupported: When nothing was masked in spans.
        """
        if example.groups is None:
            raise Unsupported("the span boundary objective needs an objective that hides spans")
        tokens, masked = example.inputs, example.targets[MLM]
        groups, columns = example.groups.numpy(), tokens.ids.shape[1]
        text = (tokens.real & ~tokens.special).numpy()
        row, column = np.divmod(masked.where.numpy(), columns)
        first = groups[row, column]
        hidden = np.nonzero(groups >= 0)
        size = np.bincount(hidden[0] * columns + groups[hidden], minlength=groups.size)
        left, right = first - 1, first + size[row * columns + first]
        within = (left >= 0) & (right < columns) & (column - first < self.longest)
        within &= text[row, np.maximum(left, 0)] & text[row, np.minimum(right, columns - 1)]
        read = torch.from_numpy((row[:, None] * columns + np.stack([left, right], axis=1))[within])
        kept = torch.from_numpy(within)
        target = Target(masked.where[kept], masked.ids[kept], output_positions=read)
        return replace(example, targets=example.targets | {SBO: target})

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, Tensor]:
        """Summed cross-entropy in nats over the predictions."""
        head, target = _span_head(heads), example.targets[SBO]
        return {SBO: summed_cross_entropy(head(encoded, target), encoded.table, head.bias, target.ids)}

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Loss in nats and accuracy, each as (sum, count)."""
        head, target, table = _span_head(heads), example.targets[SBO], encoded.table
        states = head(encoded, target)
        return heldout_measures(lambda x: F.linear(x, table) + head.bias, states, target, encoded.words, f"{SBO}_")

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """None but for hidden positions: see `flops_per_hidden`."""
        return 0.0

    def flops_per_hidden(self, size: Size) -> float:
        """Multiply-adds x 2 of the head's forward pass for a hidden position, as if every one were in a whole span."""
        d, e, v = size.hidden_size, size.embedding_size, size.vocab_size
        return 2.0 * ((2 * d + self.position_size) * d + d * e + e * v)


def _span_head(heads: nn.ModuleDict) -> SpanHead:
    head = heads["span"]
    assert isinstance(head, SpanHead)
    return head
