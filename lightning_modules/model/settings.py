"""What systems, heads, plans and fine-tunings ask of any encoder, and the settings of a stack of transformer layers."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lightning_modules.batch import (
    BOTH_WAYS,
    QUERY_STREAM,
    REUSE,
    WIDE_TABLE,
    WORD_TABLE,
    Direction,
    Encoded,
    Example,
    Size,
)
from lightning_modules.config import ConfigError, Problem, Settings, knob, once
from lightning_modules.model.embeddings import ClusteredTable, Embeddings
from lightning_modules.model.layers import Activation
from lightning_modules.model.positions import BY_DISTANCE, POSITIONS, TABLED, Rotary

SEGMENTS = "segment table"
LANGUAGES = "language table"
FIRST_SEES = "a first position that sees the text"
ONE_SIDE = "text shown from one side"  # by the visibility of an example, to a model that reads both

# Knob -> the largest size, several times that of any published model. What is beyond it cannot be built to be counted.
LARGEST = {
    "num_layers": 1000,
    "hidden_size": 1 << 16,
    "embedding_size": 1 << 16,
    "ffn_size": 1 << 20,
    "max_positions": 1 << 20,
    "segment_types": 1 << 10,
    "languages": 1 << 10,
}
HEAD_SIZE = 64  # default width of a head, that of every BERT and GPT
Layers = Annotated[int, Field(ge=1, le=LARGEST["num_layers"])]
Width = Annotated[int, Field(ge=1, le=LARGEST["hidden_size"])]
Length = Annotated[int, Field(ge=0, le=LARGEST["max_positions"])]  # a number of positions
SegmentTypes = Annotated[int, Field(ge=0, le=LARGEST["segment_types"])]
Rate = Annotated[float, Field(ge=0, lt=1)]  # of dropout
Positive = Annotated[float, Field(gt=0)]

_Kind = TypeVar("_Kind", bound=Settings)
if TYPE_CHECKING:
    Positions = str
else:
    Positions = Literal[tuple(POSITIONS)]


class BackboneModule(nn.Module, ABC):
    """An encoder: takes an `Example`, returns every layer.

    Attributes:
        supports: What it supports; a batch that holds more is refused.
        embeddings: Its embeddings; the table of words is ``embeddings.word``.
        carries: Whether a text can go on where a batch ended: nothing that was read changes with what follows.
        numbered: Whether it reads the numbers of positions, if a batch has any (`Tokens.positions`).
        memory_length: Positions that a carry of `begin` remembers in training, if it counts them.
    """

    supports: frozenset[str]
    embeddings: Embeddings
    carries: bool = False
    numbered: bool = True
    memory_length: int = 0

    @abstractmethod
    def forward(self, example: Example, carry: Any = None) -> Encoded:
        """Encodes a batch, by itself or as what follows a carry; see `Encoded.carry`.

        Raises:
            Unsupported: For a batch that holds more than it supports, and for a carry that it does not have.
        """

    def begin(self, rows: int, device: torch.device | str | None = None, memory_length: int | None = None) -> Any:
        """The carry of rows that begin, for texts that go on from batch to batch; None if nothing is carried.

        Its tensors have the row as their first axis, and zeros mean that nothing was read. How long it is and where
        gradients stop is the model's business.

        Args:
            device: Of the carry; by default that of the word embeddings.
            memory_length: Positions that it remembers, if the model counts them; by default as many as in training.
        """
        return None

    @abstractmethod
    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, i + 1 for the first layer i that uses it, L + 1 above.

        An empty name means what is above it all, such as a head.
        """

    @property
    def table(self) -> Float[Tensor, "v e"]:
        """The table of word embeddings; of clusters that of the first."""
        return self.embeddings.word.weight

    @property
    def clusters(self) -> list[tuple[Tensor, Tensor]]:
        """The clusters of word embeddings; none if there is one table."""
        return self.embeddings.word.clusters if isinstance(self.embeddings.word, ClusteredTable) else []


