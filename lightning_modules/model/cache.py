"""What a model keeps of the positions before a batch.

`KVCache`: keys and values of a text that goes on. A carry is a value: reading on from it changes no other continuation
of the same text. What two steps share is not copied: keys and values lie in a room with space at its end, and only the
carry that ends where the room is filled writes there; any other one gets a room of its own.

`Memory`: the inputs of each layer (Dai et al. 2019, section 3.2: segment-level recurrence), not their keys and values:
these are projected again, with the weights of the step. Gradients stop. A memory has one length, set when it is begun;
at first its positions are hidden. It is before the batch, to the left of it. Of rows that go on to the left
(`Going.backward`) it is to the right. XLNet's released code turns their text around and negates their positions, which
gives the same scores in a model that reads both sides. Here their text stays as it is, and what they hand on is turned
around: the nearest comes last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_modules.batch import Direction, Example, Unsupported, Visibility, mapped

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


def attention_mask(visible: Visibility, length: int, device: torch.device) -> Bool[Tensor, "#b #h t s"] | None:
    """The conjunction of all parts of a visibility, True where attention is allowed; None when it is everywhere.

    A padded position attends at least to itself, so that no row of scores is empty.
    """
    parts = []
    if visible.causal:
        parts.append(torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None])
    if visible.anticausal:
        parts.append(torch.ones(length, length, dtype=torch.bool, device=device).triu()[None, None])
    if visible.real is not None:
        itself = torch.eye(length, dtype=torch.bool, device=device)
        parts.append(visible.real[:, None, None, :] | itself)
    if visible.pairs is not None:
        parts.append(visible.pairs)
    if not parts:
        return None
    mask = parts[0]
    for part in parts[1:]:
        mask = mask & part
    return mask


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


def reset(carry: Any, rows: Bool[Tensor, " b"]) -> Any:
    """A carry that is empty in some rows, where the text starts again. Zeros hold nothing (`BackboneModule.begin`)."""

    def emptied(held: Tensor) -> Tensor:
        return torch.where(rows.view(-1, *[1] * (held.ndim - 1)), torch.zeros_like(held), held)

    return mapped(carry, emptied)


def turned(carry: Any) -> Any:
    """A carry in which each row holds what belongs to the next one, and the last row what belongs to the first."""
    return mapped(carry, lambda held: held.roll(-1, dims=0))


def tensors(carry: Any) -> list[Tensor]:
    """The tensors of a carry, in order, as checkpoints hold them."""
    found: list[Tensor] = []
    mapped(carry, lambda held: found.append(held) or held)
    return found


def filled(like: Any, held: Sequence[Tensor]) -> Any:
    """A carry of a known form that holds these tensors, which are moved to the device of its own."""
    left = iter(held)
    return mapped(like, lambda tensor: next(left).to(tensor.device))
