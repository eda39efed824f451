"""The keys and values of positions that were read before, so that a text goes on without its start being read again.

A carry is a value: reading on from it changes no other continuation of the same text. What two steps share is not
copied: keys and values lie in a room with space at its end, and only the carry that ends where the room is filled
writes there; any other one gets a room of its own.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_modules.batch import Example, Unsupported

_LEAST_ROOM = 32  # positions
Both = tuple[Float[Tensor, "b h t k"], Float[Tensor, "b h t v"]]  # keys and values


class _Room:
    """Memory for keys and values ``[b h room _]``, the first positions of which are filled."""

    def __init__(self, like: Both, size: int) -> None:
        self.memory = tuple(part.new_empty(*part.shape[:2], size, part.shape[3]) for part in like)
        self.size, self.filled = size, 0


@dataclass(frozen=True, eq=False)
class KeysValues:
    """The keys and values of the positions before, of one sub-layer; without gradient."""

    room: _Room | None = None
    length: int = 0

    def followed_by(self, new: Both) -> "KeysValues":
        """These keys and values and those of the positions after them."""
        end, room = self.length + new[0].shape[2], self.room
        if room is None or room.filled != self.length or room.size < end:
            room = _Room(new, max(_LEAST_ROOM, 2 * end))
            if self.room is not None:
                for memory, before in zip(room.memory, self.both, strict=True):
                    memory[:, :, : self.length] = before
        for memory, part in zip(room.memory, new, strict=True):
            memory[:, :, self.length : end] = part
        room.filled = end
        return KeysValues(room, end)

    def rows(self, which: Int[Tensor, " k"]) -> "KeysValues":
        """Those of some rows, in this order."""
        if not self.length:
            return self
        keys, values = self.both
        return KeysValues().followed_by((keys[which], values[which]))

    @property
    def both(self) -> Both:
        """Keys and values."""
        assert self.room is not None
        keys, values = self.room.memory
        return keys[:, :, : self.length], values[:, :, : self.length]


@dataclass(frozen=True, eq=False)
class Carry:
    """What a stack of layers needs of the positions that it has read: for users an opaque value.

    Attributes:
        layers: Keys and values of each layer.
        real: False on padding ``[b s]``; None if there is none.
        positions: The position of each token ``[b s]``.
    """

    layers: tuple[KeysValues, ...]
    real: Bool[Tensor, "b s"] | None
    positions: Int[Tensor, "b s"]

    def rows(self, which: Int[Tensor, " k"]) -> "Carry":
        """The carry of some rows, in this order; a row may be chosen several times."""
        real = None if self.real is None else self.real[which]
        return Carry(tuple(layer.rows(which) for layer in self.layers), real, self.positions[which])


class Past:
    """The positions before those of a batch while a stack of layers reads it; notes what it hands on.

    Args:
        carry: The carry of the positions before; empty at the start of a text.

    Raises:
        Unsupported: For a carry of other rows or layers, and for a batch with a mask of its own.
    """

    def __init__(self, carry: "Carry | tuple[()]", example: Example, depth: int) -> None:
        tokens, visible = example.inputs, example.visible
        if visible.pairs is not None or visible.anticausal:
            raise Unsupported("a continued text is read from the left: a mask of pairs and anticausal have no carry")
        rows, self.new = tokens.ids.shape
        before = carry if isinstance(carry, Carry) else Carry((KeysValues(),) * depth, None, tokens.ids[:, :0])
        if (rows, depth) != (len(before.positions), len(before.layers)):
            raise Unsupported(
                f"the carry is of {len(before.positions)} rows and {len(before.layers)} layers, the batch of {rows} "
                f"rows and the encoder of {depth} layers"
            )
        self.real = _joined_real(before, visible.real, rows, self.new)
        self.place = _places(before, rows, self.new) if tokens.positions is None else tokens.positions
        self.positions = torch.cat([before.positions, self.place], 1)
        self.layers = [Growing(layer) for layer in before.layers]

    def mask(self) -> Bool[Tensor, "#b 1 t s"] | None:
        """What each new position may attend to: all real ones up to itself; None where that is everything."""
        total = self.positions.shape[1]
        if self.real is None and self.new == 1:
            return None
        up_to = torch.ones(self.new, total, dtype=torch.bool, device=self.positions.device).tril(total - self.new)
        if self.real is None:
            return up_to[None, None]
        itself = up_to.triu(total - self.new)
        return (up_to & (self.real[:, None] | itself))[:, None]

    def carry(self) -> Carry:
        """The carry for what follows the batch."""
        return Carry(tuple(layer.kept for layer in self.layers), self.real, self.positions)


class Growing:
    """The keys and values of one layer, which grow as the layer reads a batch."""

    def __init__(self, kept: KeysValues) -> None:
        self.kept = kept

    def __call__(
        self, k: Float[Tensor, "b h t k"], v: Float[Tensor, "b h t v"]
    ) -> tuple[Float[Tensor, "b h s k"], Float[Tensor, "b h s v"]]:
        """Keys and values of all positions so far; gradients reach the new ones alone."""
        before = self.kept
        self.kept = before.followed_by((k.detach(), v.detach()))
        if not (k.requires_grad or v.requires_grad):
            return self.kept.both
        if not before.length:
            return k, v
        keys, values = before.both
        return torch.cat([keys, k], 2), torch.cat([values, v], 2)


def _places(before: Carry, rows: int, new: int) -> Int[Tensor, "b t"]:
    """The positions of new tokens: each row goes on behind its last one that is no padding."""
    if not before.positions.shape[1]:
        return torch.arange(new, device=before.positions.device).expand(rows, -1)
    given = before.positions if before.real is None else before.positions.masked_fill(~before.real, -1)
    return given.amax(1, keepdim=True) + 1 + torch.arange(new, device=given.device)


def _joined_real(before: Carry, real: Tensor | None, rows: int, new: int) -> Tensor | None:
    """Which positions are no padding, of those before and the new ones ``[b s]``; None if all are."""
    if before.real is None and real is None:
        return None
    device = before.positions.device
    earlier = torch.ones_like(before.positions, dtype=torch.bool) if before.real is None else before.real
    return torch.cat([earlier, torch.ones(rows, new, dtype=torch.bool, device=device) if real is None else real], 1)