class Backbone(Settings, ABC):
    """The settings of an encoder."""

    if TYPE_CHECKING:  # every kind has these fields
        num_layers: int
        hidden_size: int
        embedding_size: int | None
        direction: Direction
        segment_types: int

    @property
    @abstractmethod
    def dropouts(self) -> tuple[str, ...]:
        """Names of its dropout rates, which a fine-tuning sets together."""

    @abstractmethod
    def build(self, vocab_size: int) -> BackboneModule:
        """The encoder, initialised from torch's current generator."""

    @property
    def stacks(self) -> int:
        """Stacks of layers over the embeddings: one, or one per direction."""
        return 2 if self.direction == "two_way" else 1

    @property
    def depth(self) -> int:
        """Layers of one stack: those above the embeddings in `Encoded.layers`."""
        return self.num_layers // self.stacks

    @property
    @abstractmethod
    def width(self) -> int:
        """Width of the states that heads read: that of one stack, or of two concatenated."""

    @property
    def embedded_width(self) -> int:
        """Width of ``Encoded.layers[0]``."""
        return self.width

    @property
    def table_width(self) -> int:
        """Width of the table of word embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def longest(self) -> int:
        """Positions of the longest sequence that it reads; 0 without limit."""
        return 0

    @property
    @abstractmethod
    def supports(self) -> frozenset[str]:
        """What objectives, input formats and measures may ask for (`Objective.needs`, `InputFormat.gives`)."""

    @property
    @abstractmethod
    def described(self) -> str:
        """Its layers, in a few words."""

    def check_length(self, length: int) -> None:
        """Checks that the model can be trained on sequences of so many positions.

        Raises:
            ValueError: Naming the knobs that are in the way.
        """
        if self.longest and length > self.longest:
            raise ValueError(
                f"format.sequence_length {length} is longer than model.max_positions {self.longest}: "
                "lower the first or raise the second"
            )

    @abstractmethod
    def check_warm_start(self, depths: Sequence[int]) -> None:
        """Checks that networks of these depths, shallowest first, can initialise each other and then this one.

        Raises:
            ValueError: Naming ``training.warm_start`` and what is in the way.
        """

    @abstractmethod
    def flops_per_sequence(self, length: int, queries: float = 0.0, memory: int | None = None) -> float:
        """FLOPs of the matrix products of one forward pass over one sequence; without elementwise operations.

        Args:
            queries: Rows of its query stream, if it has one.
            memory: Positions before them that it remembers, if it has a memory; by default as many as in pretraining.
        """

    @property
    def total_heads(self) -> int:
        """Attention heads of all layers, those that layers share once; 0 without attention."""
        return 0

    def shared_across(self, count: int) -> bool:
        """Whether one of the first ``count`` layers of a stack shares a sub-layer with one above them."""
        return False

    def size(self, vocab_size: int) -> Size:
        """The widths that heads need."""
        return Size(self.width, self.table_width, vocab_size)

    def layer_width(self, layer: int) -> int:
        """Width of a layer in `Encoded.layers`: 0 is the embeddings' output."""
        return self.width if layer else self.embedded_width


def only(model: Backbone, kind: type[_Kind], what: str) -> _Kind:
    """The settings of an encoder where one kind alone will do, for ``what`` asks for it.

    Raises:
        ConfigError: For another kind, naming it and the one that will do.
    """
    if isinstance(model, kind):
        return model
    able = kind.model_fields["kind"].default
    raise ConfigError([Problem("model.kind", f"{what} needs {able}, not {model.get('kind')}")])


