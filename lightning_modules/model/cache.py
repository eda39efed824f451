"""What a model keeps of the positions before a batch, and what the positions of the batch see of both.

A carry is a value that a model returns for what follows: `Past` of a text that goes on, `Memory` of rows that go on
from batch to batch. While a stack of layers encodes a batch, it reads and extends it through a cache: `KVCache` or
`SegmentMemory`, or `NoCache` for a batch by itself.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_modules.batch import Direction, Example, Unsupported, Visibility, mapped

_LEAST_ROOM = 32  # positions
Pair = tuple[Float[Tensor, "b h t k"], Float[Tensor, "b h t v"]]  # keys and values
Update = Callable[[Tensor, Tensor], Pair]  # of a layer: new keys and values -> all so far


def attention_mask(visible: Visibility, length: int, device: torch.device) -> Bool[Tensor, "#b #h t s"] | None:
    """The conjunction of all parts of a visibility, True where attention is allowed; None when it is everywhere.

    A padded position attends at least to itself, so that no row of scores is empty.
    """
    parts = [] if visible.pairs is None else [visible.pairs]
    if visible.causal:
        parts.append(torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril())
    if visible.anticausal:
        parts.append(torch.ones(1, 1, length, length, dtype=torch.bool, device=device).triu())
    if visible.real is not None:
        parts.append(visible.real[:, None, None] | torch.eye(length, dtype=torch.bool, device=device))
    return functools.reduce(torch.logical_and, parts) if parts else None


class NoCache:
    """A batch by itself, whose positions attend to each other.

    Attributes:
        positions: Of the tokens of the batch ``[#b t]``.
        attended: The positions that they attend to ``[#b s]``.
        keyed: Those of them whose keys a layer computes.
        consecutive: Whether positions are numbered without gaps.
        reach: How far back each position sees where all see equally far; None leaves it to the model.
    """

    reach: int | None = None

    def __init__(self, example: Example, direction: Direction) -> None:
        ids, positions = example.inputs.ids, example.inputs.positions
        self.visible, self.new, self.device = example.visible.toward(direction), ids.shape[1], ids.device
        self.consecutive = positions is None
        self.positions = torch.arange(self.new, device=ids.device)[None] if positions is None else positions
        self.attended = self.keyed = self.positions

    def mask(self) -> Bool[Tensor, "#b #h t s"] | None:
        """What each position may attend to; None where that is everything."""
        return attention_mask(self.visible, self.new, self.device)

    def attended_states(self, x: Float[Tensor, "b r d"]) -> Float[Tensor, "b s d"] | None:
        """The stream that the next layer attends to, where it is not its input ``x``; layers ask in turn.

        Behind the states of the positions ``x`` may have those of queries, which nothing attends to.
        """
        return None if x.shape[1] == self.new else x[:, : self.new]

    def update_of(self, layer: int) -> Update | None:
        """What adds keys and values of a layer to those before; None if there are none."""
        return None

    def carry(self) -> Any:
        """What follows the batch reads on from; None for nothing."""
        return None


class _Room:
    """Memory for keys and values ``[b h room _]``, the first positions of which are filled."""

    def __init__(self, like: Pair, size: int) -> None:
        self.memory = tuple(part.new_empty(*part.shape[:2], size, part.shape[3]) for part in like)
        self.size, self.filled = size, 0


@dataclass(frozen=True, eq=False)
class KeysValues:
    """The keys and values of the positions before, of one sub-layer; without gradient.

    They lie in a room with space at its end. Only the value that ends where the room is filled writes there, so that
    steps share what is before. Any other one gets a room of its own.
    """

    room: _Room | None = None
    length: int = 0

    def followed_by(self, new: Pair) -> "KeysValues":
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
    def both(self) -> Pair:
        """Keys and values."""
        assert self.room is not None
        keys, values = self.room.memory
        return keys[:, :, : self.length], values[:, :, : self.length]


@dataclass(frozen=True, eq=False)
class Past:
    """What a stack needs of a text that it has read. Reading on from it changes no other continuation of the text.

    Attributes:
        layers: Keys and values of each layer.
        real: False on padding ``[b s]``; None if there is none.
        positions: The position of each token ``[b s]``.
    """

    layers: tuple[KeysValues, ...]
    real: Bool[Tensor, "b s"] | None
    positions: Int[Tensor, "b s"]

    def rows(self, which: Int[Tensor, " k"]) -> "Past":
        """The carry of some rows, in this order; a row may be chosen several times."""
        real = None if self.real is None else self.real[which]
        return Past(tuple(layer.rows(which) for layer in self.layers), real, self.positions[which])


class KVCache(NoCache):
    """The keys and values of a text before a batch, which it grows by.

    Positions are counted from the start of the text: each row goes on behind its last token that is no padding.

    Raises:
        Unsupported: For a carry of other rows or layers, and for a batch with a mask of its own.
    """

    def __init__(self, past: "Past | tuple[()]", example: Example, depth: int) -> None:
        super().__init__(example, "left_to_right")
        if self.visible.pairs is not None or self.visible.anticausal:
            raise Unsupported("a continued text is read from the left: a mask of pairs and anticausal have no carry")
        ids, now = example.inputs.ids, self.visible.real
        before = past if isinstance(past, Past) else Past((KeysValues(),) * depth, None, ids[:, :0])
        check_fit("carry", (len(before.positions), len(before.layers)), (len(ids), depth))
        earlier, self.real = before.real, None
        if earlier is not None or now is not None:
            earlier = torch.ones_like(before.positions, dtype=torch.bool) if earlier is None else earlier
            self.real = torch.cat([earlier, torch.ones_like(ids, dtype=torch.bool) if now is None else now], 1)
        if self.consecutive:
            first = torch.zeros_like(ids[:, :1])
            if before.positions.shape[1]:
                places = before.positions if before.real is None else before.positions.masked_fill(~before.real, -1)
                first = places.amax(1, keepdim=True) + 1
            self.positions = first + self.positions
        self.keyed, self.attended = self.positions, torch.cat([before.positions, self.positions], 1)
        self.consecutive = False
        self._layers = list(before.layers)

    def mask(self) -> Bool[Tensor, "#b 1 t s"] | None:
        """What each new position may attend to: all real ones up to itself; None where that is everything."""
        total = self.attended.shape[1]
        if self.real is None and self.new == 1:
            return None
        up_to = torch.ones(self.new, total, dtype=torch.bool, device=self.device).tril(total - self.new)
        if self.real is None:
            return up_to[None, None]
        return (up_to & (self.real[:, None] | up_to.triu(total - self.new)))[:, None]

    def update_of(self, layer: int) -> Update:
        """See `NoCache.update_of`."""
        return functools.partial(self._update, layer)

    def _update(
        self, layer: int, k: Float[Tensor, "b h t k"], v: Float[Tensor, "b h t v"]
    ) -> tuple[Float[Tensor, "b h s k"], Float[Tensor, "b h s v"]]:
        """Keys and values of all positions so far; gradients reach the new ones alone."""
        before = self._layers[layer]
        self._layers[layer] = before.followed_by((k.detach(), v.detach()))
        if not (k.requires_grad or v.requires_grad):
            return self._layers[layer].both
        if not before.length:
            return k, v
        keys, values = before.both
        return torch.cat([keys, k], 2), torch.cat([values, v], 2)

    def carry(self) -> Past:
        """The carry of what follows the batch."""
        return Past(tuple(self._layers), self.real, self.attended)


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

    @property
    def length(self) -> int:
        """Positions that it has room for."""
        return self.real.shape[1]


class SegmentMemory(NoCache):
    """A memory while a stack encodes the batch that follows it (Dai et al. 2019, section 3.2: segment recurrence).

    It holds the inputs of each layer, not their keys and values: these are projected again, with the weights of the
    step. Gradients stop. A memory has one length, set when it is begun; at first its positions are hidden.

    It is before the batch, to the left of it. Of rows that go on to the left (`SegmentState.backward`) it is to the
    right. XLNet's released code reverses their text and negates their positions, which gives the same scores in a model
    that reads both sides. Here their text stays as it is, and what is cached of them is reversed: the nearest is last.

    Raises:
        Unsupported: For a memory of other rows or layers, and for rows with gaps that go on to the left.
    """

    def __init__(self, memory: Memory, example: Example, depth: int, direction: Direction) -> None:
        super().__init__(example, direction)
        rows, state = len(example.inputs.ids), example.inputs.segment_state
        check_fit("memory", (len(memory.real), len(memory.layers)), (rows, depth))
        self.memory, self.reach = memory, memory.length
        self.backward = None if state is None else state.backward
        self.cached = self.new if state is None or state.reuse is None else state.reuse  # positions that go on
        self.counted = memory.positions is None and self.consecutive
        self.consecutive = self.counted and self.backward is None
        before = memory.positions
        if before is None:
            before = torch.arange(-memory.length, 0, device=self.device)[None]
        if not self.consecutive:  # one row serves all where they are alike
            before, self.positions = before.expand(rows, -1), self.positions.expand(rows, -1)
        if self.backward is not None:
            if not self.counted or self.visible.real is not None:
                raise Unsupported(
                    "rows that continue to the left are full, and their positions are counted without gaps"
                )
            before = torch.where(self.backward[:, None], self.new - 1 - before, before)
        self.keyed = self.attended = torch.cat([before, self.positions], 1)
        self._inputs: list[Tensor] = []

    def mask(self) -> Bool[Tensor, "b h t s"]:
        """What each position may attend to: what is remembered, and what it sees of the batch."""
        own = super().mask()
        if own is None:
            own = torch.ones(1, 1, self.new, self.new, dtype=torch.bool, device=self.device)
        before = self.memory.real[:, None, None].expand(-1, own.shape[1], self.new, -1)
        return torch.cat([before, own.expand(len(before), -1, -1, -1)], 3)

    def attended_states(self, x: Float[Tensor, "b r d"]) -> Float[Tensor, "b s d"]:
        """The stream that the next layer attends to: what it remembers, and its input."""
        both = torch.cat([self.memory.layers[len(self._inputs)].to(x.dtype), x[:, : self.new]], 1)
        self._inputs.append(both)
        return both

    def carry(self) -> Memory:
        """The memory of what follows the batch, as long as this one."""
        rows, kept = len(self.memory.real), slice(self.cached, self.memory.length + self.cached)
        now = self.visible.real
        if now is None:
            now = torch.ones(rows, self.new, dtype=torch.bool, device=self.device)
        layers = tuple(self._in_turn(both.detach())[:, kept].contiguous() for both in self._inputs)  # not the rest
        positions = None
        if not self.counted or self.visible.real is not None:
            own = self.positions.expand(rows, -1)[:, : self.cached].masked_fill(~now[:, : self.cached], -1)
            positions = (self.attended - (own.amax(1, keepdim=True) + 1))[:, kept]
        return Memory(layers, torch.cat([self.memory.real, now], 1)[:, kept], positions)

    def _in_turn(self, both: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """What is remembered, and behind it the batch as it was gone through: the nearest to what follows is last."""
        if self.backward is None:
            return both
        reversed_ = torch.cat([both[:, : -self.new], both[:, -self.new :].flip(1)], 1)
        return torch.where(self.backward[:, None, None], reversed_, both)


def check_fit(what: str, held: tuple[int, int], given: tuple[int, int]) -> None:
    """Refuses a carry of other rows or layers than those that read on from it."""
    if held != given:
        raise Unsupported(
            f"the {what} is of {held[0]} rows and {held[1]} layers, the batch of {given[0]} rows and the encoder of "
            f"{given[1]} layers"
        )


# A carry of rows that go on is any nest of tensors whose first axis is the row.


def reset(carry: Any, rows: Bool[Tensor, " b"]) -> Any:
    """A carry that is empty in some rows, where the text starts again. Zeros hold nothing (`BackboneModule.begin`)."""

    def emptied(held: Tensor) -> Tensor:
        return torch.where(rows.view(-1, *[1] * (held.ndim - 1)), torch.zeros_like(held), held)

    return mapped(carry, emptied)


def rolled(carry: Any) -> Any:
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
