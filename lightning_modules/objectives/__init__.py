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
from lightning_modules.objectives.distillation import Distillation
from lightning_modules.objectives.lm import LanguageModel
from lightning_modules.objectives.masking import Masking
from lightning_modules.objectives.mlm import MaskedLM
from lightning_modules.objectives.objective import Objective, own_heads
from lightning_modules.objectives.pairs import SentencePair
from lightning_modules.objectives.plm import PermutationLM
from lightning_modules.objectives.regularization import ActivationRegularization
from lightning_modules.objectives.sbo import SpanBoundary

__all__ = ["ActivationRegularization", "Distillation", "LanguageModel", "MaskedLM", "Masking", "Objective",
           "Objectives", "PermutationLM", "SentencePair", "SpanBoundary", "own_heads"]  # fmt: skip

LossTerms = dict[str, tuple[Tensor, float, float]]  # term -> its summed loss, its count in the batch, its weight


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
    """The objectives of a system, each present or absent. Exactly one masks inputs."""

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
    def _fit_together(self) -> Self:
        present = dict(self.present())
        if len(main := [name for name, objective in present.items() if objective.masks_inputs]) != 1:
            candidates = [name for name, kind in self.kinds().items() if kind.masks_inputs]
            raise ValueError(
                f"exactly one objective must mask inputs, but {len(main)} do{': ' + ', '.join(main) if main else ''}. "
                f"Set exactly one of: {', '.join(candidates)}."
            )
        self._check_measured(*main)
        if not any(objective.weight for objective in present.values()):
            raise ValueError("objectives.mlm.weight is 0 and there is no other objective, so nothing would be learned")
        if self.distillation is not None and self.mlm is None:
            raise ValueError(
                "objectives.distillation teaches the head for masked words, and objectives.mlm is null: add it, with "
                "weight 0 if masked words themselves are not to be learned"
            )
        units = self.mlm.masking.units if self.mlm else None
        if "sbo" in present and not (units and units.spans):
            given = f"objectives.mlm.masking.units.kind {units.kind} gives" if units else "without masking there are"
            raise ValueError(
                f"objectives.sbo predicts hidden spans from the visible pieces around them, and {given} none. Set "
                "objectives.mlm.masking.units.kind to spans or tagged, or leave objectives.sbo out."
            )
        return self

    def _check_measured(self, name: str) -> None:
        """Checks that the main objective says how it is measured; else a training ends without a measure."""
        kind, measured = type(self.main).__name__, self.main.held_out(MaskedLM())
        if measured is None:
            raise ValueError(
                f"objectives.{name} masks inputs but does not say how it is measured on held-out text: give {kind} a "
                "method 'held_out', as MaskedLM and LanguageModel have"
            )
        if unknown := set(measured.targets) - set(self.main.targets):
            raise ValueError(
                f"objectives.{name} is measured on held-out text at {', '.join(sorted(unknown))}, which {kind} does "
                f"not measure: its targets are {', '.join(self.main.targets)}"
            )

    def resolved(self) -> Self:
        """The objectives in full, without those that add nothing to the loss."""
        full, kept = super().resolved(), dict(self.present())
        idle = {name: None for name in ("sbo", "distillation") if getattr(full, name) and name not in kept}
        return full.model_copy(update=idle) if idle else full

    @property
    def main(self) -> Objective:
        """The objective that masks inputs."""
        return next(self.present())[1]

    @property
    def distilled(self) -> Distillation | None:
        """The distillation, if it has a loss."""
        return self.distillation if self.distillation and self.distillation.is_used else None

    def present(self) -> Iterator[tuple[str, Objective]]:
        """The objectives in use, by name; the main one comes first, and one whose loss is always 0 is not in use."""
        named = [(name, getattr(self, name)) for name in type(self).model_fields]
        used = ((name, objective) for name, objective in named if objective is not None and objective.is_used)
        yield from sorted(used, key=lambda item: not item[1].masks_inputs)

    @property
    def presentations(self) -> int:
        """How many times each sequence of a step is presented to the model, each a forward and a backward pass."""
        return self.main.presentations

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that are read: annotator and kind of tags."""
        return self.main.reads

    @property
    def read_targets_only(self) -> bool:
        """Whether no last state is read but those at targets."""
        return all(objective.reads_targets_only for _, objective in self.present())

    def heads(self, size: Size) -> nn.ModuleDict:
        """All heads, by objective."""
        return nn.ModuleDict({name: objective.heads(size) for name, objective in self.present()})

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """The example with the targets of all objectives, one of which masks it, and the counts of their losses."""
        for _, objective in self.present():
            example = objective.mask_inputs(example, draws, vocabulary)
        counts = {term: count for _, objective in self.present() for term, count in objective.counts(example).items()}
        return replace(example, counts=counts, groups=None)

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> LossTerms:
        """Every term of the loss.

        Raises:
            Unsupported: When a term has no declared count: its mean would be that of a micro-batch, and its gradient
                as many times too large as an optimiser step has micro-batches.
        """
        terms: LossTerms = {}
        for name, objective in self.present():
            if not objective.weight:
                continue
            counts, read = objective.counts(example), own_heads(heads, name)
            for other in objective.borrows:
                read = nn.ModuleDict({**own_heads(heads, other), **read})
            for term, total in objective.loss(read, encoded, example).items():
                if term not in counts:
                    raise Unsupported(
                        f"objectives.{name}: loss term '{term}' has no declared count. Name it in "
                        f"{type(objective).__name__}.counts, which declares {', '.join(counts) or 'none'}."
                    )
                terms[term] = (total, counts[term], objective.weight)
        return terms

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of all heads' forward pass over one sequence with so many special positions."""
        hidden = self.main.expected_hidden(length)
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
