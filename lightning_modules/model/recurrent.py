"""Stacks of LSTM layers in the transformer's place (Hochreiter and Schmidhuber 1997; Radford et al. 2018, Table 5).

The five dropouts of AWD-LSTM (Merity et al. 2018, sections 2 and 4) are knobs: of word types, of the input, of
recurrent weights, between layers, and of the output. Four of them have one mask for all positions of a row, or for
the whole batch; only recurrent weights change what a layer computes.

Words may be read by their characters, and layers may be projected and clipped (ELMo: Peters et al. 2018). Layers keep
the kernel of ``torch.nn.LSTM`` unless they are clipped: no kernel of torch clips cells.
"""

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lightning_modules.batch import (
    BEGIN,
    CHARACTERS,
    RECURRENT_STATES,
    WIDE_TABLE,
    WORD_TABLE,
    Encoded,
    Example,
    Unsupported,
    mapped,
)
from lightning_modules.config import knob, once
from lightning_modules.model.cache import check_fit
from lightning_modules.model.embeddings import CharacterEncoder, Embeddings, WordsByCharacters
from lightning_modules.model.layers import Dropout, LockedDropout, drop
from lightning_modules.model.settings import (
    FIRST_SEES,
    SEGMENTS,
    Backbone,
    BackboneModule,
    Layers,
    Positive,
    Rate,
    SegmentTypes,
    Width,
)
from lightning_modules.model.transformer import initialise

State = tuple[Float[Tensor, "b d"], Float[Tensor, "b c"]]  # of a layer after a position: output and cells
StackStates = tuple[tuple[State, ...], ...]  # of each layer of each stack
_REVERSED = {"left_to_right": (False,), "right_to_left": (True,), "two_way": (False, True)}  # of each stack
_AWD_DROPOUTS = ("word_type_dropout", "input_dropout", "weight_dropout", "hidden_dropout", "output_dropout")


