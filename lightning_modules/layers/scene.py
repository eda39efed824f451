"""What all layers of a stack share of a batch."""

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from lightning_modules.layers.chosen import rows_at
from lightning_modules.layers.distances import Distances, QueryBiases
from lightning_modules.layers.rotary import Rotation


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
    """

    bias: Float[Tensor, "#b #h t s"] | None = None
    turn: Rotation | None = None
    turned: Rotation | None = None
    distances: Distances | None = None
    waves: Float[Tensor, "n d"] | None = None
    biases: QueryBiases | None = None

    def at(self, read: Int[Tensor, "b m"], length: int) -> "Scene":
        """The scene of the queries at flat positions, of ``length`` in a row; keys stay."""
        return replace(
            self,
            bias=None if self.bias is None else rows_at(self.bias, read),
            turn=None if self.turn is None else self.turn.at(read),
            distances=None if self.distances is None else self.distances.at(read, length),
        )


ALONE = Scene()  # everything is seen, nothing has a position
