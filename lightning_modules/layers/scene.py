"""What all layers of a stack share of a batch."""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_modules.layers.chosen import rows_at
from lightning_modules.layers.distances import Distances, QueryBiases
from lightning_modules.layers.rotary import Rotation


@dataclass(frozen=True, eq=False)
class Source:
    """An encoded source, which the layers of a decoder attend to.

    Attributes:
        states: The last states of the encoder.
        bias: What is added to the scores: minus infinity on padding, else nothing.
        kept: Keys and values of each part that has read it, where a decoder goes on from step to step; None
            where each step computes them.
    """

    states: Float[Tensor, "b s d"]
    bias: Float[Tensor, "b 1 1 s"]
    kept: dict[int, tuple[Tensor, ...]] | None = None

    def rows(self, which: Int[Tensor, " k"]) -> "Source":
        """The sources of some rows, in this order."""
        kept = None
        if self.kept is not None:
            kept = {name: tuple(part[which] for part in parts) for name, parts in self.kept.items()}
        return Source(self.states[which], self.bias[which], kept)


@dataclass(frozen=True, eq=False)
class Scene:
    """Visibility and positions of a batch, as its layers read them; t positions attend to s.

    Attributes:
        bias: What is added to the scores, minus infinity where nothing may be seen (`attention_bias`); None is nothing.
        turn: The rotation of queries.
        turned: The rotation of keys: of the positions whose keys a layer computes.
        distances: What layers that attend by distance read.
        waves: The sinusoids of these distances.
        biases: The query biases that all layers share.
        apart: Whether a pair of positions is of two segments.
        blind: Which rows see nothing, so that nothing is mixed for them; None where each sees something.
        source: What a decoder attends to besides its own positions. None for an encoder.
    """

    bias: Float[Tensor, "#b #h t s"] | None = None
    turn: Rotation | None = None
    turned: Rotation | None = None
    distances: Distances | None = None
    waves: Float[Tensor, "n d"] | None = None
    biases: QueryBiases | None = None
    apart: Bool[Tensor, "#b 1 t s"] | None = None
    blind: Bool[Tensor, "#b #h t 1"] | None = None
    source: Source | None = None

    def at(self, read: Int[Tensor, "b m"], length: int) -> "Scene":
        """The scene of the queries at flat positions, of ``length`` in a row; keys stay."""
        return replace(
            self,
            bias=None if self.bias is None else rows_at(self.bias, read),
            turn=None if self.turn is None else self.turn.at(read),
            distances=None if self.distances is None else self.distances.at(read, length),
            apart=None if self.apart is None else rows_at(self.apart, read),
            blind=None if self.blind is None else rows_at(self.blind, read),
        )


ALONE = Scene()  # everything is seen, nothing has a position