class StackSettings(Backbone):
    """Embeddings and a stack of layers over them. Defaults are those of BERT-base (Devlin et al. 2019, section 3)."""

    sub_layers: ClassVar[tuple[str, ...]] = ("attention", "ffn")  # of a layer, in their order

    num_layers: Layers = knob(12, "Number of layers L. With two stacks, of both together.")
    hidden_size: Width = knob(768, "Width d of the residual stream.")
    embedding_size: Width | None = knob(
        None,
        "Width e of the embedding tables, projected to hidden_size if smaller (ALBERT, section 3.1). "
        "By default hidden_size.",
        neutral=None,
    )
    embedding_cutoffs: tuple[int, ...] = knob(
        (),
        "With an embedding_divisor above 1: the first id of each cluster of rarer words, ascending, as "
        "objectives.lm.cutoffs (adaptive input: Baevski and Auli 2019, Transformer-XL).",
        neutral=(),
    )
    embedding_divisor: Width = knob(
        1,
        "How many times narrower word embeddings are from one cluster of embedding_cutoffs to the next. Each cluster "
        "has a projection to hidden_size, and the adaptive softmax is tied to both (div_val, 4 in Transformer-XL's "
        "large models). 1 is one table.",
        neutral=1,
    )
    sharing: Literal["none", "attention", "ffn", "all"] = knob(
        "none", "Sub-layers, with their LayerNorm, that all layers of a group share (ALBERT).", neutral="none"
    )
    sharing_groups: int = knob(1, "Number of groups of consecutive layers. Sharing is within groups.", neutral=1, ge=1)
    num_heads: int | None = knob(None, f"Heads h. By default the most that fit, each {HEAD_SIZE} wide or wider.", ge=1)
    key_size: Width | None = knob(
        None,
        "Width of the queries and keys of a head, d_k (Vaswani et al. 2017, Table 3 B). By default hidden_size / "
        "num_heads, as wide as its values.",
        neutral=None,
    )
    ffn_size: int | None = knob(
        None, "Inner width of the feed-forward sub-layers. By default 4 x hidden_size.", ge=1, le=LARGEST["ffn_size"]
    )
    norm: Literal["post", "pre"] = knob("post", "LayerNorm after (BERT) or before (GPT-2) each sub-layer.")
    activation: Activation = knob(
        "gelu",
        "Activation function: gelu is exact (BERT's first release), gelu_tanh approximate (from February 2019).",
    )
    positions: Positions = knob(
        "learned",
        "Position encoding: linear_bias is symmetric ALiBi. With sided_linear_bias half the heads attend only to the "
        "left and half only to the right. A rotary one turns queries and keys by their positions (Su et al. 2021). A "
        "relative one projects sinusoids of distances in each layer (Transformer-XL). A relative_learned one has a "
        "vector for each distance in each layer (Shaw et al. 2018).",
    )
    query_biases: Literal["shared", "layer"] = knob(
        "shared",
        "Relative positions: what is added to queries, u and v, is the same in all layers (Transformer-XL), or each "
        "layer has its own (XLNet).",
        neutral="shared",
    )
    clamp_length: Length = knob(
        0,
        "Relative positions: distances beyond this one count as this one. No limit with 0.",
        neutral=0,
    )
    memory_length: Length = knob(
        0,
        "Positions before a batch whose layer inputs each layer attends to, without gradient, where rows continue "
        "from batch to batch (Transformer-XL). Each batch counts positions of a table (learned, sinusoidal) from the "
        "start, so that memory and batch have the same ones.",
        neutral=0,
    )
    same_length: bool = knob(
        False,
        "Every position attends to itself and the memory_length before it (of an evaluation, its own) and no farther, "
        "in a batch as in memory. Transformer-XL's released code shows one less: it never reads the oldest.",
        neutral=False,
    )
    segment_relation: bool = knob(
        False,
        "Scores have a term that says of a pair of positions whether both are of the same segment, with vectors of "
        "each layer and head. What is remembered is of segment 0 (XLNet).",
        neutral=False,
    )
    query_stream: bool = knob(
        False,
        "A second stream, whose states predict at positions without knowing their tokens. All weights but one vector "
        "are those of the first (XLNet). The objective plm needs it.",
        neutral=False,
    )
    rotary_size: int | None = knob(
        None,
        "Rotary positions: dimensions of each head that are turned, an even number. By default all of them. A fixed "
        "number keeps the frequencies where heads or width vary.",
        neutral=None,
        ge=2,
    )
    direction: Direction = knob(
        "both",
        "Sides that each position attends to. For two_way there is one stack per direction, each with half of the "
        "layers, whose states are concatenated after the last layer (ELMo).",
        neutral="both",
    )
    max_positions: int = knob(
        512,
        "Rows of the position table (learned or sinusoidal). With relative_learned, distances that have a vector, 0 "
        "included, in each direction: the last one serves all beyond it.",
        ge=1,
        le=LARGEST["max_positions"],
    )
    segment_types: SegmentTypes = knob(2, "Rows of the segment embedding table. No table with 0.", neutral=0)
    languages: tuple[str, ...] = knob(
        (),
        "Languages that have an embedding, which is added at each position of a text in them (XLM). A batch must name "
        "the language of each row. None by default.",
        neutral=(),
        max_length=LARGEST["languages"],
    )
    embedding_norm: bool = knob(True, "LayerNorm on the summed embeddings. GPT and GPT-2 have none.", neutral=True)
    embedding_scale: bool = knob(
        False,
        "Word embeddings are multiplied by the square root of their width (Vaswani et al. 2017, Transformer-XL).",
        neutral=False,
    )
    attention_biases: bool = knob(
        True, "Biases of the projections of attention. Transformer-XL has none.", neutral=True
    )
    embedding_dropout: Rate = knob(0.1, "Dropout on the summed, normalised embeddings.")
    dropout: Rate = knob(0.1, "Dropout on the output of each sub-layer.")
    attention_dropout: Rate = knob(0.1, "Dropout on attention weights.")
    norm_eps: Positive = knob(1e-12, "Epsilon of LayerNorm: 1e-12 in BERT, 1e-5 in RoBERTa.")
    init_std: Positive = knob(0.02, "Standard deviation of the initial weights.")
    init: Literal["truncated_normal", "normal"] = knob(
        "truncated_normal",
        "Initialisation: truncated_normal is cut at two standard deviations (BERT), normal is fairseq's and GPT's.",
    )
    norm_init_std: float = knob(
        0.0,
        "Standard deviation of the initial weights of LayerNorm around 1, 0.02 in Transformer-XL's released code.",
        neutral=0.0,
        ge=0,
    )
    position_init_std: Positive | None = knob(
        None,
        "Standard deviation of initial learned positions, 0.01 in GPT-2's released code. By default init_std.",
        neutral=None,
    )
    residual_init: Literal["plain", "scaled"] = knob(
        "plain",
        "Initial weights of the last projection of each sub-layer, whose output is added to the stream. They are as "
        "all others (plain), or divided by the square root of the number of sub-layers (scaled: GPT-2, section 2.3).",
        neutral="plain",
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.num_heads is not None and self.hidden_size % self.num_heads:
            fits = [h for h in range(1, self.hidden_size + 1) if self.hidden_size % h == 0]
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}. "
                f"Allowed: {', '.join(map(str, fits[:8]))} ..."
            )
        size, made = self.rotary_size or self.key_width, f"hidden_size {self.hidden_size} / num_heads {self.heads} = "
        if self.rotates and (size % 2 or size > self.key_width):
            raise ValueError(
                f"rotary_size {size} must be even and at most the size of a head, "
                f"{f'{made}{self.key_width}' if self.key_size is None else f'key_size {self.key_width}'}"
            )
        # layers add vectors as wide as a head's values to queries
        wrong = f"positions {self.positions}" if self.positions in BY_DISTANCE else ""
        if self.key_width != self.head_size and (wrong := "segment_relation" if self.segment_relation else wrong):
            raise ValueError(
                f"key_size {self.key_size} is not that of the vectors that {wrong} adds to queries, "
                f"{made}{self.head_size}: leave key_size out"
            )
        return self

    @model_validator(mode="after")
    def _directions_fit(self) -> Self:
        if self.memory_length and self.direction in ("right_to_left", "two_way"):
            raise ValueError(
                f"memory_length {self.memory_length} holds text to the left, which a model with direction "
                f"{self.direction} reads last. Set direction to left_to_right or both, or memory_length to 0."
            )
        if self.same_length and (self.direction != "left_to_right" or not self.memory_length):
            raise ValueError(
                f"same_length needs direction left_to_right and a memory_length above 0, not {self.direction} and "
                f"{self.memory_length}"
            )
        if self.query_stream and self.direction != "both":
            raise ValueError(
                f"query_stream is of models that read both sides: set direction to both, not {self.direction}, or "
                "query_stream to false"
            )
        if self.num_layers % self.stacks:
            raise ValueError(f"direction two_way needs an even number of layers, not num_layers {self.num_layers}")
        if self.sharing_groups > self.depth:
            raise ValueError(
                f"{self.sharing_groups} sharing_groups cannot be made of {self.depth} layers. Lower sharing_groups."
            )
        return self

    @model_validator(mode="after")
    def _clusters_fit(self) -> Self:
        cutoffs, divisor = self.embedding_cutoffs, self.embedding_divisor
        if divisor == 1:
            return self
        if not cutoffs or any(after <= before for before, after in itertools.pairwise((0, *cutoffs))):
            raise ValueError(
                f"embedding_divisor {divisor} needs embedding_cutoffs, ascending ids above 0, not {list(cutoffs)}: set "
                "them as objectives.lm.cutoffs, or embedding_divisor to 1"
            )
        if self.embedding_size not in (None, self.hidden_size):
            raise ValueError(
                f"embedding_divisor {divisor} projects each cluster of words to hidden_size itself: set embedding_size "
                f"{self.embedding_size} to null, or embedding_divisor to 1"
            )
        if self.hidden_size < divisor ** len(cutoffs):
            raise ValueError(
                f"embedding_divisor {divisor} leaves nothing of hidden_size {self.hidden_size} for the last of "
                f"{len(cutoffs) + 1} clusters: lower it, or leave out some of embedding_cutoffs"
            )
        return self

    def check_length(self, length: int) -> None:
        """See `Backbone.check_length`; a table of distances needs one for the farthest position in memory."""
        super().check_length(length)
        farthest = length + self.memory_length
        if self.clamp_length:
            farthest = min(farthest, self.clamp_length + 1)
        if self.positions == "relative_learned" and farthest > self.max_positions:
            memory = f" and model.memory_length {self.memory_length}" if self.memory_length else ""
            raise ValueError(
                f"format.sequence_length {length}{memory} need a vector for {farthest} distances, but "
                f"model.max_positions is {self.max_positions}: raise it, or set model.clamp_length to at most "
                f"{self.max_positions - 1}"
            )

    @once
    def resolved(self) -> Self:
        """The settings with derived values filled in, and values without effect set to their neutral one.

        max_positions becomes 0 without a table of positions or distances; sharing becomes none if every group has one
        layer.
        """
        alone, by_distance = self.sharing == "none" or self.sharing_groups == self.depth, self.positions in BY_DISTANCE
        has_own_std = self.positions == "learned" and self.position_init_std != self.init_std
        return self.model_copy(
            update={
                "embedding_size": None if self.embedding_size == self.hidden_size else self.embedding_size,
                "embedding_cutoffs": () if self.embedding_divisor == 1 else self.embedding_cutoffs,
                "sharing": "none" if alone else self.sharing,
                "sharing_groups": 1 if alone else self.sharing_groups,
                "num_heads": self.heads,
                "key_size": None if self.key_size == self.head_size else self.key_size,
                "ffn_size": self.inner_size,
                "max_positions": self.max_positions if self.positions in (*TABLED, "relative_learned") else 0,
                "query_biases": self.query_biases if by_distance else "shared",
                "clamp_length": self.clamp_length if by_distance else 0,
                "position_init_std": self.position_init_std if has_own_std else None,
                "rotary_size": (self.rotary_size or self.key_width) if self.rotates else None,
            }
        )

    @property
    def rotates(self) -> bool:
        """Whether positions rotate queries and keys."""
        return issubclass(POSITIONS[self.positions], Rotary)

    @property
    def heads(self) -> int:
        """Attention heads of a layer."""
        most = max(1, self.hidden_size // HEAD_SIZE)
        return self.num_heads or max(h for h in range(1, most + 1) if self.hidden_size % h == 0)

    @property
    def head_size(self) -> int:
        """Width of the values of a head."""
        return self.hidden_size // self.heads

    @property
    def key_width(self) -> int:
        """Width of the queries and keys of a head."""
        return self.key_size or self.head_size

    @property
    def inner_size(self) -> int:
        """Inner width of a feed-forward sub-layer."""
        return self.ffn_size or 4 * self.hidden_size

    @property
    def dropouts(self) -> tuple[str, ...]:
        """Those of embeddings, layers and attention."""
        return ("embedding_dropout", "dropout", "attention_dropout")

    @property
    def width(self) -> int:
        """See `Backbone.width`."""
        return self.stacks * self.hidden_size

    def size(self, vocab_size: int) -> Size:
        """See `Backbone.size`."""
        return replace(super().size(vocab_size), divisor=self.embedding_divisor)

    @property
    def longest(self) -> int:
        """Rows of the position table; 0 without one."""
        return self.max_positions if self.positions in TABLED else 0

    @property
    def supports(self) -> frozenset[str]:
        """See `Backbone.supports`.

        Segment ids are read by every model: one with no segment table, or with one row, treats all segments alike
        (RoBERTa).
        """
        both = self.direction == "both"
        optional = {
            FIRST_SEES: self.direction != "left_to_right",
            ONE_SIDE: self.direction in ("both", "two_way"),
            WIDE_TABLE: self.table_width == self.hidden_size,
            QUERY_STREAM: self.query_stream,
            BOTH_WAYS: both,
            REUSE: both,
            LANGUAGES: bool(self.languages),
        }
        has = (name for name, holds in optional.items() if holds)
        return frozenset({f"direction {self.direction}", SEGMENTS, WORD_TABLE, *has})

    @property
    def described(self) -> str:
        """Layers, heads, width, positions and memory."""
        memory = f", memory of {self.memory_length}" if self.memory_length else ""
        shape = f"{self.num_layers} layers of {self.heads} heads, {self.hidden_size} wide"
        return f"{shape}, positions `{self.positions}`{memory}"

    def check_warm_start(self, depths: Sequence[int]) -> None:
        """See `Backbone.check_warm_start`."""
        chain = (*depths, self.num_layers)
        if any(deeper <= shallower for shallower, deeper in itertools.pairwise((0, *chain))):
            raise ValueError(
                f"training.warm_start {list(depths)} must be ascending depths below model.num_layers {self.num_layers}"
            )
        if chain[0] < self.sharing_groups:
            raise ValueError(
                f"training.warm_start: {self.sharing_groups} sharing_groups need at least {self.sharing_groups} "
                f"layers, not {chain[0]}"
            )
        if depths and self.stacks > 1:
            raise ValueError("training.warm_start needs a single stack of layers: model.direction cannot be two_way")

    @property
    def layers_in_all(self) -> int:
        """Layers of all stacks."""
        return self.num_layers

    def owners(self, layer: int) -> dict[str, int]:
        """For each kind of sub-layer, the first layer of a stack that uses that of ``layer``: itself if not shared.

        Groups consist of consecutive layers: layer i of L belongs to group ``i * G // L`` of G (ALBERT's released
        code). A sub-layer shares its LayerNorm too, which the paper leaves open if only one kind is shared.
        """
        group = layer * self.sharing_groups // self.depth
        first = -(-group * self.depth // self.sharing_groups)
        return {kind: first if self.sharing in (kind, "all") else layer for kind in self.sub_layers}

    @property
    def total_heads(self) -> int:
        """Attention heads of all layers, those that layers share once."""
        return self.stacks * self.heads * len({self.owners(layer)["attention"] for layer in range(self.depth)})

    def shared_across(self, count: int) -> bool:
        """See `Backbone.shared_across`."""
        return any(first < count for layer in range(count, self.depth) for first in self.owners(layer).values())

    def flops_per_sequence(self, length: int, queries: float = 0.0, memory: int | None = None) -> float:
        """See `Backbone.flops_per_sequence`. A memory is counted as full.

        The projection of distances, one for all sequences of a batch, is left out.
        """
        d, f, k = self.hidden_size, self.inner_size, self.heads * self.key_width
        memory = self.memory_length if memory is None else memory
        attended = length + memory
        # projections of queries, keys, values and output, feed-forward; scores and mixing
        per_token = 2 * (2 * d * k + 2 * d * d + 2 * d * f) + 2 * attended * (k + d)
        if self.positions in BY_DISTANCE:
            ahead = {"left_to_right": 0, "two_way": 0.5}.get(self.direction, 1)  # of two stacks, one looks ahead
            per_token += 2 * d * (attended + ahead * (length - 1))
        per_token += 4 * d * self.segment_relation
        projected = 0 if self.table_width == d else 2 * self.table_width * d
        if self.embedding_divisor > 1:
            projected = 2 * d * sum(d // self.embedding_divisor**i for i in range(len(self.embedding_cutoffs) + 1))
        remembered = 2 * memory * d * (k + d)  # keys and values
        per_query = self.num_layers * (per_token - 2 * d * (k + d)) + projected  # it has no key and no value
        return float(
            length * (self.num_layers * per_token + projected) + self.num_layers * remembered + queries * per_query
        )
