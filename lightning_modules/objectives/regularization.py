"""Activation and temporal activation regularisation of a recurrence (Merity et al. 2018, section 4.6)."""

from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from lightning_modules.batch import RECURRENT_STATES, Encoded, Example, Size, Vocabulary
from lightning_modules.config import knob
from lightning_modules.draws import Draws
from lightning_modules.objectives.objective import Objective


class ActivationRegularization(Objective):
    """Keeps the last states small, and close to those before them.

    With h the states of the last layer and m their dropout mask, AR is ``activation`` times the mean of (m h)^2 and TAR
    ``temporal`` times the mean of (h[t + 1] - h[t])^2, over units and real positions. Only AR sees the dropout, as in
    the released code; fastai's first version has both of undropped states. The paper has sums of norms in the place of
    means of squares.
    """

    masks_inputs: ClassVar[bool] = False
    targets: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[dict[str, str]] = {
        RECURRENT_STATES: "set model.kind to lstm, or objectives.activations to null",
    }

    activation: float = knob(2.0, "Factor on the mean square of the last states, after dropout (AR).", ge=0)
    temporal: float = knob(
        1.0, "Factor on the mean square of the differences of neighbouring last states, without dropout (TAR).", ge=0
    )

    def mask_inputs(self, example: Example, draws: Draws, vocabulary: Vocabulary) -> Example:
        """The example as it is."""
        return example

    def counts(self, example: Example) -> dict[str, float]:
        """Real positions, and pairs of neighbouring ones."""
        real = example.inputs.real
        return {"activation": float(real.sum()), "temporal": float((real[:, 1:] & real[:, :-1]).sum())}

    def loss(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, Tensor]:
        """Mean squares over the units, times their factors, summed over positions."""
        real, states = example.inputs.real, encoded.layers[-1].float()
        steps = states[:, 1:] - states[:, :-1]
        return {
            "activation": self.activation * _summed(encoded.last.float(), real),
            "temporal": self.temporal * _summed(steps, real[:, 1:] & real[:, :-1]),
        }

    def measure(self, heads: nn.ModuleDict, encoded: Encoded, example: Example) -> dict[str, tuple[Tensor, Tensor]]:
        """Nothing: it asks no question of held-out text."""
        return {}

    def flops_per_sequence(self, length: int, size: Size, special: int = 2) -> float:
        """0: there are no matrix products."""
        return 0.0


def _summed(x: Tensor, real: Bool[Tensor, "b t"]) -> Tensor:
    """The mean square over the units, summed over real positions."""
    return torch.where(real, x.square().mean(-1), 0.0).sum()
