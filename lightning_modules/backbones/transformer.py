"""The composable transformer encoder: BERT's, RoBERTa's, and what lies between and beyond.

Vaswani et al. (2017) section 3.1 as varied by Devlin et al. (2019) section 3: word, position and segment
embeddings are summed, normalised and dropped out; layers of attention and feed-forward follow. Lan et al. (2020)
section 3.1 make the embeddings narrower than the stream, and let layers share their parameters.
"""

from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from lightning_modules.batch import Direction, Encoded, Example, Size
from lightning_modules.config import Settings, knob, once
from lightning_modules.layers.activations import ACTIVATIONS
from lightning_modules.layers.attention import MultiHeadAttention, allowed, score_bias
from lightning_modules.layers.dropout import Dropout
from lightning_modules.layers.positions import alibi_slopes, linear_bias, sided_linear_bias, sided_slopes, sinusoids

BIASES = {
    "linear_bias": (linear_bias, lambda heads, direction: alibi_slopes(heads)),
    "sided_linear_bias": (sided_linear_bias, sided_slopes),
}

HEAD_SIZE = 64  # width of a head where num_heads is not given: that of every BERT and GPT


class Transformer(Settings):
    """Settings of the encoder. Defaults are those of BERT-base (Devlin et al. 2019, section 3)."""

    num_layers: int = knob(12, "Number of blocks L, of both stacks together where there are two.", ge=1)
    hidden_size: int = knob(768, "Width d of the stream.", ge=1)
    embedding_size: int | None = knob(
        None,
        "Width e of the embedding tables; below hidden_size they are projected up (ALBERT, section 3.1). "
        "By default hidden_size.",
        neutral=None,
        ge=1,
    )
    sharing: Literal["none", "attention", "ffn", "all"] = knob(
        "none", "Which sub-layers, with their LayerNorm, all layers of a group share (ALBERT).", neutral="none"
    )
    sharing_groups: int = knob(
        1, "Groups of consecutive layers that share parameters among themselves.", neutral=1, ge=1
    )
    num_heads: int | None = knob(None, f"Attention heads h; by default one for each {HEAD_SIZE} of hidden_size.", ge=1)
    ffn_size: int | None = knob(None, "Inner width of the feed-forward layers; by default 4 x hidden_size.", ge=1)
    norm: Literal["post", "pre"] = knob("post", "LayerNorm after (BERT) or before (GPT-2) each sub-layer.")
    activation: Literal["gelu", "gelu_tanh", "relu"] = knob(
        "gelu", "Non-linearity; gelu is the exact form of BERT's first release, gelu_tanh that since February 2019."
    )
    positions: Literal["learned", "sinusoidal", "linear_bias", "sided_linear_bias", "none"] = knob(
        "learned",
        "How order is known; linear_bias is ALiBi, symmetric; sided_linear_bias lets half the heads look "
        "left and half right.",
    )
    direction: Direction = knob(
        "both",
        "Which way every position looks; two_way is one stack each way, each of half of the layers, whose states are "
        "joined above the last one (ELMo).",
        neutral="both",
    )
    max_positions: int = knob(512, "Rows of the position table (learned and sinusoidal).", ge=1)
    segment_types: int = knob(2, "Rows of the segment embedding table; 0 removes the table.", neutral=0, ge=0)
    embedding_dropout: float = knob(0.1, "Dropout on the summed, normalised embeddings.", ge=0, lt=1)
    dropout: float = knob(0.1, "Dropout on the output of each sub-layer.", ge=0, lt=1)
    attention_dropout: float = knob(0.1, "Dropout on attention weights.", ge=0, lt=1)
    norm_eps: float = knob(1e-12, "Epsilon of LayerNorm; 1e-12 in BERT, 1e-5 in RoBERTa.", gt=0)
    init_std: float = knob(0.02, "Standard deviation of the initial weights.", gt=0)
    init: Literal["truncated_normal", "normal"] = knob(
        "truncated_normal", "truncated_normal is cut at two standard deviations (BERT); normal is fairseq's."
    )

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.num_heads is not None and self.hidden_size % self.num_heads:
            fits = [h for h in range(1, self.hidden_size + 1) if self.hidden_size % h == 0]
            raise ValueError(
                f"hidden_size {self.hidden_size} does not divide into {self.num_heads} heads; "
                f"num_heads may be {', '.join(map(str, fits[:8]))} ..."
            )
        if self.num_layers % self.stacks:
            raise ValueError(f"direction two_way divides the layers in two: num_layers {self.num_layers} must be even")
        if self.sharing_groups > self.depth:
            raise ValueError(f"{self.sharing_groups} sharing_groups cannot be made of {self.depth} layers")
        return self

    @once
    def resolved(self) -> Self:
        """Derived values filled in, and values that do nothing at their neutral one.

        max_positions drops to 0 where no table has that many rows; sharing to none where no layer has a partner.
        """
        alone = self.sharing == "none" or self.sharing_groups == self.depth
        return self.model_copy(
            update={
                "embedding_size": None if self.embedding_size == self.hidden_size else self.embedding_size,
                "sharing": "none" if alone else self.sharing,
                "sharing_groups": 1 if alone else self.sharing_groups,
                "num_heads": self.num_heads or _default_heads(self.hidden_size),
                "ffn_size": self.ffn_size or 4 * self.hidden_size,
                "max_positions": self.max_positions if self.positions in ("learned", "sinusoidal") else 0,
            }
        )

    @property
    def stacks(self) -> int:
        """Stacks of layers over the embeddings: one, or one each way."""
        return 2 if self.direction == "two_way" else 1

    @property
    def depth(self) -> int:
        """Layers that a state has passed: those of one stack."""
        return self.num_layers // self.stacks

    @property
    def width(self) -> int:
        """Width of the states that heads read: that of the stream, or of two side by side."""
        return self.stacks * self.hidden_size

    def size(self, vocab_size: int) -> Size:
        """The widths heads are built for."""
        return Size(self.width, self.embedding_size or self.hidden_size, vocab_size)

    def owners(self, layer: int) -> dict[str, int]:
        """For each kind of sub-layer, the first layer that uses the one of ``layer``: layer itself if not shared.

        Groups are of consecutive layers, and layer i of L belongs to group ``i * G // L`` of G (ALBERT's released
        code). A sub-layer takes its LayerNorm along, which the paper leaves open where only one kind is shared.
        """
        group = layer * self.sharing_groups // self.num_layers
        first = -(-group * self.num_layers // self.sharing_groups)
        return {kind: first if self.sharing in (kind, "all") else layer for kind in ("attention", "ffn")}

    def build(self, vocab_size: int) -> nn.Module:
        """The encoder, initialised from torch's current generator."""
        if self.direction == "two_way":
            from lightning_modules.backbones.two_way import TwoWayEncoder  # which is made of two of these

            return TwoWayEncoder(self.resolved(), vocab_size)
        return TransformerEncoder(self.resolved(), vocab_size)

    def flops_per_sequence(self, length: int) -> float:
        """FLOPs of the matrix products of one forward pass over one sequence; elementwise work is not counted."""
        d, f = self.hidden_size, self.ffn_size or 4 * self.hidden_size
        e = None if self.embedding_size == d else self.embedding_size
        per_token = 2 * (4 * d * d + 2 * d * f) + 4 * length * d  # projections, feed-forward; scores and mixing
        projected = 0 if e is None else 2 * e * d
        return float(length * (self.num_layers * per_token + projected))


def _default_heads(hidden_size: int) -> int:
    wanted = max(1, hidden_size // HEAD_SIZE)
    return max(h for h in range(1, wanted + 1) if hidden_size % h == 0)


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout; then up to the stream's width where theirs is smaller.

    Tables, LayerNorm and dropout are of width e; the projection has a bias and nothing after it (ALBERT's released
    code, ``embedding_hidden_mapping_in``).
    """

    def __init__(self, settings: Transformer, vocab_size: int) -> None:
        super().__init__()
        d = settings.hidden_size
        e = settings.embedding_size or d
        self.word = nn.Embedding(vocab_size, e)
        self.tables = nn.ModuleDict()
        if settings.segment_types:
            self.tables["segment"] = nn.Embedding(settings.segment_types, e)
        self.position = nn.Embedding(settings.max_positions, e) if settings.positions == "learned" else None
        fixed = sinusoids(settings.max_positions, e) if settings.positions == "sinusoidal" else None
        self.register_buffer("fixed", fixed, persistent=False)
        self.norm = nn.LayerNorm(e, eps=settings.norm_eps)
        self.dropout = Dropout(settings.embedding_dropout)
        self.projection = nn.Identity() if e == d else nn.Linear(e, d)

    def forward(self, example: Example) -> Float[Tensor, "b t d"]:
        tokens = example.inputs
        x = self.word(tokens.ids)
        for name, table in self.tables.items():
            # Without numbers for this table its first row is used throughout, as in BERT; a single row serves all
            # segments, as in RoBERTa's released checkpoints.
            numbered = name in tokens.tables and table.num_embeddings > 1
            x = x + (table(tokens.tables[name]) if numbered else table.weight[0])
        rows = self.fixed if self.position is None else self.position.weight
        if rows is not None:
            x = x + self._placed(rows, tokens.positions, x.shape[1])
        return self.projection(self.dropout(self.norm(x)))

    @staticmethod
    def _placed(rows: Float[Tensor, "p e"], positions: Int[Tensor, "b t"] | None, length: int) -> Tensor:
        if length > rows.shape[0]:
            raise ValueError(f"sequences of {length} positions, but model.max_positions is {rows.shape[0]}")
        return rows[:length] if positions is None else rows[positions]


class FeedForward(nn.Module):
    """Two linear layers and the non-linearity between them."""

    def __init__(self, settings: Transformer) -> None:
        super().__init__()
        self.expand = nn.Linear(settings.hidden_size, settings.ffn_size)
        self.contract = nn.Linear(settings.ffn_size, settings.hidden_size)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self.contract(self.activation(self.expand(x)))


class SubLayer(nn.Module):
    """A function f of the stream with its dropout, residual connection and LayerNorm.

    ::

    post:  norm(x + drop(f(x)))
    pre:   x + drop(f(norm(x)))
    """

    def __init__(self, function: nn.Module, settings: Transformer) -> None:
        super().__init__()
        self.function = function
        self.norm = nn.LayerNorm(settings.hidden_size, eps=settings.norm_eps)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"

    def forward(self, x: Float[Tensor, "b t d"], *rest: Any) -> Float[Tensor, "b t d"]:
        if self.pre:
            return x + self.dropout(self.function(self.norm(x), *rest))
        return self.norm(x + self.dropout(self.function(x, *rest)))


def _sub_layer(kind: str, settings: Transformer) -> SubLayer:
    if kind == "ffn":
        return SubLayer(FeedForward(settings), settings)
    return SubLayer(MultiHeadAttention(settings.hidden_size, settings.num_heads, settings.attention_dropout), settings)


class TransformerEncoder(nn.Module):
    """The encoder of `Transformer`'s settings; every layer's output is returned.

    A layer is attention, then feed-forward. ``blocks[i]`` holds the sub-layers that layer i is the first to use;
    ``owners[i]`` says for each kind in which block that of layer i is found.
    """

    supports: ClassVar[frozenset[str]] = frozenset({"full", "causal", "pairs"})

    def __init__(self, settings: Transformer, vocab_size: int) -> None:
        super().__init__()
        self.direction = settings.direction
        self.embeddings = Embeddings(settings, vocab_size)
        self.owners = [settings.owners(layer) for layer in range(settings.num_layers)]
        self.blocks = nn.ModuleList(
            nn.ModuleDict({kind: _sub_layer(kind, settings) for kind, owner in owners.items() if owner == layer})
            for layer, owners in enumerate(self.owners)
        )
        self.final_norm = nn.LayerNorm(settings.hidden_size, settings.norm_eps) if settings.norm == "pre" else None
        self.bias, slopes = BIASES.get(settings.positions, (None, None))
        self.register_buffer("slopes", slopes and slopes(settings.num_heads, settings.direction), persistent=False)
        self.apply(lambda module: _initialise(module, settings.init, settings.init_std))

    def forward(self, example: Example, carry: Any = None) -> Encoded:
        return self.above(self.embeddings(example), example)

    def above(self, x: Float[Tensor, "b t d"], example: Example) -> Encoded:
        """The layers over the output of the embeddings."""
        added = self._added(example, x)
        layers = [x]
        for owners in self.owners:
            x = self.blocks[owners["attention"]]["attention"](x, added)
            x = self.blocks[owners["ffn"]]["ffn"](x)
            layers.append(x)
        last = x if self.final_norm is None else self.final_norm(x)
        return Encoded(layers=layers, last=last, unembed=self.unembed)

    def _added(self, example: Example, x: Float[Tensor, "b t d"]) -> Float[Tensor, "#b #h t s"] | None:
        """What every layer adds to its scores: computed once, in the precision attention will run in."""
        length = x.shape[1]
        bias = None
        if self.bias is not None:
            positions = example.inputs.positions
            if positions is None:
                positions = torch.arange(length, device=x.device)[None]
            bias = self.bias(positions, self.slopes)
        kind = x.device.type
        is_cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # meta tensors have none
        dtype = torch.get_autocast_dtype(kind) if is_cast else x.dtype
        return score_bias(allowed(example.visible.toward(self.direction), length, x.device), bias, dtype)

    def unembed(self, x: Float[Tensor, "n e"]) -> Float[Tensor, "n v"]:
        """Logits by the tied word table (Press and Wolf 2017; BERT's output layer without its bias)."""
        return F.linear(x, self.embeddings.word.weight)

    def depth(self, name: str) -> int:
        """How deep a parameter lies: 0 for embeddings, i + 1 for the first layer i that uses it, L + 1 above."""
        if name.startswith("embeddings."):
            return 0
        return int(name.split(".")[1]) + 1 if name.startswith("blocks.") else len(self.blocks) + 1


def _initialise(module: nn.Module, kind: str, std: float) -> None:
    """Weights normal with mean 0, biases 0, LayerNorm 1 and 0 (BERT's released code)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        if kind == "normal":
            nn.init.normal_(module.weight, std=std)
        else:
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