class RecurrentSettings(Backbone):
    """LSTM layers over embeddings. Defaults are those of Radford et al. (2018): one layer of 2,048 units.

    The paper gives no other detail. Embeddings are the transformer's without positions, LayerNorm and dropout
    included; a layer reads the layer below as it is, without projection, residual connection or LayerNorm.

    The dropouts of AWD-LSTM come in the numbers of its released code: word types (``dropoute``), input (``dropouti``),
    recurrent weights (``wdrop``), between layers (``dropouth``) and output (``dropout``). What is kept is divided by
    1 - p. ``embedding_dropout`` and ``dropout`` are others, which drop single entries.
    """

    num_layers: Layers = knob(1, "Number of layers L. With two stacks, of both together.")
    hidden_size: Width = knob(2048, "Units d of a layer, in one direction.")
    embedding_size: Width | None = knob(
        768,
        "Width e of the embedding tables, which the first layer reads. By default hidden_size.",
    )
    direction: Literal["left_to_right", "right_to_left", "two_way"] = knob(
        "left_to_right",
        "Direction in which rows are read: two_way is one stack per direction, each with half of the layers, whose "
        "states are concatenated (ELMo).",
    )
    output_size: Width | None = knob(
        None,
        "Units of the last layer of a stack, whose states heads read: 400 over layers of 1,150 in AWD-LSTM. By default "
        "hidden_size.",
        neutral=None,
    )
    residual: bool = knob(
        False, "Add what a layer reads to its output, from the second layer on (ELMo).", neutral=False
    )
    cell_size: Width | None = knob(
        None,
        "Cells of a layer, whose outputs are projected to its units: 4,096 over 512 in ELMo. By default that of its "
        "units, which are not projected.",
        neutral=None,
    )
    cell_clip: float = knob(
        0.0, "Projected layers: largest absolute value of a cell (3 in ELMo). No limit with 0.", neutral=0.0, ge=0
    )
    projection_clip: float = knob(
        0.0, "Projected layers: largest absolute value of a unit (3 in ELMo). No limit with 0.", neutral=0.0, ge=0
    )
    characters: CharacterEncoder | None = knob(
        None,
        "Words are read by their characters, and projected to embedding_size. There is no table of pieces (ELMo). All "
        "pieces of a word have its states.",
        neutral=None,
    )
    segment_types: SegmentTypes = knob(0, "Rows of the segment embedding table. No table with 0.", neutral=0)
    embedding_dropout: Rate = knob(0.1, "Dropout on the summed, normalised embeddings.")
    dropout: Rate = knob(0.1, "Dropout on the output of each layer.")
    word_type_dropout: Rate = knob(
        0.0,
        "Dropout of whole rows of the word table as it is read: a dropped word is zero at all its places in a batch. "
        "The output layer reads all rows.",
        neutral=0.0,
    )
    input_dropout: Rate = knob(
        0.0, "Dropout on the input of the first layer, the same at all positions of a row.", neutral=0.0
    )
    weight_dropout: Rate = knob(
        0.0, "Dropout of recurrent weights, one mask for each layer and batch (DropConnect).", neutral=0.0
    )
    hidden_dropout: Rate = knob(0.0, "Dropout between layers, the same at all positions of a row.", neutral=0.0)
    output_dropout: Rate = knob(
        0.0,
        "Dropout on the states that heads read, the same at all positions of a row. The layers that are returned are "
        "without.",
        neutral=0.0,
    )
    embedding_norm: bool = knob(True, "LayerNorm on the summed embeddings.", neutral=True)
    norm_eps: Positive = knob(1e-5, "Epsilon of the embeddings' LayerNorm.")
    init_std: Positive = knob(
        0.02,
        "Standard deviation of the initial embeddings. Recurrent weights are uniform within hidden_size ** -0.5, and "
        "the bias of forget gates is 1.",
    )
    init: Literal["truncated_normal", "normal", "uniform"] = knob(
        "normal",
        "Initialisation of the embeddings. A truncated_normal is cut at two standard deviations. A uniform one has the "
        "same standard deviation.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.num_layers % self.stacks:
            raise ValueError(f"direction two_way needs an even number of layers, not num_layers {self.num_layers}")
        if self.residual and self.depth > 1 and self.sizes[-1] != self.hidden_size:
            raise ValueError(
                f"residual adds {self.hidden_size} units to the output_size {self.output_size} of the last layer: set "
                "output_size to null, or residual to false"
            )
        if self.cell_size is not None and self.cell_size <= max(self.sizes):
            raise ValueError(
                f"cell_size {self.cell_size} is projected to {max(self.sizes)} units, which must be fewer: raise it, "
                "or set it to null"
            )
        for name in ("cell_clip", "projection_clip"):
            if self.get(name) and self.cell_size is None:
                raise ValueError(
                    f"{name} {self.get(name):g} is of projected layers: set cell_size above {max(self.sizes)}, or "
                    f"{name} to 0"
                )
        for name in ("segment_types", "word_type_dropout"):
            if self.characters is not None and self.get(name):
                raise ValueError(
                    f"{name} {self.get(name):g} is of a table, and characters make words without one: set {name} to "
                    "0, or characters to null"
                )
        return self

    @once
    def resolved(self) -> Self:
        """The settings with the width of the tables filled in, and what only several layers have neutral for one."""
        full: dict[str, Any] = {"embedding_size": self.table_width}
        if self.output_size == self.hidden_size:
            full["output_size"] = None
        if self.depth == 1:
            full |= {"hidden_dropout": 0.0, "residual": False}
        return self.model_copy(update=full)

    @property
    def dropouts(self) -> tuple[str, ...]:
        """The rates that drop single entries, and those of AWD-LSTM that are in use."""
        return ("embedding_dropout", "dropout", *(name for name in _AWD_DROPOUTS if getattr(self, name)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of each layer of a stack."""
        return (*[self.hidden_size] * (self.depth - 1), self.output_size or self.hidden_size)

    @property
    def width(self) -> int:
        """See `Backbone.width`."""
        return self.stacks * self.sizes[-1]

    def layer_width(self, layer: int) -> int:
        """See `Backbone.layer_width`; layers may have several widths."""
        return self.stacks * self.sizes[layer - 1] if layer else self.embedded_width

    @property
    def embedded_width(self) -> int:
        """Width of ``Encoded.layers[0]``: that of the tables; of two stacks it holds the embeddings twice (ELMo)."""
        return self.stacks * self.table_width

    @property
    def supports(self) -> frozenset[str]:
        """See `Backbone.supports`; without a segment table all segments are alike."""
        optional = {
            FIRST_SEES: self.direction != "left_to_right",
            WORD_TABLE: self.characters is None,
            WIDE_TABLE: self.characters is None and self.table_width == self.sizes[-1],
            CHARACTERS: self.characters is not None,
        }
        has = (name for name, holds in optional.items() if holds)
        return frozenset({f"direction {self.direction}", SEGMENTS, RECURRENT_STATES, *has})

    @property
    def described(self) -> str:
        """Layers, units and direction."""
        layers = f"{self.num_layers} LSTM layer{'s' * (self.num_layers > 1)} of {self.hidden_size} units"
        layers += f" over {self.cell_size} cells" * (self.cell_size is not None)
        layers += " and characters" * (self.characters is not None)
        last = f", the last one of {self.output_size}" if self.output_size else ""
        return f"{layers}{last}, direction `{self.direction}`"

    def check_warm_start(self, depths: Sequence[int]) -> None:
        """See `Backbone.check_warm_start`: layers of a recurrence have different shapes."""
        if depths:
            kind = self.get("kind")
            raise ValueError(f"training.warm_start repeats the layers of a transformer, and model.kind is {kind}")

    def flops_per_sequence(self, length: int, queries: float = 0.0, memory: int | None = None) -> float:
        """See `Backbone.flops_per_sequence`; it has no query stream and attends to no memory.

        With characters as if each piece were a word, and each word of a batch another one.
        """
        products = 0
        for read, size in itertools.pairwise((self.table_width, *self.sizes)):
            cells = self.cell_size or size
            products += 4 * cells * (read + size) + cells * size * (self.cell_size is not None)
        spelt = 0.0 if self.characters is None else self.characters.flops(self.table_width)
        return float(length * (self.stacks * 2 * products + spelt))


class Recurrent(RecurrentSettings):
    """A recurrent encoder, or a language model that reads from one side."""

    kind: Literal["lstm"] = knob("lstm", "")

    def build(self, vocab_size: int) -> "RecurrentEncoder":
        """The encoder, initialised from torch's current generator."""
        return RecurrentEncoder(self, vocab_size)


class LSTMLayer(nn.LSTM):
    """One layer in one direction. It computes in the precision of its weights, even under autocast.

    While it trains, a share of its recurrent weights is zero, the same ones at all positions and in all rows of a batch
    (Wan et al. 2013; Merity et al. 2018, section 2). With ``cells``, its units are projections of so many.
    """

    spared = ("bias_ih_l0", "bias_hh_l0")  # without weight decay

    def __init__(self, inputs: int, size: int, weight_dropout: float = 0.0, cells: int | None = None) -> None:
        super().__init__(inputs, cells or size, batch_first=True, proj_size=size if cells else 0)
        self.weight_dropout = weight_dropout

    def reset_parameters(self) -> None:
        """As torch, but for biases: 1 for forget gates (Gers et al. 2000; Jozefowicz et al. 2015), else 0."""
        for name, parameter in self.named_parameters():
            if name in self.spared:
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -(self.hidden_size**-0.5), self.hidden_size**-0.5)
        with torch.no_grad():
            _, forget, _, _ = self.get_parameter("bias_ih_l0").chunk(4)  # gates: input, forget, cell, output
            forget.fill_(1.0)

    def states(
        self, x: Float[Tensor, "b t k"], before: State | None = None, sizes: Int[Tensor, " b"] | None = None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        """The output after each position, and the state after the last one of each row.

        Args:
            before: The state before the first position; by default zeros.
            sizes: The positions of each row that it reads, the first ones; by default all.
        """
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(self.get_parameter("weight_ih_l0").dtype)
            begin = None if before is None else tuple(part[None] for part in before)
            if begin is None or sizes is None:
                states, (output, cells) = self._read(x, begin)
                return states, (output[0], cells[0])
            packed = pack_padded_sequence(x, sizes.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            states, after = self._read(packed, begin)
            read = (sizes > 0)[:, None]
            output, cells = (torch.where(read, new[0], old[0]) for new, old in zip(after, begin, strict=True))
            return pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0], (output, cells)

    def _read(self, x: Any, begin: Any) -> Any:
        """What torch's layer makes of rows or packed rows, with some of the recurrent weights zero in training."""
        with warnings.catch_warnings():
            if self.proj_size:
                warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
            if not (self.training and self.weight_dropout):
                return self(x, begin)
            # cuDNN copies weights that do not lie together, as these cannot
            warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
            some = drop(self.get_parameter("weight_hh_l0"), self.weight_dropout)
            return functional_call(self, {"weight_hh_l0": some}, (x, begin))


class ProjectedLSTM(nn.Module):
    """One layer in one direction, projected and clipped (Sak et al. 2014, equations 1 to 7; ELMo).

    It computes in the precision of its weights, even under autocast.

    ::

        i, f, o = sigmoid(...), z = tanh(...)   each of W x_t + R h_{t-1} + b
        c_t = clip(f c_{t-1} + i z)             h_t = clip(P (o tanh(c_t)))

    Weights are uniform within cells ** -0.5. The bias of forget gates starts at 1, other biases at 0. A clip of 0 is no
    limit. ``weight_dropout`` is the share of R that is zero in a training batch.
    """

    spared = ("bias",)  # without weight decay

    def __init__(
        self,
        inputs: int,
        cells: int,
        size: int,
        cell_clip: float = 0.0,
        output_clip: float = 0.0,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.clips, self.weight_dropout = (cell_clip or float("inf"), output_clip or float("inf")), weight_dropout
        self.input, self.recurrent = (nn.Parameter(torch.empty(4 * cells, width)) for width in (inputs, size))
        self.projection, self.bias = nn.Parameter(torch.empty(size, cells)), nn.Parameter(torch.zeros(4 * cells))
        for weight in (self.input, self.recurrent, self.projection):
            nn.init.uniform_(weight, -(cells**-0.5), cells**-0.5)
        with torch.no_grad():
            self.bias[cells : 2 * cells] = 1.0

    def states(
        self, x: Float[Tensor, "b t k"], before: State | None = None, sizes: Int[Tensor, " b"] | None = None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        """See `LSTMLayer.states`."""
        with torch.autocast(x.device.type, enabled=False):
            recurrent = drop(self.recurrent, self.weight_dropout if self.training else 0.0)
            shares = torch.addmm(self.bias, x.to(self.bias.dtype).transpose(0, 1).flatten(0, 1), self.input.T)
            shares = shares.view(x.shape[1], x.shape[0], -1)
            if before is None:
                width, count = self.projection.shape
                before = shares.new_zeros(len(x), width), shares.new_zeros(len(x), count)
            outputs, cells = _Recurrence.apply(shares, recurrent, self.projection, *before, *self.clips)
        if sizes is None:
            return outputs.transpose(0, 1), (outputs[-1], cells[-1])
        row, last = torch.arange(len(x), device=x.device), (sizes - 1).clamp(min=0)
        read = (sizes > 0)[:, None]
        output, cell = (
            torch.where(read, held[last, row], old) for held, old in zip((outputs, cells), before, strict=True)
        )
        return outputs.transpose(0, 1), (output, cell)


class _Recurrence(torch.autograd.Function):
    """All positions, one after the other, time first. What is carried, cells included, has no gradient.

    The gradient is written out: autograd would keep five times as many tensors and call three times as many operations.
    """

    @staticmethod
    def forward(
        ctx: Any,
        shares: Float[Tensor, "t b g"],  # of the gates: input, forget, output, cell
        recurrent: Float[Tensor, "g d"],
        projection: Float[Tensor, "d c"],
        output: Float[Tensor, "b d"],
        cell: Float[Tensor, "b c"],
        cell_clip: float,
        output_clip: float,
    ) -> tuple[Tensor, Tensor]:
        steps, rows, _ = shares.shape
        width, count = projection.shape
        gates, outputs = torch.empty_like(shares), shares.new_empty(steps, rows, width)
        cells, squashed = (shares.new_empty(steps, rows, count) for _ in range(2))
        ctx.clips = cell_clip, output_clip
        before = output, cell
        for t in range(steps):
            gate = torch.addmm(shares[t], output, recurrent.T, out=gates[t])
            gate[:, : 3 * count].sigmoid_()
            gate[:, 3 * count :].tanh_()
            i, f, o, z = gate.chunk(4, 1)
            cell = torch.mul(f, cell, out=cells[t]).addcmul_(i, z).clamp_(-cell_clip, cell_clip)
            output = torch.mm(torch.tanh(cell, out=squashed[t]) * o, projection.T, out=outputs[t])
            output.clamp_(-output_clip, output_clip)
        ctx.save_for_backward(gates, cells, squashed, outputs, recurrent, projection, *before)
        ctx.mark_non_differentiable(cells)
        return outputs, cells

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_outputs, (cell_clip, output_clip) = gradients[0], ctx.clips
        gates, cells, squashed, outputs, recurrent, projection, first_output, first_cell = ctx.saved_tensors
        count = projection.shape[1]
        by_shares, by_projected = torch.empty_like(gates), torch.empty_like(outputs)
        by_output, by_cell = torch.zeros_like(first_output), torch.zeros_like(first_cell)
        for t in reversed(range(len(gates))):
            i, f, o, z = gates[t].chunk(4, 1)
            # a clip lets through the gradient of what it left as it was
            by_output = torch.add(by_outputs[t], by_output, out=by_projected[t]).mul_(outputs[t].abs() < output_clip)
            by_product = by_output @ projection
            by_cell += _by_tanh(by_product * o, squashed[t])
            by_cell *= cells[t].abs() < cell_clip
            share = by_shares[t]
            torch.mul(by_cell, z, out=share[:, :count])
            torch.mul(by_cell, cells[t - 1] if t else first_cell, out=share[:, count : 2 * count])
            torch.mul(by_product, squashed[t], out=share[:, 2 * count : 3 * count])
            share[:, : 3 * count] = _by_sigmoid(share[:, : 3 * count], gates[t][:, : 3 * count])
            share[:, 3 * count :] = _by_tanh(by_cell * i, z)
            by_cell *= f
            by_output = share @ recurrent
        flat = by_shares.flatten(0, 1)
        read = torch.cat([first_output[None], outputs[:-1]]).flatten(0, 1)
        products = (gates[:, :, 2 * count : 3 * count] * squashed).flatten(0, 1)
        return by_shares, flat.T @ read, by_projected.flatten(0, 1).T @ products, None, None, None, None


_by_sigmoid, _by_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class RecurrentEncoder(BackboneModule):
    """Embeddings and LSTM layers over them; every layer's output is returned, zeros on padding.

    Each row starts from states of zero, or from those after what it goes on from. Padding is read by no layer, so what
    is on it changes nothing, wherever it is.
    """

    numbered = False

    def __init__(self, settings: RecurrentSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.direction, self.supports = settings, settings.direction, settings.supports
        self.carries = settings.direction == "left_to_right"
        characters, width = settings.characters, settings.table_width
        self.embeddings = Embeddings(
            WordsByCharacters(characters, width) if characters else nn.Embedding(vocab_size, width),
            width,
            segment_types=settings.segment_types,
            norm_eps=settings.norm_eps if settings.embedding_norm else None,
            dropout=settings.embedding_dropout,
            word_type_dropout=settings.word_type_dropout,
        )
        widths = list(itertools.pairwise((width, *settings.sizes)))
        self.stacks = nn.ModuleList(
            nn.ModuleList(_layer(settings, read, size) for read, size in widths) for _ in range(settings.stacks)
        )
        self.dropout = Dropout(settings.dropout)
        self.input_dropout = LockedDropout(settings.input_dropout)
        self.hidden_dropout = LockedDropout(settings.hidden_dropout)
        self.output_dropout = LockedDropout(settings.output_dropout)
        if characters is None:
            self.embeddings.apply(lambda module: initialise(module, settings.init, settings.init_std))

    def forward(self, example: Example, carry: Any = None) -> Encoded:
        """Encodes a batch, by itself or as what follows a carry: the states of each layer, without gradient.

        Raises:
            Unsupported: For what a recurrence cannot obey, and for a carry that does not fit.
        """
        example.check_readable(self.supports)
        self._check_visible(example)
        x, real, places = self._inputs(example)
        before = self._before(carry, len(real), real.device)
        layers, after = self.encode(x, real, before, ends=carry is not None)
        layers = [_in_order(layer, places) for layer in layers]
        if places is not None:
            layers = [layer * example.inputs.real[:, :, None] for layer in layers]
        kept = None if carry is None else mapped(after, Tensor.detach)
        return Encoded(layers=layers, last=self.output_dropout(layers[-1]), table=self.table, carry=kept)

    def encode(
        self, x: Float[Tensor, "b t e"], real: Bool[Tensor, "b t"], before: StackStates | None, *, ends: bool
    ) -> tuple[list[Tensor], StackStates]:
        """The layers over what the first one reads, and the states after the rows.

        Args:
            real: Which of it is no padding.
            before: The states before the rows; zeros by default.
            ends: Whether the states are those after the last position that is no padding, which needs those before.
        """
        sizes = None if not ends or bool(real.all()) else real.sum(1)
        stacks, after = [], []
        for number, (stack, is_reversed) in enumerate(zip(self.stacks, _REVERSED[self.direction], strict=True)):
            order = _order(real, is_reversed)
            back = None if order is None else order.argsort(1)
            layers, states = [x], []
            for height, layer in enumerate(stack.children()):
                assert isinstance(layer, (LSTMLayer, ProjectedLSTM))
                read = self.hidden_dropout(layers[-1]) if height else x
                state = None if before is None else before[number][height]
                output, state = layer.states(_in_order(read, order), state, sizes)
                output = self.dropout(_in_order(output, back) * real[:, :, None])
                layers.append(output + read if height and self.settings.residual else output)
                states.append(state)
            stacks.append(layers)
            after.append(tuple(states))
        return [torch.cat(both, -1) for both in zip(*stacks, strict=True)], tuple(after)

    def _inputs(
        self, example: Example
    ) -> tuple[Float[Tensor, "b s e"], Bool[Tensor, "b s"], Int[Tensor, "b t"] | None]:
        """What the first layer reads, which of it is no padding, and where the state of each position is in it.

        With characters it reads the words of each row one after the other; without, all positions, and None is given.
        """
        tokens, words = example.inputs, self.embeddings.word
        if not isinstance(words, WordsByCharacters):
            return self.input_dropout(self.embeddings(tokens)), tokens.real, None
        if tokens.characters is None:
            raise Unsupported("an LSTM with model.characters reads words by their characters, and the batch has none")
        begins = tokens.characters.words >= 0
        most = max(1, int(begins.sum(1).max()))
        order = begins.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        x = words.of(tokens.characters.words.gather(1, order), tokens.characters.spelt)
        x = self.input_dropout(self.embeddings.placed(x, {}, None))
        return x, begins.gather(1, order), (begins.long().cumsum(1) - 1).clamp(min=0)

    def begin(
        self, rows: int, device: torch.device | str | None = None, memory_length: int | None = None
    ) -> StackStates | None:
        """States of zero; None unless it reads from left to right."""
        return self.zeros(rows, device) if self.carries else None

    def zeros(self, rows: int, device: torch.device | str | None) -> StackStates:
        """States of zero."""
        like, cells = next(self.stacks.parameters()), self.settings.cell_size
        return tuple(
            tuple(
                (like.new_zeros(rows, size, device=device), like.new_zeros(rows, cells or size, device=device))
                for size in self.settings.sizes
            )
            for _ in self.stacks
        )

    def states_after(self, carry: StackStates | None, rows: int, device: torch.device) -> StackStates:
        """What the next batch is read from if rows are not read by themselves: the states after the batch before.

        The released code of ELMo reads like this, in both directions, whatever the text. A batch of fewer rows takes
        the first ones. Without a carry states are zero.
        """
        if carry is None or len(carry[0][0][0]) < rows:
            return self.zeros(rows, device)
        return mapped(carry, lambda states: states[:rows])

    def _before(self, carry: Any, rows: int, device: torch.device) -> StackStates | None:
        """The states before a batch."""
        if carry is None or (carry == BEGIN and self.carries):
            return None if carry is None else self.zeros(rows, device)
        if len(carry) != len(self.stacks):
            raise Unsupported(f"an LSTM with direction '{self.direction}' has no carry: what it read changes with more")
        check_fit("carry", (len(carry[0][0][0]), len(carry[0])), (rows, self.settings.depth))
        return carry

    def _check_visible(self, example: Example) -> None:
        """Refuses what a recurrence would ignore: it sees all positions on its side, and no others."""
        visible = example.visible
        wrong = {
            "that hides single positions": visible.pairs is not None,
            "that hides what follows a position": visible.causal and self.direction != "left_to_right",
            "that hides what precedes a position": visible.anticausal and self.direction != "right_to_left",
        }
        if any(wrong.values()):
            listed = " or ".join(text for text, is_wrong in wrong.items() if is_wrong)
            raise Unsupported(f"an LSTM that reads {self.direction} cannot obey a visibility {listed}")
        if example.inputs.positions is not None:
            raise Unsupported("an LSTM has no table of positions, and the batch numbers its positions")

    def depth(self, name: str) -> int:
        """The depth of a parameter; see `BackboneModule.depth`."""
        if name.startswith("stacks."):
            return int(name.split(".")[2]) + 1
        return 0 if name.startswith("embeddings.") else self.settings.depth + 1


def _layer(settings: RecurrentSettings, read: int, size: int) -> LSTMLayer | ProjectedLSTM:
    """A layer that reads so many units and has so many; one that is clipped leaves torch's kernel."""
    clips = settings.cell_clip, settings.projection_clip
    if settings.cell_size is None or not any(clips):
        return LSTMLayer(read, size, settings.weight_dropout, settings.cell_size)
    return ProjectedLSTM(read, settings.cell_size, size, *clips, settings.weight_dropout)


def _order(real: Bool[Tensor, "b t"], is_reversed: bool) -> Int[Tensor, "b t"] | None:
    """The position to read at each step, padding last. None where that is the order in which they are."""
    steps = torch.arange(real.shape[1], device=real.device)
    if not is_reversed and not bool((real[:, 1:] & ~real[:, :-1]).any()):
        return None
    return torch.where(real, -steps if is_reversed else steps, len(steps) + steps).argsort(1)


def _in_order(x: Float[Tensor, "b t k"], order: Int[Tensor, "b t"] | None) -> Float[Tensor, "b t k"]:
    return x if order is None else x.gather(1, order[:, :, None].expand(-1, -1, x.shape[2]))


class BiLSTM(nn.Module):
    """Layers of two LSTMs each, one per direction; every layer reads both directions of the one below.

    Initialised as in torch: uniform within ``size ** -0.5``, with ``size`` the width of each direction. It computes in
    the precision of its weights, even under autocast: to round at each step is no faster on CPUs and less precise.
    """

    def __init__(self, inputs: int, size: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, size, layers, batch_first=True, bidirectional=True)

    def forward(self, x: Float[Tensor, "b t d"], real: Bool[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """States of both directions, e = 2 x size; zeros on padding, which must be at the end of rows."""
        lengths = real.sum(1).cpu()
        with torch.autocast(x.device.type, enabled=False):
            packed = pack_padded_sequence(x.float(), lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        return states


class BiLSTMOnTop(nn.Module):
    """An encoder with a BiLSTM over its last states (Devlin et al. 2019, Table 5, "+ BiLSTM").

    The paper only says that it is randomly initialised and added for fine-tuning. Its width is our choice: each
    direction is half as wide as the encoder, which is trained too.

    Attributes:
        width: Width of the states that a head reads; one less if the encoder's is odd.
    """

    def __init__(self, encoder: nn.Module, width: int, layers: int) -> None:
        super().__init__()
        self.encoder, self.bilstm = encoder, BiLSTM(width, width // 2, layers)
        self.width = 2 * (width // 2)

    @property
    def embeddings(self) -> nn.Module:
        """The embeddings of the encoder."""
        return self.encoder.get_submodule("embeddings")

    def forward(self, example: Example) -> Encoded:
        encoded = self.encoder(example)
        return replace(encoded, last=self.bilstm(encoded.last, example.inputs.real))
