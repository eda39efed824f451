"""What systems, heads, plans and fine-tunings ask of any encoder: of its settings, and of the network."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.backbones.clustered import ClusteredTable
from lightning_modules.backbones.embeddings import Embeddings
from lightning_modules.batch import Direction, Encoded, Example, Size
from lightning_modules.config import ConfigError, Problem, Settings

SEGMENTS = "segment table"
LANGUAGES = "language table"
FIRST_SEES = "a first position that sees the text"
ONE_SIDE = "text shown from one side"  # by the visibility of an example, to a model that reads both

# Knob -> the largest size, several times that of any published model. What is beyond it cannot be built to be counted.
LARGEST = {
    "num_layers": 1000,
    "hidden_size": 1 << 16,
    "embedding_size": 1 << 16,
    "ffn_size": 1 << 20,
    "max_positions": 1 << 20,
    "segment_types": 1 << 10,
    "languages": 1 << 10,
}


_Kind = TypeVar("_Kind", bound=Settings)


class BackboneModule(nn.Module, ABC):
    """An encoder: takes an `Example`, returns every layer.

    Attributes:
        supports: What it supports; a batch that holds more is refused.
        embeddings: Its embeddings; the table of words is ``embeddings.word``.
        carries: Whether a text can go on where a batch ended: nothing that was read changes with what follows.
        numbered: Whether it reads the numbers of positions, if a batch has any (`Tokens.positions`).
        memory_length: Positions that a carry of `begin` remembers, if it counts them; an evaluation may change it.
    """

    supports: frozenset[str]
    embeddings: Embeddings
    carries: bool = False
    numbered: bool = True
    memory_length: int = 0

    @abstractmethod
    def forward(self, example: Example, carry: Any = None) -> Encoded:
        """Encodes a batch, by itself or as what follows a carry; see `Encoded.carry`.

        Raises:
            Unsupported: For a batch that holds more than it supports, and for a carry that it does not have.
        """

    def begin(self, rows: int, device: torch.device | str | None = None) -> Any:
        """The carry of rows that begin, for texts that go on from batch to batch; None if nothing is carried.

        Its tensors have the row as their first axis, and zeros mean that nothing was read. How long it is and where
        gradients stop is the model's business.

        Args:
            device: Of the carry; by default that of the word embeddings.
        """
        return None

    @abstractmethod
    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, i + 1 for the first layer i that uses it, L + 1 above.

        An empty name means what is above it all, such as a head.
        """

    @property
    def table(self) -> Float[Tensor, "v e"]:
        """The table of word embeddings; of clusters that of the first."""
        return self.embeddings.word.weight

    @property
    def clusters(self) -> list[tuple[Tensor, Tensor]]:
        """The clusters of word embeddings; none if there is one table."""
        return self.embeddings.word.clusters if isinstance(self.embeddings.word, ClusteredTable) else []


class Backbone(Settings, ABC):
    """The settings of an encoder."""

    if TYPE_CHECKING:  # every kind has these fields
        num_layers: int
        hidden_size: int
        embedding_size: int | None
        direction: Direction
        segment_types: int

    @property
    @abstractmethod
    def dropouts(self) -> tuple[str, ...]:
        """Names of its dropout rates, which a fine-tuning sets together."""

    @abstractmethod
    def build(self, vocab_size: int) -> BackboneModule:
        """The encoder, initialised from torch's current generator."""

    @property
    def stacks(self) -> int:
        """Stacks of layers over the embeddings: one, or one per direction."""
        return 2 if self.direction == "two_way" else 1

    @property
    def depth(self) -> int:
        """Layers of one stack: those above the embeddings in `Encoded.layers`."""
        return self.num_layers // self.stacks

    @property
    @abstractmethod
    def width(self) -> int:
        """Width of the states that heads read."""

    @property
    @abstractmethod
    def embedded_width(self) -> int:
        """Width of ``Encoded.layers[0]``."""

    @property
    def table_width(self) -> int:
        """Width of the table of word embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    @abstractmethod
    def longest(self) -> int:
        """Positions of the longest sequence that it reads; 0 without limit."""

    @property
    @abstractmethod
    def supports(self) -> frozenset[str]:
        """What objectives, input formats and measures may ask for (`Objective.needs`, `InputFormat.gives`)."""

    @property
    @abstractmethod
    def described(self) -> str:
        """Its layers, in a few words."""

    def check_length(self, length: int) -> None:
        """Checks that the model can be trained on sequences of so many positions.

        Raises:
            ValueError: Naming the knobs that are in the way.
        """
        if self.longest and length > self.longest:
            raise ValueError(
                f"format.sequence_length {length} is longer than model.max_positions {self.longest}: "
                "lower the first or raise the second"
            )

    @abstractmethod
    def check_warm_start(self, depths: Sequence[int]) -> None:
        """Checks that networks of these depths, shallowest first, can initialise each other and then this one.

        Raises:
            ValueError: Naming ``training.warm_start`` and what is in the way.
        """

    @abstractmethod
    def flops_per_sequence(self, length: int, queries: float = 0.0, memory: int | None = None) -> float:
        """FLOPs of the matrix products of one forward pass over one sequence; without elementwise operations.

        Args:
            queries: Rows of its query stream, if it has one.
            memory: Positions before them that it remembers, if it has a memory; by default as many as in pretraining.
        """

    @property
    def total_heads(self) -> int:
        """Attention heads of all layers, those that layers share once; 0 without attention."""
        return 0

    def shared_across(self, count: int) -> bool:
        """Whether one of the first ``count`` layers of a stack shares a sub-layer with one above them."""
        return False

    def size(self, vocab_size: int) -> Size:
        """The widths that heads need."""
        return Size(self.width, self.table_width, vocab_size)

    def layer_width(self, layer: int) -> int:
        """Width of a layer in `Encoded.layers`: 0 is the embeddings' output."""
        return self.width if layer else self.embedded_width


def only(model: Backbone, kind: type[_Kind], what: str) -> _Kind:
    """The settings of an encoder where one kind alone will do.

    Args:
        what: What asks for it, as the subject of the refusal.

    Raises:
        ConfigError: For another kind, naming it and the one that will do.
    """
    if isinstance(model, kind):
        return model
    able = kind.model_fields["kind"].default
    raise ConfigError([Problem("model.kind", f"{what} needs {able}, not {model.get('kind')}")])
