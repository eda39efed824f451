"""Masked language modelling (Devlin et al. 2019, section 3.1, task 1)."""

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import nn

from lightning_modules.batch import WORD_TABLE, Annotation, Example, Size, Target, Vocabulary
from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.model.layers import Activation
from lightning_modules.objectives.heads import VocabularyHead
from lightning_modules.objectives.masking import Masking, split_masks
from lightning_modules.objectives.objective import MLM, Objective, OfLoss, TokenObjective


class MaskedLM(TokenObjective):
    """Replace some tokens and predict them from both sides."""

    targets: ClassVar[tuple[str, ...]] = (MLM,)
    needs: ClassVar[dict[str, str]] = {WORD_TABLE: "set model.characters to null"}  # it has [MASK]

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
    def presentations(self) -> int:
        """How many times each sequence of a step is presented."""
        return self.masking.presentations

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that say what is masked together."""
        return self.masking.units.reads

    def heads(self, size: Size) -> nn.ModuleDict:
        """BERT's output layer."""
        return nn.ModuleDict({"vocabulary": VocabularyHead(size, self.activation, self.norm_eps)})

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Replaces the chosen tokens and adds those that are predicted as the target ``mlm``.

        With more than one presentation, the example has each row so many times in turn.
        """
        masking, times = self.masking, self.masking.presentations
        if masking.copies:
            draws = draws.static(masking.copies)
        groups = masking.choose(example.inputs, draws, vocabulary)
        if times > 1:
            groups = split_masks(groups, draws, times)
            example = example.rows(torch.arange(len(example.inputs.ids)).repeat_interleave(times))
            draws = draws.repeated(times)
        tokens = example.inputs
        where = torch.from_numpy(np.flatnonzero(masking.loss_positions(tokens, groups, draws, vocabulary)))
        return replace(
            example,
            inputs=masking.mask_inputs(tokens, groups, draws, vocabulary),
            targets=example.targets | {MLM: Target(where, tokens.ids.reshape(-1)[where])},
            groups=torch.from_numpy(groups),
        )

    def held_out(self, usual: Objective) -> Objective:
        """The usual masking, the same for all masked models."""
        return usual

    def expected_hidden(self, length: int) -> float:
        """Expected masked positions of a full sequence that are predicted."""
        return self.masking.expected_predictions(length)

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of the head's forward pass over one full sequence."""
        e, d, v = size.embedding_size, size.hidden_size, size.vocab_size
        return self.expected_hidden(length) * 2.0 * e * (d + v)
