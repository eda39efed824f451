"""An encoder of a source and a decoder that attends to it, of the same layers (Vaswani et al. 2017, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Int
from pydantic import model_validator
from torch import Tensor

from lightning_modules.backbones.backbone import LARGEST
from lightning_modules.backbones.settings import StackSettings
from lightning_modules.backbones.stack import TransformerEncoder
from lightning_modules.backbones.transformer import Transformer
from lightning_modules.batch import (
    SOURCE,
    WIDE_TABLE,
    WORD_TABLE,
    Encoded,
    Example,
    Tokens,
    Unsupported,
    Visibility,
)
from lightning_modules.config import Settings, knob
from lightning_modules.layers.carried import Carry
from lightning_modules.layers.projected_lstm import State
from lightning_modules.layers.scene import Source


class OfTwoSequences(Settings):
    """What any decoder with an encoder sets: its direction, and what is the encoder's own.

    Attributes:
        of_one_sequence: Knobs of the layers that such a model does not have.
    """

    of_one_sequence: ClassVar[tuple[str, ...]]

    direction: Literal["left_to_right"] = knob(
        "left_to_right", "That of the decoder, which reads from the left.", neutral="left_to_right"
    )
    encoder_layers: int | None = knob(
        None, "Layers of the encoder. By default num_layers.", ge=1, le=LARGEST["num_layers"]
    )
    source_embeddings: Literal["shared", "own"] = knob(
        "shared",
        "Word embeddings of the source: those of the target (shared: Vaswani et al. 2017, section 3.4) or a table of "
        "its own (own). Those of the target are the output layer as well.",
        neutral="shared",
    )

    @model_validator(mode="after")
    def _reads_two_sequences(self) -> Self:
        if wrong := self.changed(self.of_one_sequence):
            raise ValueError(f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} of models of one sequence")
        return self


class EncoderDecoder(OfTwoSequences, StackSettings):
    """A decoder with the settings of any stack, and an encoder with the same ones.

    ``num_layers`` are those of the decoder. Both sides have the same positions: the same table, if they are learned.
    """

    of_one_sequence = (
        "embedding_divisor",
        "memory_length",
        "same_length",
        "segment_relation",
        "query_stream",
        "languages",
    )

    kind: Literal["encoder_decoder"] = knob("encoder_decoder", "")

    def resolved(self) -> Self:
        """See `StackSettings.resolved`; the number of encoder layers is filled in."""
        return super().resolved().model_copy(update={"encoder_layers": self.encoder.num_layers})

    @property
    def encoder(self) -> Transformer:
        """The settings of the encoder."""
        shared = {name: getattr(self, name) for name in StackSettings.model_fields}
        own = {"num_layers": self.encoder_layers or self.num_layers, "direction": "both"}
        return Transformer.model_construct(**(shared | own))  # resolved values need not be those of a file

    @property
    def sub_layers(self) -> tuple[str, ...]:
        """See `StackSettings.sub_layers`."""
        return ("attention", "cross", "ffn")

    @property
    def layers_in_all(self) -> int:
        """See `StackSettings.layers_in_all`."""
        return self.num_layers + self.encoder.num_layers

    @property
    def supports(self) -> frozenset[str]:
        """See `StackSettings.supports`: a source, which it needs."""
        return super().supports & {WORD_TABLE, WIDE_TABLE, "direction left_to_right"} | {SOURCE}

    @property
    def described(self) -> str:
        """See `StackSettings.described`."""
        return f"{self.encoder.num_layers} + {super().described}"

    def check_warm_start(self, depths: Sequence[int]) -> None:
        """See `Backbone.check_warm_start`."""
        if depths:
            raise ValueError("training.warm_start repeats the layers of one stack, and model.kind is encoder_decoder")

    def build(self, vocab_size: int) -> "TransformerEncoderDecoder":
        """Both sides, initialised from torch's current generator."""
        return TransformerEncoderDecoder(self.resolved(), vocab_size)

    def flops_per_sequence(self, length: int, queries: float = 0.0, memory: int | None = None) -> float:
        """See `Backbone.flops_per_sequence`: of as many positions on both sides together, half on each."""
        side, d, k = length / 2, self.hidden_size, self.heads * self.key_width
        scores = 2 * (k + d)  # of a pair of positions, with mixing
        attended = 4 * d * (k + d) * side + scores * side * side  # projections of queries, keys, values, output
        own = super().flops_per_sequence(1) - self.num_layers * scores  # of a position that attends to none
        decoder = side * (own + self.num_layers * side * scores) + self.num_layers * attended
        above = self.encoder.flops_per_sequence(1) - self.encoder.num_layers * scores
        return decoder + side * (above + self.encoder.num_layers * side * scores)


