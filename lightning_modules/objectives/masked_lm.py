"""Masked language modelling (Devlin et al. 2019, section 3.1, task 1)."""

import functools
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import WORD_TABLE, Annotation, Encoded, Example, Size, Target, Vocabulary
from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.model.layers import Activation
from lightning_modules.objectives.masking import Masking, dealt
from lightning_modules.objectives.objective import Objective, OfLoss
from lightning_modules.objectives.vocabulary_head import VocabularyHead, measured, vocabulary_head


class MaskedLM(Objective):
    """Replace some tokens and predict them from both sides."""

    corrupts: ClassVar[bool] = True
    reads_targets_only: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = ("mlm",)

    weight: Annotated[float, OfLoss] = knob(
        1.0,
        "Factor on this objective's mean loss. With 0 there is none, and words are hidden for the other objectives.",
        ge=0,
    )
    masking: Masking = Masking()
    activation: Annotated[Activation, OfLoss] = knob(
        "gelu",
        "Activation function of the head. Published checkpoints may have another than the encoder.",
        neutral="gelu",
    )
    norm_eps: Annotated[float, OfLoss] = knob(1e-12, "Epsilon of the head's LayerNorm.", neutral=1e-12, gt=0)

    @property
    def needs(self) -> dict[str, str]:
        """A table of words, which has [MASK] and to which the head is tied."""
        return {WORD_TABLE: "set model.characters to null"}

    @property
    def presentations(self) -> int:
        """How many times each sequence of a step is presented."""
        return self.masking.presentations

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that say what is hidden together."""
        return self.masking.units.reads

    def heads(self, size: Size) -> nn.ModuleDict:
        """The head of this objective."""
        return nn.ModuleDict({"vocabulary": VocabularyHead(size, self.activation, self.norm_eps)})

    def corrupt(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Replaces the chosen tokens and adds those that are predicted as the target ``mlm``; runs on the CPU.

        With more than one presentation, the example has each row so many times in turn.
        """
        masking = self.masking
        if masking.copies:
            draws = draws.static(masking.copies)
        groups = masking.choose(example.inputs, draws, vocabulary)
        if masking.presentations > 1:
            groups = dealt(groups, draws, masking.presentations)
            times = torch.arange(len(example.inputs.ids)).repeat_interleave(masking.presentations)
            example, draws = example.rows(times), draws.repeated(masking.presentations)
        tokens = example.inputs
        where = torch.from_numpy(np.flatnonzero(masking.ask(tokens, groups, draws, vocabulary)))
        target = Target(where=where, ids=tokens.ids.reshape(-1)[where])
        hidden = masking.hide(tokens, groups, vocabulary, draws)
        targets = example.targets | {"mlm": target}
        return replace(example, inputs=hidden, targets=targets, groups=torch.from_numpy(groups))

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, Tensor]:
        """Summed cross-entropy in nats over the predictions; never a mean."""
        target = example.targets["mlm"]
        return {"mlm": vocabulary_head(heads).summed_loss(encoded.at(target.where), encoded, target)}

    def logits(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> Float[Tensor, "n v"]:
        """Logits at the predicted positions."""
        return vocabulary_head(heads)(encoded.at(example.targets["mlm"].where), encoded)

    def held_out(self, usual: Objective) -> Objective:
        """The objective on held-out text: the usual masking, the same for all masked models."""
        return usual

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Held-out loss in nats and accuracy, each as (sum, count)."""
        head, target = functools.partial(vocabulary_head(heads), encoded=encoded), example.targets["mlm"]
        return measured(head, encoded.at(target.where), target, encoded.words)

    def predicted(
        self, heads: nn.ModuleDict, encoded: Encoded, example: Example
    ) -> dict[str, tuple[Float[Tensor, "n v"], Target]]:
        """The logits of the hidden tokens."""
        return {"loss": (self.logits(heads, encoded, example), example.targets["mlm"])}

    def expected_hidden(self, length: int) -> float:
        """Expected hidden positions of a full sequence that are predicted."""
        return self.masking.expected_predictions(length)

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of the head's forward pass over one full sequence."""
        e, d, v = size.embedding_size, size.hidden_size, size.vocab_size
        return self.masking.expected_predictions(length) * 2.0 * e * (d + v)
