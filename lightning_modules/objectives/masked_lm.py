"""Masked language modelling (Devlin et al. 2019, section 3.1, task 1)."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..batch import Encoded, Example, Size, Target, Vocabulary
from ..config import Settings, knob
from ..draws import Draws
from ..layers.activations import ACTIVATIONS
from .masking import Masking


class VocabularyHead(nn.Module):
    """BERT's output layer: dense, activation, LayerNorm, the tied word table, and a bias for each word.

    Runs at the predicted positions only. The table itself belongs to the backbone and comes with `Encoded`.
    """

    def __init__(self, size: Size, activation: str, norm_eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(size.hidden_size, size.embedding_size)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(size.embedding_size, eps=norm_eps)
        self.bias = nn.Parameter(torch.zeros(size.vocab_size))
        nn.init.trunc_normal_(self.dense.weight, std=0.02, a=-0.04, b=0.04)
        nn.init.zeros_(self.dense.bias)

    def forward(self, hidden: Tensor, encoded: Encoded) -> Tensor:
        """Logits ``[n v]`` for hidden states ``[n d]``."""
        return encoded.unembed(self.norm(self.activation(self.dense(hidden)))) + self.bias


class MaskedLM(Settings):
    """Hide some tokens, predict them from both sides."""

    corrupts: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"full"})

    weight: float = knob(1.0, "Factor on this objective's mean loss.", gt=0)
    masking: Masking = Masking()
    activation: Literal["gelu", "gelu_tanh", "relu"] = knob(
        "gelu", "Non-linearity of the head; published checkpoints may have another.", neutral="gelu"
    )
    norm_eps: float = knob(1e-12, "Epsilon of the head's LayerNorm.", neutral=1e-12, gt=0)

    def heads(self, size: Size) -> nn.ModuleDict:
        """The parameters this objective adds."""
        return nn.ModuleDict({"vocabulary": VocabularyHead(size, self.activation, self.norm_eps)})

    def corrupt(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Hides the chosen tokens and adds them as the target ``mlm``; on CPU, before any transfer."""
        tokens = example.inputs
        if self.masking.copies:
            draws = draws.static(self.masking.copies)
        chosen = self.masking.choose(tokens, draws)
        where = torch.from_numpy(np.flatnonzero(chosen))
        target = Target(where=where, ids=tokens.ids.reshape(-1)[where])
        hidden = self.masking.hide(tokens, chosen, vocabulary, draws)
        return replace(example, inputs=hidden, targets=example.targets | {"mlm": target})

    def loss(
        self, heads: nn.ModuleDict, encoded: Encoded, example: Example, teacher: Encoded | None = None
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Summed cross-entropy in nats over the predictions, and their count; never a mean."""
        logits, target = self.logits(heads, encoded, example), example.targets["mlm"]
        nats = F.cross_entropy(logits.float(), target.ids, reduction="sum")
        return {"mlm": (nats, torch.tensor(float(target.ids.numel())))}

    def logits(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> Tensor:
        """Logits ``[n v]`` at the predicted positions."""
        hidden = encoded.last.reshape(-1, encoded.last.shape[-1])[example.targets["mlm"].where]
        return heads["vocabulary"](hidden, encoded)

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Held-out loss in nats and accuracy, each as (sum, count)."""
        logits, target = self.logits(heads, encoded, example), example.targets["mlm"]
        count = torch.tensor(float(target.ids.numel()))
        nats = F.cross_entropy(logits.float(), target.ids, reduction="sum")
        return {"loss": (nats, count), "accuracy": ((logits.argmax(-1) == target.ids).sum().float(), count)}

    def flops_per_sequence(self, length: int, size: Size) -> float:
        """Multiply-adds x 2 of the head's forward pass over one full sequence."""
        e, d, v = size.embedding_size, size.hidden_size, size.vocab_size
        return self.masking.expected_predictions(length) * 2.0 * e * (d + v)
