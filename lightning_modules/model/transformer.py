"""The transformer of BERT, RoBERTa and ALBERT, of GPT, Transformer-XL and XLNet, and of their variants.

Vaswani et al. (2017) section 3.1 as varied by Devlin et al. (2019) section 3: word, position and segment
embeddings are summed, followed by LayerNorm, dropout, and layers of attention and feed-forward. Lan et al. (2020)
section 3.1 make the embeddings narrower than the stream and let layers share parameters.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_modules.batch import Direction, Encoded, Example, Queries, Tokens, Unsupported
from lightning_modules.config import knob
from lightning_modules.model.attention import (
    RELATIONS,
    AttentionContext,
    CrossAttention,
    LearnedRelation,
    MultiHeadAttention,
    QueryBiases,
    SegmentRelation,
    Source,
    attention_bias,
)
from lightning_modules.model.cache import KVCache, Memory, NoCache, Past, SegmentMemory, Update
from lightning_modules.model.embeddings import ClusteredTable, Embeddings
from lightning_modules.model.layers import ACTIVATIONS, Dropout, gather_rows, gather_states, scatter_states
from lightning_modules.model.positions import BY_DISTANCE, POSITIONS, Distances, distance_sinusoids
from lightning_modules.model.settings import BackboneModule, StackSettings


class FeedForward(nn.Module):
    """Two linear layers and the non-linearity between them."""

    def __init__(self, settings: StackSettings) -> None:
        super().__init__()
        self.expand = nn.Linear(settings.hidden_size, settings.inner_size)
        self.contract = nn.Linear(settings.inner_size, settings.hidden_size)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self.contract(self.activation(self.expand(x)))


class SubLayer(nn.Module):
    """A function f of the stream with dropout, residual connection and LayerNorm: ``norm(x + drop(f(x)))``."""

    def __init__(self, function: nn.Module, settings: StackSettings) -> None:
        super().__init__()
        self.function = function
        self.norm = nn.LayerNorm(settings.hidden_size, eps=settings.norm_eps)
        self.dropout = Dropout(settings.dropout)

    def forward(self, x: Float[Tensor, "b t d"], *inputs: Any, **streams: Tensor | None) -> Float[Tensor, "b m d"]:
        """The stream after this sub-layer; ``streams`` are ``attended`` and ``at`` of `MultiHeadAttention`."""
        change = self.dropout(self.function(x, *inputs, **streams))
        return self.norm(gather_states(x, streams.get("at")) + change)


class PreNormSubLayer(SubLayer):
    """A sub-layer that normalises what f reads: ``x + drop(f(norm(x)))`` (GPT-2)."""

    def forward(self, x: Float[Tensor, "b t d"], *inputs: Any, **streams: Tensor | None) -> Float[Tensor, "b m d"]:
        """See `SubLayer.forward`."""
        if (attended := streams.get("attended")) is not None:
            streams["attended"] = self.norm(attended)
        change = self.dropout(self.function(self.norm(x), *inputs, **streams))
        return gather_states(x, streams.get("at")) + change


def _apply(part: nn.Module, *inputs: Any, **streams: Any) -> Tensor:
    return part(*inputs, **streams)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    """`_apply`, compiled for each kind of sub-layer and of sizes; weights are inputs of what is compiled."""
    torch._dynamo.config.recompile_limit = 64  # a process of many runs meets more than torch keeps by default
    return torch.compile(_apply)


def _made(kind: str, settings: StackSettings) -> SubLayer:
    """A sub-layer of a kind in `StackSettings.sub_layers`."""
    sub_layer = PreNormSubLayer if settings.norm == "pre" else SubLayer
    if kind == "ffn":
        return sub_layer(FeedForward(settings), settings)
    form: dict[str, Any] = {"biases": settings.attention_biases, "key_size": settings.key_size}
    if kind == "attention":
        form["relation"] = RELATIONS[settings.positions](settings) if settings.positions in BY_DISTANCE else None
        form["segments"] = SegmentRelation(settings) if settings.segment_relation else None
    attention = CrossAttention if kind == "cross" else MultiHeadAttention
    return sub_layer(attention(settings.hidden_size, settings.heads, settings.attention_dropout, **form), settings)


@dataclass(frozen=True, eq=False)
class QueryStream:
    """A second stream of states, which predict tokens that they do not know (Yang et al. 2019, section 2.3).

    Its rows are behind those of the positions in every layer. Queries, feed-forward and norms are those of all rows.
    Keys and values are of the positions alone.

    Attributes:
        length: Positions of a row of the batch; the queries of the row follow.
    """

    queries: Queries
    length: int

    @property
    def column(self) -> Int[Tensor, "b m"]:
        """The position in its row that each query asks about; 0 where there is none."""
        return self.queries.where.clamp(min=0) % self.length

    def append(self, of_positions: Shaped[Tensor, "#b t"]) -> Shaped[Tensor, "b r"]:
        """What positions have, and behind it what queries have, who have that of their position."""
        own = of_positions.expand(len(self.column), -1)
        return torch.cat([own, own.gather(1, self.column)], 1)

    def mask(self, mask: Bool[Tensor, "#b #h t s"] | None, size: int) -> Bool[Tensor, "#b #h r s"]:
        """What rows may attend to: ``mask`` says it of positions, and of those before the batch for queries too."""
        visible = self.queries.visible[:, None]
        b, _, _, t = visible.shape
        if mask is None:
            mask = torch.ones(1, 1, 1, size, dtype=torch.bool, device=visible.device).expand(-1, -1, t, -1)
        seen = torch.cat([visible.new_ones(*visible.shape[:3], size - t), visible], 3)
        return torch.cat([mask.expand(b, -1, -1, -1), gather_rows(mask, self.queries.where) & seen], 2)

    def opened(self, context: AttentionContext) -> AttentionContext:
        """The context with every query that sees nothing marked; that it may look anywhere has no effect."""
        assert context.bias is not None
        hidden = (context.bias == -torch.inf).all(3, keepdim=True)
        hidden[:, :, : self.length] = False
        return replace(context, bias=context.bias.masked_fill(hidden, 0.0), fully_masked=hidden)

    def rows(self, positions: Int[Tensor, "b k"]) -> Int[Tensor, "b r"]:
        """The flat rows of some flat positions, and of all queries."""
        (b, m), each = self.queries.where.shape, self.length
        own = torch.where(positions < 0, 0, positions)
        own = own // each * (each + m) + own % each
        row = torch.arange(b, device=positions.device)[:, None] * (each + m)
        return torch.cat([own, row + each + torch.arange(m, device=positions.device)], 1)


class TransformerEncoder(BackboneModule):
    """Embeddings and the layers over them; every layer's output is returned.

    A layer is attention, then, in a decoder, attention to a source, then feed-forward. ``blocks[i]`` holds the
    sub-layers that layer i is the first to use; ``owners[i]`` maps each kind to the block that holds that of layer i.

    Attributes:
        memory_length: Positions of a memory that `begin` makes. This and the next two are those of the settings, and an
            evaluation may change them: no weight depends on them.
        same_length: Whether all positions see equally far back: as far as a memory reaches, or ``memory_length``.
        clamp_length: The largest distance; 0 means none.
        recompute: Whether training keeps only the input of each layer and computes the rest of it again in the backward
            pass, with the same random numbers (Chen et al. 2016, "Training deep nets with sublinear memory cost").
        compiled: Whether training compiles sub-layers, one of each kind for all layers.
    """

    recompute: bool = False
    compiled: bool = False

    def __init__(self, settings: StackSettings, vocab_size: int) -> None:
        super().__init__()
        self.direction: Direction = settings.direction
        self.supports, self.carries = settings.supports, settings.direction == "left_to_right"
        self.memory_length, self.same_length = settings.memory_length, settings.same_length
        self.clamp_length, self.width = settings.clamp_length, settings.hidden_size
        cutoffs, divisor = settings.embedding_cutoffs, settings.embedding_divisor
        self.embeddings = Embeddings(
            ClusteredTable(vocab_size, settings.table_width, cutoffs, divisor)
            if divisor > 1
            else nn.Embedding(vocab_size, settings.table_width),
            settings.hidden_size,
            segment_types=settings.segment_types,
            languages=len(settings.languages),
            positions=settings.positions,
            max_positions=settings.max_positions,
            scaled=settings.embedding_scale,
            norm_eps=settings.norm_eps if settings.embedding_norm else None,
            dropout=settings.embedding_dropout,
        )
        self.owners = [settings.owners(layer) for layer in range(settings.num_layers)]
        self.blocks = nn.ModuleList(
            nn.ModuleDict({kind: _made(kind, settings) for kind, owner in owners.items() if owner == layer})
            for layer, owners in enumerate(self.owners)
        )
        pre = settings.norm == "pre"
        self.final_norm = nn.LayerNorm(settings.hidden_size, settings.norm_eps) if pre else nn.Identity()
        self.positions = POSITIONS[settings.positions](settings)
        self.by_distance, self.by_segment = settings.positions in BY_DISTANCE, settings.segment_relation
        self.sinusoid_dropout = Dropout(settings.embedding_dropout) if settings.positions == "relative" else None
        shared = self.by_distance and settings.query_biases == "shared"
        self.query_biases = QueryBiases(settings) if shared else None
        self.query = nn.Parameter(torch.empty(settings.table_width)) if settings.query_stream else None
        self.apply(lambda module: initialise(module, settings.init, settings.init_std))
        if self.query is not None:
            _draw(self.query, settings.init, settings.init_std)
        self._rescale(settings)

    @torch.no_grad()
    def _rescale(self, settings: StackSettings) -> None:
        """Gives some initial weights another standard deviation: the same draws, multiplied; new ones of LayerNorm."""
        if settings.position_init_std is not None and self.embeddings.position is not None:
            self.embeddings.position.weight.mul_(settings.position_init_std / settings.init_std)
        if settings.residual_init == "scaled":
            for name, weight in self.blocks.named_parameters():
                if name.endswith(("function.output.weight", "function.contract.weight")):
                    weight.div_(math.sqrt(2 * settings.num_layers))
        if settings.norm_init_std:
            for module in self.modules():
                if isinstance(module, nn.LayerNorm):
                    nn.init.normal_(module.weight, 1.0, settings.norm_init_std)

    def begin(
        self, rows: int, device: torch.device | str | None = None, memory_length: int | None = None
    ) -> Memory | None:
        """See `BackboneModule.begin`: an empty memory of ``memory_length`` positions."""
        length = self.memory_length if memory_length is None else memory_length
        if not length:
            return None
        shape, like = (rows, length), self.table
        layers = tuple(like.new_zeros(*shape, self.width, device=device) for _ in self.owners)
        return Memory(layers, torch.zeros(shape, dtype=torch.bool, device=layers[0].device))

    def forward(self, example: Example, carry: Memory | Past | tuple[()] | None = None) -> Encoded:
        """Encodes a batch, by itself or as what follows a carry; see `Encoded.carry`.

        A memory (`begin`) is as long as it was begun, and tables of positions count each batch from its own start. The
        carry of a text (`BEGIN`) holds all of it, and positions are counted from the start of the text.
        """
        example.check_readable(self.supports)
        example, cache = self.cached(example, carry)
        layers, last, queries = self.encode(self.embeddings(example.inputs), example, cache)
        words = {"table": self.table, "clusters": self.clusters}
        return Encoded(layers=layers, last=last, carry=cache.carry(), queries=queries, **words)

    def cached(self, example: Example, carry: Memory | Past | tuple[()] | None) -> tuple[Example, NoCache]:
        """The cache that a batch is read with; a text that goes on has its positions from there."""
        if carry is None:
            return example, NoCache(example, self.direction)
        if isinstance(carry, Memory):
            return example, SegmentMemory(carry, example, len(self.owners), self.direction)
        if not self.carries:
            raise Unsupported(f"a model with direction '{self.direction}' has no carry: what it read changes with more")
        cache = KVCache(carry, example, len(self.owners))
        return replace(example, inputs=replace(example.inputs, positions=cache.positions)), cache

    def encode(
        self, x: Float[Tensor, "b t d"], example: Example, cache: NoCache, source: Source | None = None
    ) -> tuple[list[Tensor], Float[Tensor, "b t d"], Float[Tensor, "b m d"] | None]:
        """The layers over the output of the embeddings, the last states, and those of queries.

        Where not all of the last states are read, the last layer is computed at those that are and is not in the list.
        Of the other positions it needs keys and values, which spares most of its work.
        """
        length, layers, output = x.shape[1], [x], example.output_positions
        stream = None if example.queries is None else QueryStream(example.queries, length)
        context = self._context(example, x, cache, stream)
        if stream is not None:
            output = None if output is None else stream.rows(output)
            x = torch.cat([x, self._query_states(example.inputs, stream)], 1)
        recompute = self.recompute and self.training and torch.is_grad_enabled()
        run = functools.partial(checkpoint, self._layer, use_reentrant=False) if recompute else self._layer
        for number, owners in enumerate(self.owners):
            at = output if number == len(self.owners) - 1 else None
            x = run(owners, x, context, cache.update_of(number), cache.attended_states(x), at, source)
            layers += [x[:, :length]] if at is None else []
        last, queries = self.final_norm(x), None
        if stream is not None:
            count = stream.column.shape[1]
            last, queries = last.split([last.shape[1] - count, count], 1)
        if example.output_positions is not None:
            last = scatter_states(last, example.output_positions, length)
        return layers, last, queries

    def _layer(
        self,
        owners: dict[str, int],
        x: Float[Tensor, "b r d"],
        context: AttentionContext,
        update: Update | None,
        attended: Float[Tensor, "b s d"] | None,
        at: Int[Tensor, "b m"] | None,
        source: Source | None,
    ) -> Float[Tensor, "b _ d"]:
        """Attention, to a source too in a decoder, and feed-forward."""
        apply = _compiled() if self.compiled and self.training else _apply
        parts = {kind: self.blocks.get_submodule(f"{owner}.{kind}") for kind, owner in owners.items()}
        x = apply(parts["attention"], x, context, update, attended=attended, at=at)
        if source is not None:
            x = apply(parts["cross"], x, source)
        return apply(parts["ffn"], x)

    def _query_states(self, tokens: Tokens, stream: QueryStream) -> Float[Tensor, "b m d"]:
        """The first states of queries: as if one word, which is learned, stood at each of their positions."""
        assert self.query is not None
        tables = {name: ids.gather(1, stream.column) for name, ids in tokens.tables.items()}
        positions = stream.column if tokens.positions is None else tokens.positions.gather(1, stream.column)
        return self.embeddings.placed(self.query.expand(*stream.column.shape, -1), tables, positions)

    def _context(
        self, example: Example, x: Float[Tensor, "b t d"], cache: NoCache, stream: QueryStream | None
    ) -> AttentionContext:
        """What every layer shares, computed once in the precision that attention runs in."""
        positions, attended, mask = cache.positions, cache.attended, cache.mask()
        distances = sinusoids = segment_diff = None
        if self.same_length:
            reach = self.memory_length if cache.reach is None else cache.reach
            near = (positions[:, :, None] - attended[:, None] <= reach)[:, None]
            mask = near if mask is None else mask & near
        if self.by_distance:
            distances = Distances.between(
                positions, attended, self.direction, self.clamp_length, consecutive=cache.consecutive
            )
        if self.by_segment:  # what is remembered is of segment 0
            own = example.inputs.tables.get("segment", torch.zeros_like(example.inputs.ids))
            every = torch.cat([own.new_zeros(len(own), attended.shape[1] - own.shape[1]), own], 1)
            own = own if stream is None else stream.append(own)
            segment_diff = (own[:, :, None] != every[:, None])[:, None]
        if stream is not None:
            positions, mask = stream.append(positions), stream.mask(mask, attended.shape[1])
            distances = distances and distances.with_queries(stream.queries.where, stream.length)
        if distances is not None and self.sinusoid_dropout is not None:
            sinusoids = self.sinusoid_dropout(distance_sinusoids(distances.each, x.shape[2], x.dtype))
        kind = x.device.type
        is_cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # meta tensors have none
        dtype = torch.get_autocast_dtype(kind) if is_cast else x.dtype
        bias, rope_q = self.positions.bias(positions, attended), self.positions.turn(positions, dtype)
        context = AttentionContext(
            bias=attention_bias(mask, bias, dtype),
            rope_q=rope_q,
            rope_k=rope_q if cache.keyed is positions else self.positions.turn(cache.keyed, dtype),
            distances=distances,
            sinusoids=sinusoids,
            query_biases=self.query_biases,
            segment_diff=segment_diff,
        )
        return context if stream is None else stream.opened(context)

    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, i + 1 for the first layer i that uses it, L + 1 above."""
        if name.startswith("embeddings.") or name == "query":
            return 0
        if name.startswith(("query_biases.", "positions.")):
            return 1
        return int(name.split(".")[1]) + 1 if name.startswith("blocks.") else len(self.blocks) + 1