@dataclass(frozen=True, eq=False)
class States:
    """The state of each layer of a recurrent decoder after what it has read; without gradient."""

    layers: tuple[State, ...]

    def rows(self, which: Int[Tensor, " k"]) -> "States":
        """Those of some rows, in this order."""
        return States(tuple((output[which], cells[which]) for output, cells in self.layers))


@dataclass(frozen=True, eq=False)
class Translating:
    """What a decoder needs to go on: the encoded source, and what it has read of its own sequence."""

    source: Source
    read: "Carry | States"

    def rows(self, which: Int[Tensor, " k"], *, same_sources: bool = False) -> "Translating":
        """What is needed of some rows, in this order; ``same_sources`` says that each keeps its source."""
        return Translating(self.source if same_sources else self.source.rows(which), self.read.rows(which))


class TransformerEncoderDecoder(TransformerEncoder):
    """The decoder, a stack that attends to a source, with its encoder.

    States, layers and carry are those of the decoder. The encoder runs once for each source: a carry holds its output.
    """

    def __init__(self, settings: EncoderDecoder, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.encoder = TransformerEncoder(settings.encoder.resolved(), vocab_size)
        if settings.source_embeddings == "shared":
            del self.encoder.embeddings

    def forward(self, example: Example, carry: Any = None) -> Encoded:
        """Encodes the source of a batch, unless a carry holds it, and decodes; see `Encoded.carry`.

        Raises:
            Unsupported: For a batch without a source.
        """
        example.check_readable(self.supports)
        goes_on = isinstance(carry, Translating)
        if example.source is None and not goes_on:
            raise Unsupported("an encoder-decoder reads a source, and the batch holds none: set format.kind to seq2seq")
        before = None
        if carry is not None:
            read = carry.read if goes_on else carry
            assert not isinstance(read, States), "of an LSTM"
            before = self._past(read, example)
            example = replace(example, inputs=replace(example.inputs, positions=before.place))
        if goes_on:
            source = carry.source
        else:
            assert example.source is not None
            source = self.encoded(example.source, keep=before is not None)
        layers, last, _ = self.above(self.embeddings(example), example, before, source)
        handed = None if before is None else Translating(source, before.carry())
        return Encoded(layers=layers, last=last, table=self.table, carry=handed)

    def encoded(self, source: Tokens, *, keep: bool = False) -> Source:
        """The encoded source, for a decoder that keeps keys and values of it from step to step, or does not."""
        example = Example(source, Visibility(real=source.real))  # to look for padding would wait for the device
        embeddings = getattr(self.encoder, "embeddings", self.embeddings)
        _, states, _ = self.encoder.above(embeddings(example), example)
        bias = states.new_zeros(source.real.shape).masked_fill(~source.real, float("-inf"))[:, None, None]
        return Source(states, bias, {} if keep and not torch.is_grad_enabled() else None)

    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, then the layers of the encoder, then those of the decoder."""
        below = len(self.encoder.blocks)
        if name.startswith("encoder."):
            return min(self.encoder.depth(name.removeprefix("encoder.")), below)
        depth = super().depth(name)
        return depth and depth + below
