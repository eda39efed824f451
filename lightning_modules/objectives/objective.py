"""What every pretraining objective declares and does: which inputs, which targets, which loss."""

import functools
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Annotation, Encoded, Example, Size, Target, Vocabulary
from lightning_modules.config import Settings, knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.heads import heldout_measures, vocabulary_head

MLM = "mlm"  # the target of a masked token, whose measures have no prefix


def own_heads(heads: nn.ModuleDict, name: str) -> nn.ModuleDict:
    """The heads of one objective among those of all."""
    own = heads[name]
    assert isinstance(own, nn.ModuleDict)
    return own


class OfLoss:
    """Marks a field of the head or of the loss, which changes nothing of what is shown and predicted of a text."""


class Objective(Settings, ABC):
    """A pretraining objective: targets, a head and a summed loss.

    Attributes:
        masks_inputs: Whether it decides what the model sees of the text; exactly one objective of a system does.
        needs: What it asks of the backbone -> what to set instead where a model does not support it.
        labels: Labels of sequences that it reads, which the format must give.
        borrows: Names of the objectives whose heads its loss reads besides its own.
        measures: Held-out measures of its own, by name, with their meaning: grids take them as ``heldout.<name>``.
        reads_targets_only: Whether its loss reads the last states at its targets alone, by `Encoded.at`. If all
            objectives do, a training step computes no others.
    """

    masks_inputs: ClassVar[bool]
    needs: ClassVar[dict[str, str]] = {}
    labels: ClassVar[frozenset[str]] = frozenset()
    borrows: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[dict[str, str]] = {}
    reads_targets_only: ClassVar[bool] = False

    weight: Annotated[float, OfLoss] = knob(1.0, "Factor on this objective's mean loss.", gt=0)

    @property
    def is_used(self) -> bool:
        """Whether it does anything: it masks inputs, or adds to the loss."""
        return self.masks_inputs or bool(self.weight)

    @property
    @abstractmethod
    def targets(self) -> tuple[str, ...]:
        """Names of the targets that `mask_inputs` adds."""

    @property
    def presentations(self) -> int:
        """How many times an objective that masks inputs presents each sequence of a step."""
        return 1

    @property
    def reads(self) -> frozenset[Annotation]:
        """The annotations of the text that an objective that masks inputs reads: annotator and kind of tags."""
        return frozenset()

    def heads(self, size: Size) -> nn.ModuleDict:
        """The parameters above the backbone, initialised from torch's current generator; none by default."""
        return nn.ModuleDict()

    @abstractmethod
    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """The example with this objective's targets, masked if it masks inputs; runs on the CPU, in the loader."""

    def counts(self, example: Example) -> dict[str, float]:
        """The denominator of each loss term: by default one term a target, which counts its predictions."""
        return {name: example.targets[name].count() for name in self.targets if name in example.targets}

    @abstractmethod
    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, Tensor]:
        """The *summed* loss of each term in nats, never a mean; `counts` holds its denominator."""

    def held_out(self, usual: "Objective") -> "Objective | None":
        """The objective that masks held-out text, which an objective that masks inputs must name.

        It is ``usual``, the masking of all masked models, or another one whose targets `measure` knows.
        """
        return None

    def question(self) -> dict[str, Any]:
        """The part that determines what it shows and asks of a text: its essence, with each `OfLoss` at its default.

        A field that a class of one's own declares again has lost the mark, and counts.
        """
        marked = {name: info.default for name, info in type(self).model_fields.items() if OfLoss in info.metadata}
        return self.model_copy(update=marked).essence()

    @abstractmethod
    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Held-out measures, each as (sum, count)."""

    def predicted(
        self, heads: nn.ModuleDict, encoded: Encoded, example: Example
    ) -> dict[str, tuple[Float[Tensor, "n v"], Target]]:
        """The logits behind each held-out loss of `measure` that is over tokens, with their targets, by its name."""
        return {}

    def expected_hidden(self, length: int) -> float:
        """Expected positions of a full sequence that an objective masks and predicts, for FLOPs."""
        return 0.0

    def expected_predictions(self, length: int, special: int = 2) -> float:
        """Expected tokens of a full sequence that an objective that masks inputs predicts.

        Args:
            special: Those of them that no neighbour predicts (`InputFormat.unpredicted`).
        """
        return self.expected_hidden(length)

    def expected_queries(self, length: int) -> float:
        """Expected rows of a full sequence in the query stream, if it needs one."""
        return 0.0

    def flops_per_hidden(self, size: Size) -> float:
        """Multiply-adds x 2 of the head's forward pass for each position that another objective masks."""
        return 0.0

    @abstractmethod
    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """Multiply-adds x 2 of the head's forward pass over one sequence with so many special positions."""


class TokenObjective(Objective):
    """An objective that masks inputs and predicts tokens by a `VocabularyHead`: a loss and measures for each target."""

    masks_inputs: ClassVar[bool] = True
    reads_targets_only: ClassVar[bool] = True

    @property
    def smoothing(self) -> float:
        """Share of each training target that all words have in common."""
        return 0.0

    def states(self, encoded: Encoded, example: Example, name: str) -> Float[Tensor, "n d"]:
        """The states that predict one target."""
        return encoded.answering(example.targets[name])

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, Tensor]:
        """Summed cross-entropy in nats over the predictions of each target."""
        head = vocabulary_head(heads)
        return {
            name: head.summed_loss(self.states(encoded, example, name), encoded, target, self.smoothing)
            for name, target in self._targets_of(example).items()
        }

    def logits(self, heads: nn.ModuleDict, encoded: Encoded, example: Example, name: str = "") -> Float[Tensor, "n v"]:
        """Logits of one target, by default the first of its targets."""
        return vocabulary_head(heads)(self.states(encoded, example, name or self.targets[0]), encoded)

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Held-out loss in nats and accuracy of each target, each as (sum, count)."""
        head, found = vocabulary_head(heads), dict[str, tuple[Tensor, Tensor]]()
        logits, words = functools.partial(head, encoded=encoded), head.words(encoded)
        for name, target in self._targets_of(example).items():
            found |= heldout_measures(logits, self.states(encoded, example, name), target, words, _prefix(name))
        return found

    def predicted(
        self, heads: nn.ModuleDict, encoded: Encoded, example: Example
    ) -> dict[str, tuple[Float[Tensor, "n v"], Target]]:
        """The logits of each target."""
        return {
            f"{_prefix(name)}loss": (self.logits(heads, encoded, example, name), target)
            for name, target in self._targets_of(example).items()
        }

    def _targets_of(self, example: Example) -> dict[str, Target]:
        return {name: example.targets[name] for name in self.targets if name in example.targets}


def _prefix(name: str) -> str:
    """What is before the names of a target's measures."""
    return "" if name == MLM else f"{name}_"
