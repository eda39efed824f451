"""Memory of what a stack's layers read in the batches before (Dai et al. 2019, section 3.2: segment-level recurrence).

It holds the inputs of each layer, not their keys and values: these are projected again, with the weights of the step.
Gradients stop. A memory has one length, set when it is begun; at first its positions are hidden.

It is before the batch, to the left of it. Of rows that go on to the left (`Going.backward`) it is to the right. XLNet's
released code turns their text around and negates their positions, which gives the same scores in a model that reads
both sides. Here their text stays as it is, and what they hand on is turned around: the nearest comes last.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_modules.batch import Direction, Example, Unsupported
from lightning_modules.layers.attention import attention_mask


@dataclass(frozen=True, eq=False)
class Memory:
    """The last positions before a batch, of each row: a carry whose zeros are an empty memory.

    Attributes:
        layers: Input of each layer.
        real: Which of them hold something; the others are hidden.
        positions: Of each token, where what follows it begins at 0; None if all end at -1 without gaps.
    """

    layers: tuple[Float[Tensor, "b s d"], ...]
    real: Bool[Tensor, "b s"]
    positions: Int[Tensor, "b s"] | None = None

    @classmethod
    def empty(cls, rows: int, length: int, depth: int, like: Float[Tensor, "_ d"]) -> "Memory":
        """A memory that holds nothing yet, of ``depth`` layers as wide as ``like``, on its device."""
        states = like.new_zeros(rows, length, like.shape[1])
        real = torch.zeros(rows, length, dtype=torch.bool, device=like.device)
        return cls(tuple(states.clone() for _ in range(depth)), real)

    @property
    def length(self) -> int:
        """Positions that it has room for."""
        return self.real.shape[1]


class Remembering:
    """A memory while a stack reads the batch that follows it; notes what it hands on.

    Raises:
        Unsupported: For a memory of other rows or layers, and for rows with gaps that go on to the left.
    """

    def __init__(self, memory: Memory, example: Example, depth: int, direction: Direction) -> None:
        rows, self.new = example.inputs.ids.shape
        if (rows, depth) != (len(memory.real), len(memory.layers)):
            raise Unsupported(
                f"the memory is of {len(memory.real)} rows and {len(memory.layers)} layers, the batch of {rows} rows "
                f"and the encoder of {depth} layers"
            )
        self.memory, self.visible = memory, example.visible.toward(direction)
        going = example.inputs.going
        self.backward = None if going is None else going.backward
        self.counted = memory.positions is None and example.inputs.positions is None
        self.regular = self.counted and self.backward is None
        self.handed = self.new if going is None or going.reuse is None else going.reuse  # positions that go on
        self.place, self.positions = _numbered(memory, example.inputs.positions, 1 if self.regular else rows, self.new)
        if self.backward is not None:
            if not self.counted or self.visible.real is not None:
                raise Unsupported(
                    "rows that continue to the left are full, and their positions are counted without gaps"
                )
            turned = torch.cat([self.new - 1 - self.positions[:, : -self.new], self.place], 1)
            self.positions = torch.where(self.backward[:, None], turned, self.positions)
        self._read: list[Tensor] = []

    @property
    def reach(self) -> int:
        """How far back each position sees where all see equally far."""
        return self.memory.length

    def context(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b s d"]:
        """The stream that the next layer attends to: what it remembers, and its input. Layers ask in turn."""
        both = torch.cat([self.memory.layers[len(self._read)].to(x.dtype), x], 1)
        self._read.append(both)
        return both

    def mask(self) -> Bool[Tensor, "b h t s"]:
        """What each position may attend to: what is remembered, and what it sees of the batch."""
        rows, device = len(self.memory.real), self.memory.real.device
        own = attention_mask(self.visible, self.new, device)
        if own is None:
            own = torch.ones(1, 1, self.new, self.new, dtype=torch.bool, device=device)
        before = self.memory.real[:, None, None].expand(-1, own.shape[1], self.new, -1)
        return torch.cat([before, own.expand(rows, -1, -1, -1)], 3)

    def carry(self) -> Memory:
        """The memory of what follows the batch, as long as this one."""
        rows, kept = len(self.memory.real), slice(self.handed, self.memory.length + self.handed)
        now = self.visible.real
        if now is None:
            now = torch.ones(rows, self.new, dtype=torch.bool, device=self.memory.real.device)
        layers = tuple(self._in_turn(both.detach())[:, kept].contiguous() for both in self._read)  # not the rest
        positions = None
        if not self.counted or self.visible.real is not None:
            handed = self.place.expand(rows, -1)[:, : self.handed].masked_fill(~now[:, : self.handed], -1)
            following = handed.amax(1, keepdim=True) + 1
            positions = (self.positions - following)[:, kept]
        return Memory(layers, torch.cat([self.memory.real, now], 1)[:, kept], positions)

    def _in_turn(self, both: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """What is remembered, and behind it the batch as it was gone through: the nearest to what follows is last."""
        if self.backward is None:
            return both
        turned = torch.cat([both[:, : -self.new], both[:, -self.new :].flip(1)], 1)
        return torch.where(self.backward[:, None, None], turned, both)


def _numbered(memory: Memory, given: Tensor | None, rows: int, new: int) -> tuple[Tensor, Tensor]:
    """The positions of a batch ``[b t]``, and those before it with them ``[b s]``; one row where all are alike."""
    device = memory.real.device
    place = torch.arange(new, device=device).expand(rows, -1) if given is None else given
    before = memory.positions
    if before is None:
        before = torch.arange(-memory.length, 0, device=device).expand(rows, -1)
    return place, torch.cat([before, place], 1)
