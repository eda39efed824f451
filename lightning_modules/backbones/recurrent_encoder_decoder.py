"""LSTMs that encode a source in both directions and decode it, with attention or without.

Sutskever et al. (2014) have no attention. Bahdanau et al. (2015) introduced it, and Luong et al. (2015, section 3) put
it behind the layers of the decoder, as here. What differs from Luong et al.: the encoder reads in both directions, and
the decoder does not read its last attentional state (their input feeding, section 3.3), so that all positions of a
target train at once.
"""

from dataclasses import replace
from typing import Any, Literal, Self

import torch
from pydantic import model_validator

from lightning_modules.backbones.encoder_decoder import OfTwoSequences, States, Translating
from lightning_modules.backbones.recurrent import Recurrent, RecurrentEncoder, RecurrentSettings
from lightning_modules.batch import (
    BEGIN,
    SOURCE,
    WIDE_TABLE,
    WORD_TABLE,
    Encoded,
    Example,
    Tokens,
    Unsupported,
)
from lightning_modules.config import knob
from lightning_modules.layers.projected_lstm import State
from lightning_modules.layers.scene import Source
from lightning_modules.layers.source_attention import SourceAttention


class RecurrentEncoderDecoder(OfTwoSequences, RecurrentSettings):
    """A decoder with the settings of any LSTM, and an encoder with the same ones, in both directions.

    ``num_layers`` are those of the decoder. Each direction of the encoder has half of its units, so that both together
    are as wide. A layer of the decoder begins with the last states of the layer of the encoder at its height, or of the
    highest one where the encoder has fewer.
    """

    of_one_sequence = ("output_size", "cell_size", "characters", "segment_types")

    kind: Literal["lstm_encoder_decoder"] = knob("lstm_encoder_decoder", "")
    attention: Literal["dot", "scaled_dot", "general", "additive", "uniform", "none"] = knob(
        "dot",
        "Score of a state of the decoder and one of the source. It is their product (dot), the same over the root of "
        "their width (scaled_dot), or with a matrix between them (general: Luong et al. 2015). It may be a layer "
        "(additive: Bahdanau et al. 2015). With uniform every state of the source counts the same, as a control of the "
        "choice among them. With none the decoder knows of the source what its first states hold.",
    )

    @model_validator(mode="after")
    def _directions_divide(self) -> Self:
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not even, and each direction of the encoder has half of it"
            )
        return self

    def resolved(self) -> Self:
        """See `Recurrent.resolved`; the number of encoder layers is filled in."""
        full = super().resolved()
        return full.model_copy(update={"encoder_layers": self.encoder_layers or self.num_layers})

    @property
    def encoder(self) -> Recurrent:
        """The settings of the encoder."""
        shared = {name: getattr(self, name) for name in RecurrentSettings.model_fields}
        layers = self.encoder_layers or self.num_layers
        own = {"num_layers": 2 * layers, "direction": "two_way", "hidden_size": self.hidden_size // 2}
        own["embedding_size"] = self.table_width
        return Recurrent.model_construct(**(shared | own))  # resolved values need not be those of a file

    @property
    def supports(self) -> frozenset[str]:
        """See `Recurrent.supports`: a source, which it needs."""
        return super().supports & {WORD_TABLE, WIDE_TABLE, "direction left_to_right"} | {SOURCE}

    @property
    def described(self) -> str:
        """See `Recurrent.described`."""
        return f"{self.encoder.depth} + {super().described}, attention `{self.attention}`"

    def build(self, vocab_size: int) -> "LSTMEncoderDecoder":
        """Both sides, initialised from torch's current generator."""
        return LSTMEncoderDecoder(self.resolved(), vocab_size)

    def flops_per_sequence(self, length: int, queries: float = 0.0, memory: int | None = None) -> float:
        """See `Backbone.flops_per_sequence`: of as many positions on both sides together, half on each."""
        side, d = length / 2, self.hidden_size
        total = side * (super().flops_per_sequence(1) + self.encoder.flops_per_sequence(1))
        if self.attention == "none":
            return total
        products = 2 if self.attention == "uniform" else 4  # what is mixed by scores, and these
        total += products * side * side * d + side * 4 * d * d  # and both states combined
        if self.attention == "general":
            total += side * 2 * d * d
        if self.attention == "additive":
            total += side * 4 * d * d  # in place of the product of states there is a sum over a layer
        return total


class LSTMEncoderDecoder(RecurrentEncoder):
    """The decoder, a stack of LSTM layers, with its encoder and what attends to it.

    Layers and carry are those of the decoder. The encoder runs once for each source: a carry holds its output.
    """

    def __init__(self, settings: RecurrentEncoderDecoder, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.encoder = RecurrentEncoder(settings.encoder, vocab_size)
        if settings.source_embeddings == "shared":
            del self.encoder.embeddings
        self.attention = None
        if settings.attention != "none":
            self.attention = SourceAttention(settings.hidden_size, settings.attention)

    def begin(self, rows: int, device: torch.device | str | None = None) -> None:
        """See `BackboneModule.begin`: pairs do not go on from batch to batch."""

    def forward(self, example: Example, carry: Any = None) -> Encoded:
        """Encodes the source of a batch, unless a carry holds it, and decodes; see `Encoded.carry`.

        Raises:
            Unsupported: For a batch without a source, and for what a recurrence cannot obey.
        """
        example.check_readable(self.supports)
        self._check_visible(example)
        if isinstance(carry, Translating):
            assert isinstance(carry.read, States)
            source, before = carry.source, carry.read.layers
        elif example.source is not None and (carry is None or carry == BEGIN):
            source, before = self.encoded(example.source, keep=carry is not None)
        else:
            raise Unsupported("an encoder-decoder reads a source, and the batch holds none: set format.kind to seq2seq")
        x = self.input_dropout(self.embeddings(example))
        layers, (after,) = self.above(x, example.inputs.real, [before], ends=carry is not None)
        last = layers[-1] if self.attention is None else self.attention(layers[-1], source)
        handed = None
        if carry is not None:
            handed = Translating(source, States(tuple((output.detach(), cells.detach()) for output, cells in after)))
        return Encoded(layers=layers, last=self.output_dropout(last), table=self.table, carry=handed)

    def encoded(self, source: Tokens, *, keep: bool = False) -> tuple[Source, list[State]]:
        """The encoded source, and the first states of the decoder; to keep for the steps that follow, or not."""
        encoder = self.encoder
        embeddings = getattr(encoder, "embeddings", self.embeddings)
        x = encoder.input_dropout(embeddings(Example.of(replace(source, positions=None))))
        zeros = encoder.zeros(len(source.ids), x.device)
        layers, after = encoder.above(x, source.real, [zeros] * len(encoder.stacks), ends=True)
        bias = x.new_zeros(source.real.shape).masked_fill(~source.real, float("-inf"))[:, None, None]
        first = [_joined(states) for states in zip(*after, strict=True)]
        kept = {} if keep and not torch.is_grad_enabled() else None
        depth = self.settings.depth
        return Source(layers[-1], bias, kept), (first + first[-1:] * depth)[:depth]

    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, then the layers of the encoder, then those of the decoder."""
        below = self.encoder.settings.depth
        if name.startswith("encoder."):
            return min(self.encoder.depth(name.removeprefix("encoder.")), below)
        depth = super().depth(name)
        return depth and depth + below


def _joined(states: tuple[State, ...]) -> State:
    """The states of one height in both directions, next to each other."""
    outputs, cells = zip(*states, strict=True)
    return torch.cat(outputs, -1), torch.cat(cells, -1)
