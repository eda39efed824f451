"""Sentence objectives: next-sentence prediction (NSP, Devlin et al. 2019) and sentence order (SOP, Lan et al. 2020).

Both are one binary classification of segment pairs; they differ in the negatives that the input format makes
(``format.negatives``).
"""

from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example, Size, Target, Vocabulary
from lightning_modules.draws import Draws
from lightning_modules.model.layers import draw
from lightning_modules.objectives.objective import Objective

SENTENCE = "sentence"  # the target, and the label that it reads


class PairHead(nn.Module):
    """BERT's pooler and classifier: tanh(W h + b) of the first position, then two logits."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.pooler = nn.Linear(size.hidden_size, size.hidden_size)
        self.classifier = nn.Linear(size.hidden_size, 2)
        draw(self.pooler, self.classifier)

    def forward(self, first: Float[Tensor, "n d"]) -> Float[Tensor, "n 2"]:
        """Logits of first positions."""
        return self.classifier(torch.tanh(self.pooler(first)))


class SentencePair(Objective):
    """Classify pairs of segments from [CLS]: they follow each other (0) or not (1)."""

    masks_inputs: ClassVar[bool] = False
    reads_targets_only: ClassVar[bool] = True
    needs: ClassVar[dict[str, str]] = {
        "a first position that sees the text": "model.direction cannot be left_to_right",
    }
    labels: ClassVar[frozenset[str]] = frozenset({SENTENCE})
    targets: ClassVar[tuple[str, ...]] = (SENTENCE,)

    def heads(self, size: Size) -> nn.ModuleDict:
        """The head of this objective."""
        return nn.ModuleDict({"pair": PairHead(size)})

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Adds the target ``sentence`` at each row's [CLS]; the input is unchanged."""
        tokens = example.inputs
        rows, length = tokens.ids.shape
        where = torch.arange(rows) * length + (0 if tokens.cls is None else tokens.cls)
        return replace(example, targets=example.targets | {SENTENCE: Target(where, tokens.labels[SENTENCE])})

    def logits(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> Float[Tensor, "b 2"]:
        """Logits of the pairs."""
        return heads["pair"](encoded.at(example.targets[SENTENCE].where))

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, Tensor]:
        """Summed cross-entropy in nats over the pairs."""
        logits = self.logits(heads, encoded, example).float()
        return {SENTENCE: F.cross_entropy(logits, example.targets[SENTENCE].ids, reduction="sum")}

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Held-out accuracy as (sum, count)."""
        logits, target = self.logits(heads, encoded, example), example.targets[SENTENCE]
        right = (logits.argmax(-1) == target.ids).sum().float()
        return {"sentence_accuracy": (right, torch.tensor(target.count()))}

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of the head's forward pass over one sequence."""
        return 2.0 * size.hidden_size * (size.hidden_size + 2)
