"""A language model that reads from left to right, as scoring and generation use it, wherever its weights come from."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lightning_modules.batch import SOURCE, Direction, Encoded, Example, Target, Tokens, Visibility
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder
from lightning_modules.model.settings import BackboneModule
from lightning_modules.objectives.lm import NEXT, LanguageModel
from lightning_modules.objectives.objective import own_heads
from lightning_modules.system import System

if TYPE_CHECKING:
    from lightning_modules.training.module import Pretrain


@dataclass(frozen=True, eq=False, kw_only=True)
class Wording:
    """How texts become rows of a language model; known before its weights are loaded.

    Attributes:
        encoder: Its tokenizer. Every word is read with a space before it, the first as well.
        start: Ids before every text, such as [CLS]; nothing predicts the first of them.
        end: Id after which a text has ended; None if the model has none.
        max_positions: Tokens of the longest row that it can read.
        keeps_space: Whether line breaks and repeated spaces are part of its text; in our corpora words are separated by
            single spaces.
    """

    encoder: Encoder
    start: tuple[int, ...]
    end: int | None
    max_positions: int
    keeps_space: bool = False

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without those of ``start``."""
        return self.encoder.fast.encode(self.spaced(text), add_special_tokens=False).ids

    def prompt(self, text: str) -> list[int]:
        """The row of a text that goes on: ``start`` and its ids."""
        return [*self.start, *self.encode(text)]

    def spaced(self, text: str) -> str:
        """A text with the white space that the model knows."""
        return text if self.keeps_space else " ".join(text.split())

    def decode(self, ids: list[int]) -> str:
        """The text of some ids."""
        return self.encoder.fast.decode(ids, skip_special_tokens=False).strip()


@dataclass(frozen=True, eq=False, kw_only=True)
class LanguageModelOf(Wording):
    """A left-to-right language model in evaluation mode.

    Attributes:
        heads: The heads of its language modelling.
        objective: The settings of its language modelling, which know how heads are read.
        direction: In which the backbone reads: left_to_right, or two_way, whose first half does.
    """

    backbone: BackboneModule
    heads: nn.ModuleDict
    objective: LanguageModel
    direction: Direction

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.backbone.parameters()).device

    def example(
        self, ids: Int[Tensor, "b t"], real: Bool[Tensor, "b t"], positions: Int[Tensor, "b t"] | None = None
    ) -> Example:
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
        name: What messages call the model.

    Raises:
        ConfigError: For a model that fills masks, translates, reads from right to left or reads reversed text.
    """
    lm = system.objectives.lm
    if SOURCE in system.model.supports:
        text = f"{name} continues no text by itself: it reads a source. `ablations ask` writes its translations."
        raise ConfigError([text])
    if system.reads_backward:
        raise ConfigError(
            [
                f"{name} reads reversed text (format.sentence_order backward), and prompts are not reversed. Choose a "
                "model with format.sentence_order text."
            ]
        )
    if lm is not None and NEXT in lm.targets:
        return lm
    trained = ", ".join(f"'{name}'" for name, _ in system.objectives.present())
    what = f"was trained with {trained}" if lm is None else f"reads {lm.direction.replace('_', ' ')}"
    what = "predicts whole words" if lm is not None and lm.units == "words" else what
    raise ConfigError(
        [
            f"{name} {what} and predicts no next token: it can neither score continuations nor generate. Choose a "
            "model with objectives.lm.direction left_to_right. A masked model fills [MASK] in `ablations ask`."
        ]
    )


def wording(system: System, encoder: Encoder, max_positions: int = 0, *, keeps_space: bool = False) -> Wording:
    """How texts become rows of a system's language model.

    Args:
        max_positions: The longest row; by default as far as training has shown, since later positions have learnt
            nothing: the length of a row, and of positions that are distances also that of the memory before it. What
            was trained to go on reads any text whole (`reads_whole`).
    """
    vocabulary, form = encoder.vocabulary, system.format
    frame = getattr(form, "frame", "cls_sep")
    starts = {"cls_sep": () if system.cls_last else (vocabulary.cls,), "document_ends": (vocabulary.sep,)}
    shown = form.sequence_length
    if not system.model.longest:  # a table of positions is counted again in each segment
        shown += getattr(system.model, "memory_length", 0)
    return Wording(
        encoder=encoder,
        start=starts.get(frame, ()),
        end=vocabulary.sep if frame in starts else None,
        max_positions=max_positions or (_WHOLE if reads_whole(system) else shown),
        keeps_space=keeps_space,
    )


def reads_whole(system: System) -> bool:
    """Whether a model reads a text of any length in one go: a recurrence that was trained on rows that go on."""
    return system.format.kind == "stream" and system.model.get("kind") == "lstm"


_WHOLE = 1 << 24  # positions, more than any text has


def with_network(texts: Wording, module: "Pretrain", system: System) -> LanguageModelOf:
    """The language model of a module with trained weights, which is set to evaluation mode."""
    lm = check_predicts_next(system, system.name or "the model")
    known = {field.name: getattr(texts, field.name) for field in fields(Wording)}
    backbone, heads = module.eval().backbone, own_heads(module.heads, "lm")
    assert isinstance(backbone, BackboneModule)
    return LanguageModelOf(**known, backbone=backbone, heads=heads, objective=lm, direction=system.model.direction)


def of_training(module: "Pretrain", system: System, encoder: Encoder, max_positions: int = 0) -> LanguageModelOf:
    """The language model of a pretraining.

    Args:
        module: Its module with trained weights; it is set to evaluation mode.
    """
    return with_network(wording(system, encoder, max_positions), module, system)
