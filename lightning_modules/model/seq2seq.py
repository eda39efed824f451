"""An encoder of a source and a decoder that attends to it: transformers, or LSTMs with attention or without.

Both sides of a transformer have the same layers (Vaswani et al. 2017, section 3.1). Of LSTMs, Sutskever et al. (2014)
have no attention. Bahdanau et al. (2015) introduced it, and Luong et al. (2015, section 3) put it behind the layers of
the decoder, as here. What differs from Luong et al.: the encoder reads in both directions, and the decoder does not
read its last attentional state (their input feeding, section 3.3), so that all positions of a target train at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from lightning_modules.batch import (
    BEGIN,
    SOURCE,
    WIDE_TABLE,
    WORD_TABLE,
    Encoded,
    Example,
    Tokens,
    Unsupported,
    Visibility,
    mapped,
)
from lightning_modules.config import Settings, knob
from lightning_modules.model.attention import Source
from lightning_modules.model.cache import NoCache, Past
from lightning_modules.model.recurrent import Recurrent, RecurrentEncoder, RecurrentSettings, StackStates, State
from lightning_modules.model.settings import Layers, StackSettings
from lightning_modules.model.transformer import Transformer, TransformerEncoder

Score = Literal["dot", "scaled_dot", "general", "additive", "uniform"]
_SUPPORTED = {WORD_TABLE, WIDE_TABLE, "direction left_to_right"}  # of what a decoder by itself supports
_NO_SOURCE = "an encoder-decoder reads a source, and the batch holds none: set format.kind to seq2seq"


class OfTwoSequences(Settings):
    """What any decoder with an encoder sets: its direction, and what is the encoder's own.

    Attributes:
        of_one_sequence: Knobs of the layers that such a model does not have.
    """

    of_one_sequence: ClassVar[tuple[str, ...]]

    direction: Literal["left_to_right"] = knob(
        "left_to_right", "That of the decoder, which reads from the left.", neutral="left_to_right"
    )
    encoder_layers: Layers | None = knob(None, "Layers of the encoder. By default num_layers.")
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
        *("embedding_divisor", "memory_length", "same_length", "segment_relation", "query_stream", "languages"),
    )

    sub_layers = ("attention", "cross", "ffn")
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
    def layers_in_all(self) -> int:
        """See `StackSettings.layers_in_all`."""
        return self.num_layers + self.encoder.num_layers

    @property
    def supports(self) -> frozenset[str]:
        """See `StackSettings.supports`: a source, which it needs."""
        return super().supports & _SUPPORTED | {SOURCE}

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
class DecoderCarry:
    """What a decoder needs to go on: the encoded source, and what it has read of its own sequence."""

    source: Source
    past: Any  # `Past` of a transformer, `StackStates` of an LSTM

    def rows(self, which: Int[Tensor, " k"], *, same_sources: bool = False) -> "DecoderCarry":
        """What is needed of some rows, in this order; ``same_sources`` says that each keeps its source."""
        past = self.past
        past = past.rows(which) if isinstance(past, Past) else mapped(past, lambda states: states[which])
        return DecoderCarry(self.source if same_sources else self.source.rows(which), past)


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
        if isinstance(carry, DecoderCarry):
            source, past = carry.source, carry.past
        elif example.source is not None:
            source, past = self.encode_source(example.source, keep=carry is not None), carry
        else:
            raise Unsupported(_NO_SOURCE)
        example, cache = self.cached(example, past)
        layers, last, _ = self.encode(self.embeddings(example.inputs), example, cache, source)
        kept = None if carry is None else DecoderCarry(source, cache.carry())
        return Encoded(layers=layers, last=last, table=self.table, carry=kept)

    def encode_source(self, source: Tokens, *, keep: bool = False) -> Source:
        """The encoded source, for a decoder that keeps keys and values of it from step to step, or does not."""
        example = Example(source, Visibility(real=source.real))  # to look for padding would wait for the device
        embeddings = getattr(self.encoder, "embeddings", self.embeddings)
        _, states, _ = self.encoder.encode(embeddings(source), example, NoCache(example, "both"))
        return Source.of(states, source.real, keep=keep)

    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, then the layers of the encoder, then those of the decoder."""
        below = len(self.encoder.blocks)
        if name.startswith("encoder."):
            return min(self.encoder.depth(name.removeprefix("encoder.")), below)
        depth = super().depth(name)
        return depth and depth + below


