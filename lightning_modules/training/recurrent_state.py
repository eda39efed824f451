"""The recurrent state of rows that continue from batch to batch (Dai et al. 2019, section 3.2)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from lightning_modules.batch import Encoded, Example
from lightning_modules.model.cache import filled, reset, rolled, tensors
from lightning_modules.model.settings import BackboneModule


class RecurrentState:
    """What a model carries from batch to batch, for each group of rows that go on (`Tokens.segment_state`).

    Training and evaluation have one each. Gradients stop at what is carried. A model that carries nothing, and rows
    that do not go on, are read as by the model alone.

    Args:
        memory_length: Positions that the model is to remember; by default as many as it does in training.
        foreign: Whether each row is answered with what the model carries of the next row, as a control: it has as much
            behind it, of another text. What is carried on is of a row's own text all the same.
    """

    def __init__(self, memory_length: int | None = None, foreign: bool = False) -> None:
        self.memory_length, self.foreign = memory_length, foreign
        self._held: dict[int, Any] = {}
        self._saved: dict[int, Sequence[Tensor]] = {}  # of a checkpoint, until the model has said how they belong

    def encode(self, backbone: BackboneModule, example: Example) -> Encoded:
        """What the model makes of a batch, after what it carries of the rows before."""
        segment = example.inputs.segment_state
        if segment is None:
            return backbone(example)
        ids = example.inputs.ids
        if segment.group in self._held:
            carry = self._held[segment.group]
        else:
            carry = backbone.begin(len(ids), ids.device, self.memory_length)
            if saved := self._saved.pop(segment.group, None):
                carry = filled(carry, saved)
        if carry is None:
            return backbone(example)
        if segment.reset_mask is not None:
            carry = reset(carry, segment.reset_mask)
        encoded = backbone(example, carry)
        self._held[segment.group] = encoded.carry
        return backbone(example, rolled(carry)) if self.foreign else encoded

    def state_dict(self, gathered: Callable[[Tensor], Tensor]) -> dict[int, list[Tensor]]:
        """The state for a checkpoint.

        Args:
            gathered: A tensor of this rank -> those of all ranks, along a new first axis.
        """
        held = {group: tensors(carry) for group, carry in self._held.items()} | dict(self._saved)
        return {group: [gathered(tensor).cpu() for tensor in own] for group, own in held.items()}

    def load_state_dict(self, state: Mapping[int, Sequence[Tensor]], rank: int) -> None:
        """Restores the part of a rank of what `state_dict` returned."""
        self._held, self._saved = {}, {group: [tensor[rank] for tensor in own] for group, own in state.items()}