def initialise(module: nn.Module, kind: str, std: float) -> None:
    """Draws a module's own weights with mean 0; biases 0, LayerNorm 1 and 0 (BERT's released code)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        _draw(module.weight, kind, std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, (QueryBiases, SegmentRelation)):
        for weight in module.parameters(recurse=False):
            _draw(weight, kind, std)
    if isinstance(module, LearnedRelation):
        _draw(module.table, kind, std)
    if isinstance(module, ClusteredTable):
        for weight in module.projections:
            _draw(weight, kind, std / 2)  # 0.01 next to 0.02 in Transformer-XL's released code


def _draw(weight: Tensor, kind: str, std: float) -> None:
    if kind == "normal":
        nn.init.normal_(weight, std=std)
    elif kind == "uniform":
        nn.init.uniform_(weight, -std * 3**0.5, std * 3**0.5)
    else:
        nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


class TwoWayEncoder(BackboneModule):
    """Two encoders over the same embeddings, each with half of the layers; states are concatenated ``[b t 2d]``.

    The shallow bidirectional encoder that deep bidirectionality is compared with: ELMo with attention in place of LSTMs
    (Peters et al. 2018, section 3.1; Devlin et al. 2019, section 5.1). No layer of one stack sees the other. The first
    half of a state depends on its position and those to the left, the second half on its position and those to the
    right.
    """

    def __init__(self, settings: StackSettings, vocab_size: int) -> None:
        super().__init__()
        self.supports = settings.supports
        stack = settings.model_copy(update={"num_layers": settings.depth})
        ways = [stack.model_copy(update={"direction": way}) for way in ("left_to_right", "right_to_left")]
        self.rightward, self.leftward = (TransformerEncoder(way, vocab_size) for way in ways)
        self.embeddings = self.rightward.embeddings
        del self.rightward.embeddings, self.leftward.embeddings

    def forward(self, example: Example, carry: object = None) -> Encoded:
        """Encodes a batch.

        Raises:
            Unsupported: For a carry; the stack that reads to the left begins at the end of the text.
        """
        example.check_readable(self.supports)
        if carry is not None:
            raise Unsupported("a model with direction 'two_way' has no carry: what it read changes with more text")
        x, stacks = self.embeddings(example.inputs), (self.rightward, self.leftward)
        layers, last, _ = zip(
            *(stack.encode(x, example, NoCache(example, stack.direction)) for stack in stacks), strict=True
        )
        joined = [torch.cat(both, -1) for both in zip(*layers, strict=True)]
        return Encoded(layers=joined, last=torch.cat(last, -1), table=self.table, clusters=self.clusters)

    def depth(self, name: str) -> int:
        """The depth of a parameter, as in `TransformerEncoder.depth`."""
        return 0 if name.startswith("embeddings.") else self.rightward.depth(name.partition(".")[2])


class Transformer(StackSettings):
    """The encoder of a system: one stack of layers, or one per direction."""

    kind: Literal["transformer"] = knob("transformer", "", neutral="transformer")

    def build(self, vocab_size: int) -> TransformerEncoder | TwoWayEncoder:
        """The encoder, initialised from torch's current generator."""
        encoder = TwoWayEncoder if self.direction == "two_way" else TransformerEncoder
        return encoder(self.resolved(), vocab_size)