class SourceAttention(nn.Module):
    """Attends to a source from each state of a decoder, and combines both (Luong et al. 2015, equations 5 to 8).

    ::

        dot          q . k                   Luong et al.
        scaled_dot   q . k / sqrt(d)         Vaswani et al. 2017, section 3.2.1
        general      q . W k                 Luong et al.
        additive     v . tanh(W q + U k)     Bahdanau et al. 2015, appendix A.1.2
        uniform      0                       the control: the mean of the source

        tanh(C [mean of the source by the softmax of the scores; q])

    Queries are the states after the word that is read, as in Luong et al.; Bahdanau et al. ask with those before it.

    Args:
        size: Width d of states on both sides.
    """

    def __init__(self, size: int, score: Score) -> None:
        super().__init__()
        self.score = score
        self.query = nn.Linear(size, size, bias=False) if score == "additive" else None
        self.key = nn.Linear(size, size, bias=False) if score in ("general", "additive") else nn.Identity()
        self.sum = nn.Linear(size, 1, bias=False) if score == "additive" else None
        self.combine = nn.Linear(2 * size, size, bias=False)

    def forward(self, x: Float[Tensor, "b t d"], source: Source) -> Float[Tensor, "b t d"]:
        mixed = torch.bmm(self.weights(x, source), source.states.to(x.dtype))
        return torch.tanh(self.combine(torch.cat([mixed, x], -1)))

    def weights(self, x: Float[Tensor, "b t d"], source: Source) -> Float[Tensor, "b t s"]:
        """The share of each position of the source, from each state; none on padding."""
        scores = self._scores(x, self._keys(source))
        return torch.softmax(scores + source.bias[:, 0].to(x.dtype), -1)

    def _scores(self, x: Float[Tensor, "b t d"], keys: Float[Tensor, "b s d"]) -> Float[Tensor, "b t s"]:
        if self.score == "uniform":
            return x.new_zeros(x.shape[0], x.shape[1], keys.shape[1])
        if self.query is not None and self.sum is not None:
            return self.sum(torch.tanh(self.query(x)[:, :, None] + keys[:, None]))[..., 0]
        scale = x.shape[-1] ** -0.5 if self.score == "scaled_dot" else 1.0
        return torch.bmm(x * scale, keys.transpose(1, 2))

    def _keys(self, source: Source) -> Float[Tensor, "b s d"]:
        """The keys of a source, computed once where a decoder goes on from step to step."""
        if source.kept is None:
            return self.key(source.states)
        if (kept := source.kept.get(id(self))) is None:
            kept = source.kept[id(self)] = (self.key(source.states),)
        return kept[0]


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
        return super().resolved().model_copy(update={"encoder_layers": self.encoder_layers or self.num_layers})

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
        return super().supports & _SUPPORTED | {SOURCE}

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
        score = settings.attention
        self.attention = None if score == "none" else SourceAttention(settings.hidden_size, score)

    def begin(self, rows: int, device: torch.device | str | None = None, memory_length: int | None = None) -> None:
        """See `BackboneModule.begin`: pairs do not go on from batch to batch."""

    def forward(self, example: Example, carry: Any = None) -> Encoded:
        """Encodes the source of a batch, unless a carry holds it, and decodes; see `Encoded.carry`.

        Raises:
            Unsupported: For a batch without a source, and for what a recurrence cannot obey.
        """
        example.check_readable(self.supports)
        self._check_visible(example)
        if isinstance(carry, DecoderCarry):
            source, before = carry.source, carry.past
        elif example.source is not None and (carry is None or carry == BEGIN):
            source, before = self.encode_source(example.source, keep=carry is not None)
        else:
            raise Unsupported(_NO_SOURCE)
        x = self.input_dropout(self.embeddings(example.inputs))
        layers, after = self.encode(x, example.inputs.real, before, ends=carry is not None)
        last = layers[-1] if self.attention is None else self.attention(layers[-1], source)
        kept = None if carry is None else DecoderCarry(source, mapped(after, Tensor.detach))
        return Encoded(layers=layers, last=self.output_dropout(last), table=self.table, carry=kept)

    def encode_source(self, source: Tokens, *, keep: bool = False) -> tuple[Source, StackStates]:
        """The encoded source, and the first states of the decoder; to keep for the steps that follow, or not."""
        encoder, depth = self.encoder, self.settings.depth
        embeddings = getattr(encoder, "embeddings", self.embeddings)
        x = encoder.input_dropout(embeddings(replace(source, positions=None)))
        layers, after = encoder.encode(x, source.real, encoder.zeros(len(source.ids), x.device), ends=True)
        first: list[State] = []
        for rightward, leftward in zip(*after, strict=True):  # the states of one height next to each other
            output, cells = (torch.cat(both, -1) for both in zip(rightward, leftward, strict=True))
            first.append((output, cells))
        return Source.of(layers[-1], source.real, keep=keep), (tuple((first + first[-1:] * depth)[:depth]),)

    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, then the layers of the encoder, then those of the decoder."""
        below = self.encoder.settings.depth
        if name.startswith("encoder."):
            return min(self.encoder.depth(name.removeprefix("encoder.")), below)
        depth = super().depth(name)
        return depth and depth + below
