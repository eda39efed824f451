"""A language model that reads from left to right, as scoring and generation use it, wherever its weights come from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.batch import Direction, Encoded, Example, Target, Tokens, Visibility
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder
from lightning_modules.objectives.language_model import NEXT, LanguageModel
from lightning_modules.objectives.objective import own_heads
from lightning_modules.system import System

if TYPE_CHECKING:
    from lightning_modules.training.pretrain import Pretrain


@dataclass(frozen=True, eq=False)
class LanguageModelOf:
    """A left-to-right language model in evaluation mode.

    Attributes:
        backbone: The encoder.
        heads: The heads of its language modelling.
        objective: The settings of its language modelling, which know how heads are read.
        encoder: Its tokenizer.
        start: Ids before every text, such as [CLS]; nothing predicts the first of them.
        end: Id after which a text has ended; None if the model has none.
        direction: In which the backbone reads: left_to_right, or two_way, whose first half does.
        max_positions: Tokens of the longest row that it can read.
        keeps_space: Whether line breaks and repeated spaces are part of its text; in our corpora words are separated by
            single spaces.
    """

    backbone: nn.Module
    heads: nn.ModuleDict
    objective: LanguageModel
    encoder: Encoder
    start: tuple[int, ...]
    end: int | None
    direction: Direction
    max_positions: int
    keeps_space: bool = False

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.backbone.parameters()).device

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without those of ``start``."""
        return self.encoder.fast.encode(self.spaced(text), add_special_tokens=False).ids

    def spaced(self, text: str) -> str:
        """A text with the white space that the model knows."""
        return text if self.keeps_space else " ".join(text.split())

    def decode(self, ids: list[int]) -> str:
        """The text of some ids."""
        return self.encoder.fast.decode(ids, skip_special_tokens=False).strip()

    def example(self, ids: Int[Tensor, "b t"], real: Tensor, positions: Int[Tensor, "b t"] | None = None) -> Example:
        """Rows of ids for the backbone, which sees them from the left; ``real`` is False on padding."""
        tokens = Tokens(ids, ~real, real, torch.arange(len(ids), device=ids.device), positions=positions)
        return Example(tokens, Visibility(causal=True, real=None if bool(real.all()) else real))

    def logits(self, encoded: Encoded, where: Int[Tensor, " n"]) -> Float[Tensor, "n v"]:
        """The logits of the tokens after flat positions."""
        asked = Example(_NO_TOKENS, Visibility(), targets={NEXT: Target(where, torch.zeros_like(where))})
        return self.objective.logits(self.heads, encoded, asked, NEXT).float()


_NONE = torch.zeros(0, 0, dtype=torch.int64)
_NO_TOKENS = Tokens(_NONE, _NONE.bool(), _NONE.bool(), torch.zeros(0, dtype=torch.int64))  # logits need targets alone


def check_predicts_next(system: System, name: str) -> LanguageModel:
    """The language modelling of a system, refused unless it predicts next tokens; call it before weights are loaded.

    Args:
        system: The system.
        name: What messages call the model.

    Raises:
        ConfigError: For a model that fills masks or reads from right to left.
    """
    lm = system.objectives.lm
    if lm is not None and NEXT in lm.targets:
        return lm
    trained = ", ".join(f"'{name}'" for name, _ in system.objectives.present())
    what = f"was trained with {trained}" if lm is None else f"reads {lm.direction.replace('_', ' ')}"
    raise ConfigError(
        [
            f"{name} {what} and predicts no next token: it can neither score continuations nor generate. Choose a "
            "model with objectives.lm.direction left_to_right; a masked model answers `ablations fill-mask`"
        ]
    )


def of_training(module: "Pretrain", system: System, encoder: Encoder, max_positions: int = 0) -> LanguageModelOf:
    """The language model of a pretraining.

    Args:
        module: Its module with trained weights; it is set to evaluation mode.
        system: Its settings.
        encoder: Its tokenizer.
        max_positions: The longest row; by default as long as training has shown, since later positions have learnt
            nothing.

    Raises:
        ConfigError: As `check_predicts_next`.
    """
    lm, vocabulary = check_predicts_next(system, system.name or "the model"), encoder.vocabulary
    return LanguageModelOf(
        backbone=module.eval().backbone,
        heads=own_heads(module.heads, "lm"),
        objective=lm,
        encoder=encoder,
        start=(vocabulary.cls,),
        end=vocabulary.sep,
        direction=system.model.direction,
        max_positions=max_positions or system.format.sequence_length,
    )
