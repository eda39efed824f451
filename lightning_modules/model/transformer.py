"""The transformer of BERT, RoBERTa and ALBERT, of GPT, Transformer-XL and XLNet, and of their variants.

Vaswani et al. (2017) section 3.1 as varied by Devlin et al. (2019) section 3: word, position and segment
embeddings are summed, followed by LayerNorm, dropout, and layers of attention and feed-forward. Lan et al. (2020)
section 3.1 make the embeddings narrower than the stream and let layers share parameters.

A second stream of states may predict tokens that they do not know (Yang et al. 2019, section 2.3). Its rows are behind
those of the positions in every layer. Queries, feed-forward and norms are those of all rows. Keys and values are of the
positions alone.
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
    CrossAttention,
    LearnedRelation,
    MultiHeadAttention,
    ProjectedRelation,
    Relation,
    Scene,
    SegmentRelation,
    Source,
    attention_bias,
)
from lightning_modules.model.cache import Carry, Growing, Memory, Past, Remembering, attention_mask
from lightning_modules.model.embeddings import ClusteredTable, Embeddings
from lightning_modules.model.layers import ACTIVATIONS, Dropout
from lightning_modules.model.positions import POSITIONS, Distances, QueryBiases, rows_at, states_at, states_back, waves
from lightning_modules.model.settings import BY_DISTANCE, BackboneModule, StackSettings


@dataclass(frozen=True, eq=False)
class Asked:
    """Where the rows of queries are.

    Attributes:
        length: Positions of a row of the batch; the queries of the row follow.
    """

    queries: Queries
    length: int

    @property
    def column(self) -> Int[Tensor, "b m"]:
        """The position in its row that each query asks about; 0 where there is none."""
        return self.queries.where.clamp(min=0) % self.length

    def behind(self, of_positions: Shaped[Tensor, "#b t"]) -> Shaped[Tensor, "b r"]:
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
        return torch.cat([mask.expand(b, -1, -1, -1), rows_at(mask, self.queries.where) & seen], 2)

    def opened(self, scene: Scene) -> Scene:
        """The scene with every query that sees nothing marked as blind; that it may look anywhere has no effect."""
        assert scene.bias is not None
        hidden = (scene.bias == -torch.inf).all(3, keepdim=True)
        hidden[:, :, : self.length] = False
        return replace(scene, bias=scene.bias.masked_fill(hidden, 0.0), blind=hidden)

    def rows(self, read: Int[Tensor, "b k"]) -> Int[Tensor, "b r"]:
        """The flat rows of flat positions that are read, and of all queries."""
        (b, m), each = self.queries.where.shape, self.length
        own = torch.where(read < 0, 0, read)
        own = own // each * (each + m) + own % each
        row = torch.arange(b, device=read.device)[:, None] * (each + m)
        return torch.cat([own, row + each + torch.arange(m, device=read.device)], 1)


_Before = Past | Remembering | None  # what a batch follows


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
    """A function f of the stream with dropout, residual connection and LayerNorm.

    ::

        post:  norm(x + drop(f(x)))
        pre:   x + drop(f(norm(x)))
    """

    def __init__(self, function: nn.Module, settings: StackSettings) -> None:
        super().__init__()
        self.function = function
        self.norm = nn.LayerNorm(settings.hidden_size, eps=settings.norm_eps)
        self.dropout = Dropout(settings.dropout)
        self.pre = settings.norm == "pre"

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        *rest: Any,
        context: Float[Tensor, "b s d"] | None = None,
        read: Int[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b m d"]:
        """The stream after this sub-layer: at all positions, or at flat ones if the function can do that.

        A function that can do that may read another stream than it changes, the ``context``.
        """
        chosen: dict[str, Tensor] = {} if read is None else {"read": read}
        if context is not None:
            chosen["context"] = self.norm(context) if self.pre else context
        change = self.dropout(self.function(self.norm(x) if self.pre else x, *rest, **chosen))
        changed = (x if read is None else states_at(x, read)) + change
        return changed if self.pre else self.norm(changed)


def _apply(part: nn.Module, *given: Any, **named: Any) -> Tensor:
    return part(*given, **named)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    """`_apply`, compiled for each kind of sub-layer and of sizes that it meets; weights are inputs of what is compiled.

    A process that makes run after run meets more of them than torch keeps for one function by default.
    """
    torch._dynamo.config.recompile_limit = 64
    return torch.compile(_apply)


def _made(kind: str, settings: StackSettings) -> SubLayer:
    if kind == "ffn":
        return SubLayer(FeedForward(settings), settings)
    if kind == "cross":
        form = settings.hidden_size, settings.heads, settings.attention_dropout
        keys = {"key_size": settings.key_size, "biases": settings.attention_biases}
        return SubLayer(CrossAttention(*form, **keys), settings)
    attention = MultiHeadAttention(
        settings.hidden_size,
        settings.heads,
        settings.attention_dropout,
        biases=settings.attention_biases,
        key_size=settings.key_size,
        relation=_relation(settings),
        segments=SegmentRelation(settings.heads, settings.hidden_size // settings.heads)
        if settings.segment_relation
        else None,
    )
    return SubLayer(attention, settings)


def _relation(settings: StackSettings) -> Relation | None:
    heads, size = settings.heads, settings.hidden_size // settings.heads
    own = _query_biases(settings) if settings.query_biases == "layer" else None
    if settings.positions == "relative":
        return ProjectedRelation(heads, size, own)
    if settings.positions == "relative_learned":
        return LearnedRelation(heads, size, own, settings.max_positions - 1, settings.direction)
    return None


def _query_biases(settings: StackSettings) -> QueryBiases | None:
    """The biases of queries that attend by distance, of a layer or of all."""
    if settings.positions not in BY_DISTANCE:
        return None
    with_v = settings.positions == "relative"
    return QueryBiases(settings.heads, settings.hidden_size // settings.heads, with_v=with_v)


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
            settings,
            vocab_size,
            settings.hidden_size,
            settings.positions,
            settings.max_positions,
            scaled=settings.embedding_scale,
            words=None if divisor == 1 else ClusteredTable(vocab_size, settings.table_width, cutoffs, divisor),
        )
        self.owners = [settings.owners(layer) for layer in range(settings.num_layers)]
        self.blocks = nn.ModuleList(
            nn.ModuleDict({kind: _made(kind, settings) for kind, owner in owners.items() if owner == layer})
            for layer, owners in enumerate(self.owners)
        )
        self.final_norm = nn.LayerNorm(settings.hidden_size, settings.norm_eps) if settings.norm == "pre" else None
        self.positions = POSITIONS[settings.positions](settings)
        self.by_distance = settings.positions in BY_DISTANCE
        self.waves_dropout = Dropout(settings.embedding_dropout) if settings.positions == "relative" else None
        self.query_biases = _query_biases(settings) if settings.query_biases == "shared" else None
        self.by_segment = settings.segment_relation
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

    def begin(self, rows: int, device: torch.device | str | None = None) -> Memory | None:
        """See `BackboneModule.begin`: an empty memory of ``memory_length`` positions."""
        if not self.memory_length:
            return None
        like = self.table.new_zeros(1, self.width, device=device)
        return Memory.empty(rows, self.memory_length, len(self.owners), like)

    def forward(self, example: Example, carry: Memory | Carry | tuple[()] | None = None) -> Encoded:
        """Encodes a batch, by itself or as what follows a carry; see `Encoded.carry`.

        A memory (`begin`) is as long as it was begun, and tables of positions count each batch from its own start. The
        carry of a text (`BEGIN`) holds all of it, and positions are counted from the start of the text.
        """
        example.check_readable(self.supports)
        before: _Before = None
        if isinstance(carry, Memory):
            before = Remembering(carry, example, len(self.owners), self.direction)
        elif carry is not None:
            before = self._past(carry, example)
            example = replace(example, inputs=replace(example.inputs, positions=before.place))
        layers, last, queries = self.above(self.embeddings(example), example, before)
        handed = None if before is None else before.carry()
        words = {"table": self.table, "clusters": self.clusters}
        return Encoded(layers=layers, last=last, carry=handed, queries=queries, **words)

    def _past(self, carry: Carry | tuple[()], example: Example) -> Past:
        if not self.carries:
            raise Unsupported(f"a model with direction '{self.direction}' has no carry: what it read changes with more")
        past = Past(carry, example, len(self.owners))
        self.embeddings.check_length(1 + int(past.place.max()))
        return past

    def above(
        self, x: Float[Tensor, "b t d"], example: Example, before: _Before = None, source: Source | None = None
    ) -> tuple[list[Tensor], Float[Tensor, "b t d"], Float[Tensor, "b m d"] | None]:
        """The layers over the output of the embeddings, the last states, and those of queries.

        Where not all of the last states are read, the last layer is computed at those that are and is not in the list.
        Of the other positions it needs keys and values, which spares most of its work.
        """
        length, layers, wanted = x.shape[1], [x], example.read
        asked = None if example.queries is None else Asked(example.queries, length)
        scene = replace(self._scene(example, x, before, asked), source=source)
        if asked is not None:
            wanted = None if example.read is None else asked.rows(example.read)
            x = torch.cat([x, self._queries(example.inputs, asked)], 1)
        for layer, owners in enumerate(self.owners):
            read = wanted if layer == len(self.owners) - 1 else None
            context = None if asked is None else x[:, :length]  # None if rows attend to each other
            if isinstance(before, Remembering):
                context = before.context(x[:, :length])
            past = before.layers[layer] if isinstance(before, Past) else None
            if self.recompute and self.training and torch.is_grad_enabled():
                x = checkpoint(self._layer, owners, x, scene, past, context, read, use_reentrant=False)
            else:
                x = self._layer(owners, x, scene, past, context, read)
            layers += [x[:, :length]] if read is None else []
        last, queries = x if self.final_norm is None else self.final_norm(x), None
        if asked is not None:
            last, queries = last.split([last.shape[1] - asked.column.shape[1], asked.column.shape[1]], 1)
        return layers, last if example.read is None else states_back(last, example.read, length), queries

    def _layer(
        self,
        owners: dict[str, int],
        x: Float[Tensor, "b r d"],
        scene: Scene,
        past: Growing | None,
        context: Float[Tensor, "b s d"] | None,
        read: Int[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b _ d"]:
        apply = _compiled() if self.compiled and self.training else _apply
        x = apply(self._sub_layer(owners, "attention"), x, scene, past, context=context, read=read)
        if scene.source is not None:
            x = apply(self._sub_layer(owners, "cross"), x, scene.source)
        return apply(self._sub_layer(owners, "ffn"), x)

    def _queries(self, tokens: Tokens, asked: Asked) -> Float[Tensor, "b m d"]:
        """The first states of queries: as if one word, which is learned, stood at each of their positions."""
        assert self.query is not None
        tables = {name: ids.gather(1, asked.column) for name, ids in tokens.tables.items()}
        positions = asked.column if tokens.positions is None else tokens.positions.gather(1, asked.column)
        word = self.query.expand(*asked.column.shape, -1)
        return self.embeddings.placed(word, tables, positions)

    def _sub_layer(self, owners: dict[str, int], kind: str) -> nn.Module:
        block = self.blocks[owners[kind]]
        assert isinstance(block, nn.ModuleDict)
        return block[kind]

    def _scene(self, example: Example, x: Float[Tensor, "b t d"], before: _Before, asked: Asked | None) -> Scene:
        """What every layer shares, computed once in the precision that attention runs in."""
        if before is None:
            given = example.inputs.positions
            place = attended = torch.arange(x.shape[1], device=x.device)[None] if given is None else given
            mask = attention_mask(example.visible.toward(self.direction), x.shape[1], x.device)
        else:
            place, attended, mask = before.place, before.positions, before.mask()
        if self.same_length:
            reach = before.reach if isinstance(before, Remembering) else self.memory_length
            near = (place[:, :, None] - attended[:, None] <= reach)[:, None]
            mask = near if mask is None else mask & near
        distances, apart = self._distances(example, before, place, attended), self._apart(example, attended, asked)
        if asked is not None:
            place, mask = asked.behind(place), asked.mask(mask, attended.shape[1])
            distances = None if distances is None else distances.also_at(asked.queries.where, asked.length)
        bias, turn = self.positions.bias(place, attended), self.positions.turn(place, _precision(x))
        alone = asked is None and not isinstance(before, Remembering)
        turned = turn if alone else self.positions.turn(attended, _precision(x))
        scene = Scene(
            bias=attention_bias(mask, bias, _precision(x)),
            turn=turn,
            turned=turned,
            distances=distances,
            waves=self._waves(distances, x),
            biases=self.query_biases,
            apart=apart,
        )
        return scene if asked is None else asked.opened(scene)

    def _apart(
        self, example: Example, attended: Int[Tensor, "#b s"], asked: Asked | None
    ) -> Bool[Tensor, "#b 1 t s"] | None:
        """Which pairs of positions are of two segments; what is remembered is of segment 0."""
        if not self.by_segment:
            return None
        tokens = example.inputs
        own = tokens.tables.get("segment", torch.zeros_like(tokens.ids))
        every = torch.cat([own.new_zeros(len(own), attended.shape[1] - own.shape[1]), own], 1)
        asking = own if asked is None else asked.behind(own)
        return (asking[:, :, None] != every[:, None])[:, None]

    def _distances(
        self, example: Example, before: _Before, place: Int[Tensor, "#b t"], attended: Int[Tensor, "#b s"]
    ) -> Distances | None:
        if not self.by_distance:
            return None
        alone = before is None and example.inputs.positions is None
        if alone or (isinstance(before, Remembering) and before.regular):
            new, size = place.shape[1], attended.shape[1]
            return Distances.regular(new, size, self.direction, self.clamp_length, place.device)
        return Distances.between(place, attended, self.direction, self.clamp_length)

    def _waves(self, distances: Distances | None, x: Float[Tensor, "b t d"]) -> Float[Tensor, "n d"] | None:
        if distances is None or self.waves_dropout is None:
            return None
        return self.waves_dropout(waves(distances.each, x.shape[2], x.dtype))

    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, i + 1 for the first layer i that uses it, L + 1 above."""
        if name.startswith("embeddings.") or name == "query":
            return 0
        if name.startswith(("query_biases.", "positions.")):
            return 1
        return int(name.split(".")[1]) + 1 if name.startswith("blocks.") else len(self.blocks) + 1


def _precision(x: Tensor) -> torch.dtype:
    """The precision that attention runs in."""
    kind = x.device.type
    is_cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # meta tensors have none
    return torch.get_autocast_dtype(kind) if is_cast else x.dtype


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
    (Peters et al. 2018, section 3.1; Devlin et al. 2019, section 5.1).

    No layer of one stack sees the other. The first half of a state depends on its position and those to the left, the
    second half on its position and those to the right.
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
        x = self.embeddings(example)
        ways = [stack.above(x, example) for stack in (self.rightward, self.leftward)]
        layers = [torch.cat(both, -1) for both in zip(*(layers for layers, _, _ in ways), strict=True)]
        last, table = torch.cat([last for _, last, _ in ways], -1), self.table
        return Encoded(layers=layers, last=last, table=table, clusters=self.clusters)

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
