"""Pretraining objectives, one per file; a system names those it uses.

``docs/how-to/objective.md`` names every place of a new one.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self, get_args

from pydantic import create_model, model_validator
from torch import Tensor, nn

from lightning_modules import plugins
from lightning_modules.batch import Annotation, Encoded, Example, Size, Unsupported, Vocabulary
from lightning_modules.config import Settings, knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.activation_regularization import ActivationRegularization
from lightning_modules.objectives.distillation import Distillation
from lightning_modules.objectives.language_model import LanguageModel
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.masking import Masking
from lightning_modules.objectives.objective import Objective, own_heads
from lightning_modules.objectives.permutation_lm import PermutationLM
from lightning_modules.objectives.sentence_pair import SentencePair
from lightning_modules.objectives.span_boundary import SpanBoundary

__all__ = ["ActivationRegularization", "Distillation", "LanguageModel", "MaskedLM", "Masking", "Objective",
           "Objectives", "PermutationLM", "SentencePair", "SpanBoundary", "own_heads"]  # fmt: skip


def _extended(cls: type["Objectives"]) -> type["Objectives"]:
    """The class with a field for each objective that plugins list, as those of ours."""
    ours = cls.kinds()
    fields: dict[str, Any] = {
        name: (part | None, knob(None, (part.__doc__ or name).partition("\n")[0], neutral=None))
        for name, part in plugins.parts("OBJECTIVES", ours, Objective).items()
        if name not in ours
    }
    names = {"__module__": __name__, "__doc__": cls.__doc__}
    return create_model(cls.__name__, __base__=cls, **names, **fields) if fields else cls


@_extended
class Objectives(Settings):
    """The objectives of a system, each present or absent. Exactly one corrupts the input."""

    mlm: MaskedLM | None = knob(None, "Masked language modelling.", neutral=None)
    sentence: SentencePair | None = knob(
        None, "Sentence objective: do two segments follow each other? NSP or SOP, by format.negatives.", neutral=None
    )
    lm: LanguageModel | None = knob(
        None, "Language modelling in one direction, or in both by separate stacks.", neutral=None
    )

    plm: PermutationLM | None = knob(None, "Permutation language modelling.", neutral=None)
    sbo: SpanBoundary | None = knob(
        None, "Span boundary objective: predict hidden spans from the pieces next to them.", neutral=None
    )
    activations: ActivationRegularization | None = knob(
        None, "Activation and temporal activation regularisation of an LSTM (AWD-LSTM).", neutral=None
    )

    distillation: Distillation | None = knob(
        None, "Distillation of a masked language model by a trained one (DistilBERT).", neutral=None
    )

    @classmethod
    def kinds(cls) -> dict[str, type[Objective]]:
        """The classes of all objectives that there are, by name."""
        return {name: get_args(info.annotation)[0] for name, info in cls.model_fields.items()}

    @model_validator(mode="after")
    def _one_corrupter(self) -> Self:
        corrupters = [name for name, objective in self.present() if objective.corrupts]
        if len(corrupters) != 1:
            candidates = [name for name, kind in self.kinds().items() if kind.corrupts]
            raise ValueError(
                f"exactly one objective must corrupt the input, but {len(corrupters)} do"
                f"{': ' + ', '.join(corrupters) if corrupters else ''}. Set exactly one of: {', '.join(candidates)}."
            )
        self._check_measured(*next(self.present()))
        if not any(objective.weight for _, objective in self.present()):
            raise ValueError("objectives.mlm.weight is 0 and there is no other objective, so nothing would be learned")
        self._check_taught()
        units = self.mlm.masking.units if self.mlm else None
        if "sbo" in dict(self.present()) and not (units and units.spans):
            given = f"objectives.mlm.masking.units.kind {units.kind} gives" if units else "without masking there are"
            raise ValueError(
                f"objectives.sbo predicts hidden spans from the visible pieces around them, and {given} none. Set "
                "objectives.mlm.masking.units.kind to spans or tagged, or leave objectives.sbo out."
            )
        return self

    def resolved(self) -> Self:
        """The objectives in full, without those that add nothing to the loss."""
        full, kept = super().resolved(), dict(self.present())
        idle = {name: None for name in ("sbo", "distillation") if getattr(full, name) and name not in kept}
        return full.model_copy(update=idle) if idle else full

    def _check_taught(self) -> None:
        if self.distillation is None:
            return
        if self.mlm is None:
            raise ValueError(
                "objectives.distillation teaches the head for masked words, and objectives.mlm is null: add it, with "
                "weight 0 if masked words themselves are not to be learned"
            )

    def _check_measured(self, name: str, objective: Objective) -> None:
        """Checks that the objective that corrupts says how it is measured; else a training ends without a measure."""
        kind, measured = type(objective).__name__, objective.held_out(MaskedLM())
        if measured is None:
            raise ValueError(
                f"objectives.{name} corrupts the input but does not say how it is measured on held-out text: give "
                f"{kind} a method 'held_out', as MaskedLM and LanguageModel have"
            )
        if unknown := set(measured.targets) - set(objective.targets):
            raise ValueError(
                f"objectives.{name} is measured on held-out text at {', '.join(sorted(unknown))}, which {kind} does "
                f"not measure: its targets are {', '.join(objective.targets)}"
            )

    @property
    def corrupter(self) -> Objective:
        """The objective that corrupts the input."""
        return next(self.present())[1]

    @property
    def taught(self) -> Distillation | None:
        """The distillation, if it has a loss."""
        return self.distillation if self.distillation and self.distillation.is_used else None

    def present(self) -> Iterator[tuple[str, Objective]]:
        """The objectives in use, by name; the one that corrupts comes first.

        Another one whose loss is always 0 is not in use.
        """
        named = [(name, getattr(self, name)) for name in type(self).model_fields]
        used = ((name, objective) for name, objective in named if objective is not None and objective.is_used)
        yield from sorted(used, key=lambda item: not item[1].corrupts)

    @property
    def presentations(self) -> int:
        """How many times each sequence of a step is presented to the model, each a forward and a backward pass."""
        return self.corrupter.presentations

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that are read: annotator and kind of tags."""
        return self.corrupter.reads

    @property
    def read_targets_only(self) -> bool:
        """Whether no last state is read but those at targets."""
        return all(objective.reads_targets_only for _, objective in self.present())

    def heads(self, size: Size) -> nn.ModuleDict:
        """All heads, by objective."""
        return nn.ModuleDict({name: objective.heads(size) for name, objective in self.present()})

    def corrupt(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """The example with the targets of all objectives, one of which corrupts it, and the counts of their losses."""
        for _, objective in self.present():
            example = objective.corrupt(example, draws, vocabulary)
        return replace(example, counts=self.counts(example), groups=None)

    def counts(self, example: Example) -> dict[str, float]:
        """The denominator of every loss term in this example."""
        return {term: count for _, objective in self.present() for term, count in objective.counts(example).items()}

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, float, float]]:
        """Every term as (sum, count, weight).

        Raises:
            Unsupported: When a term has no declared count: its mean would be that of a micro-batch, and its gradient
                as many times too large as an optimiser step has micro-batches.
        """
        terms: dict[str, tuple[Tensor, float, float]] = {}
        for name, objective in self.present():
            if not objective.weight:
                continue
            counts = objective.counts(example)
            for term, total in objective.loss(self._read_heads(heads, name), encoded, example).items():
                if term not in counts:
                    raise Unsupported(
                        f"objectives.{name}: loss term '{term}' has no declared count. Name it in "
                        f"{type(objective).__name__}.counts, which declares {', '.join(counts) or 'none'}."
                    )
                terms[term] = (total, counts[term], objective.weight)
        return terms

    def _read_heads(self, heads: nn.ModuleDict, name: str) -> nn.ModuleDict:
        """The heads that the loss of an objective reads."""
        read = [own_heads(heads, one) for one in (*getattr(self, name).borrows, name)]
        return read[0] if len(read) == 1 else nn.ModuleDict({part: head for one in read for part, head in one.items()})

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of all heads' forward pass over one sequence with so many special positions."""
        hidden = self.corrupter.expected_hidden(length)
        return sum(
            objective.flops_per_sequence(length, size, special) + hidden * objective.flops_per_hidden(size)
            for _, objective in self.present()
        )

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Held-out measures of every objective whose target the example carries, as (sum, count)."""
        measures: dict[str, tuple[Tensor, Tensor]] = {}
        for name, objective in self.present():
            if example.targets.keys() & set(objective.targets):
                measures |= objective.measure(own_heads(heads, name), encoded, example)
        return measures
