"""Distillation of a masked language model (Sanh et al. 2019, DistilBERT, section 2, and the released code)."""

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example, Size, Target, Vocabulary
from lightning_modules.config import canonical, knob
from lightning_modules.draws import Draws
from lightning_modules.model.layers import Frozen
from lightning_modules.model.losses import summed_divergence
from lightning_modules.objectives.heads import VocabularyHead, vocabulary_head
from lightning_modules.objectives.objective import MLM, Objective, own_heads

TAUGHT = "taught"  # the target: real positions
KL, COSINE = "kl", "cosine"  # the terms


class Distillation(Objective):
    """Learn from a teacher that reads the same corrupted text: from its distribution over words, and its last states.

    With p the teacher's distribution at temperature T, q the student's, and h their last states::

        distribution * T^2 * KL(p || q)   +   cosine * (1 - cos(h of student, h of teacher))

    Each is the mean over real positions, special ones among them. The third loss is that of masked words: its weight is
    ``objectives.mlm.weight``. Released values of the three are 5, 1 and 2, at T = 2. T^2 keeps the size of the
    gradient. The paper's formula of the first lacks its minus sign, and means the cross-entropy, whose gradient is the
    same.

    The teacher is frozen, without dropout, and a parent of the training, not a part of it. The student's distribution
    is that of its head for masked words, and so is the teacher's.
    """

    masks_inputs: ClassVar[bool] = False
    targets: ClassVar[tuple[str, ...]] = (TAUGHT,)
    reads_targets_only: ClassVar[bool] = True
    borrows: ClassVar[tuple[str, ...]] = (MLM,)

    teacher: dict[str, Any] = knob(
        {},
        "Knob -> value: in what the pretraining of the teacher differs, all else being as here but for this objective "
        "and training.start. Its seed is that of the run unless seed names another. It has the same tokenizer.",
    )
    distribution: float = knob(5.0, "Factor on the divergence from the teacher's distribution. None with 0.", ge=0)
    cosine: float = knob(1.0, "Factor on 1 minus the cosine of both last states. None with 0.", ge=0)
    temperature: float = knob(2.0, "Temperature of both distributions.", gt=0)
    positions: Literal["all", "hidden"] = knob(
        "all", "Where distributions are compared: at all real positions, or at those that are predicted (hidden)."
    )
    projection: int | None = knob(
        None,
        "Width of the teacher's states, if it is another one. A linear layer of the student's own takes its states to "
        "that width before the cosine.",
        neutral=None,
        ge=1,
        le=1 << 16,
    )

    def __hash__(self) -> int:
        return hash(canonical(self.essence()))  # a mapping has no hash of its own

    @property
    def is_used(self) -> bool:
        """Whether some term has a factor."""
        return bool(self.distribution or self.cosine)

    @property
    def _positions(self) -> dict[str, str]:
        """The terms that have a factor, each with the target whose positions it compares."""
        found = {KL: TAUGHT if self.positions == "all" else MLM} if self.distribution else {}
        return found | ({COSINE: TAUGHT} if self.cosine else {})

    def heads(self, size: Size) -> nn.ModuleDict:
        """The projection, if there is one."""
        if self.projection is None or not self.cosine:
            return nn.ModuleDict()
        projection = nn.Linear(size.hidden_size, self.projection)
        nn.init.normal_(projection.weight, std=0.02)
        nn.init.zeros_(projection.bias)
        return nn.ModuleDict({"projection": projection})

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """Adds real positions as the target ``taught``, if some term compares them; the input is unchanged."""
        if TAUGHT not in self._positions.values():
            return example
        tokens = example.inputs
        where = tokens.real.flatten().nonzero()[:, 0]
        return replace(example, targets=example.targets | {TAUGHT: Target(where, tokens.ids.flatten()[where])})

    def counts(self, example: Example) -> dict[str, float]:
        """The positions of each term that has a factor."""
        return {term: example.targets[target].count() for term, target in self._positions.items()}

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, Tensor]:
        """Each term that has a factor, times it, summed over positions."""
        teacher, terms = encoded.teacher, dict[str, Tensor]()
        assert isinstance(teacher, TeacherOutput), "the module adds what the teacher makes of the batch"
        for term, target in self._positions.items():
            where = example.targets[target].where
            if term == KL:
                ours = _logit_factors(vocabulary_head(heads), encoded, where)
                theirs = _logit_factors(teacher.head, teacher.encoded, where)
                terms[KL] = self.distribution * summed_divergence(*ours, theirs, self.temperature)
            else:
                states, wanted = encoded.at(where), teacher.encoded.at(where).float()
                states = heads["projection"](states) if "projection" in heads else states
                terms[COSINE] = self.cosine * (1.0 - F.cosine_similarity(states.float(), wanted, dim=-1)).sum()
        return terms

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Nothing: held-out text is read without the teacher."""
        return {}

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of the student's distribution at all positions, and of the projection."""
        d, e, v = size.hidden_size, size.embedding_size, size.vocab_size
        projected = 2.0 * length * d * self.projection if self.projection and self.cosine else 0.0
        everywhere = self.distribution and self.positions == "all"
        return projected + (2.0 * length * e * (d + v) if everywhere else 0.0)

    def flops_per_hidden(self, size: Size) -> float:
        """Multiply-adds x 2 of the student's distribution, where only hidden positions are predicted."""
        d, e, v = size.hidden_size, size.embedding_size, size.vocab_size
        return 2.0 * e * (d + v) if self.distribution and self.positions == "hidden" else 0.0


class TeacherOutput(NamedTuple):
    """What a teacher makes of a batch: its states, and its head for masked words."""

    encoded: Encoded
    head: VocabularyHead


class Teacher(Frozen):
    """A frozen model with its head for masked words: no dropout, no gradient."""

    def __init__(self, backbone: nn.Module, heads: nn.ModuleDict) -> None:
        super().__init__()
        self.backbone, self.head = backbone, vocabulary_head(own_heads(heads, MLM))
        self.freeze()

    @torch.no_grad()
    def forward(self, example: Example) -> TeacherOutput:
        """What it makes of a batch."""
        return TeacherOutput(self.backbone(example), self.head)


def _logit_factors(head: VocabularyHead, encoded: Encoded, where: Int[Tensor, " n"]) -> tuple[Tensor, Tensor, Tensor]:
    """What logits at flat positions are made of: states, word table, bias."""
    assert head.bias is not None, "that of masked words has one"
    return head.transformed(encoded.at(where)), encoded.table, head.bias
