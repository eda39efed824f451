"""One stack of layers over embeddings: attention, then feed-forward, each with residual connection and LayerNorm."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lightning_modules.backbones.embeddings import Embeddings
from lightning_modules.backbones.settings import StackSettings
from lightning_modules.batch import Direction, Encoded, Example, Unsupported
from lightning_modules.layers.activations import ACTIVATIONS
from lightning_modules.layers.attention import MultiHeadAttention, attention_bias, attention_mask
from lightning_modules.layers.carried import Carry, Past
from lightning_modules.layers.chosen import states_at, states_back
from lightning_modules.layers.dropout import Dropout
from lightning_modules.layers.positions import alibi_slopes, linear_bias, sided_linear_bias, sided_slopes
from lightning_modules.layers.rotary import Rotation, rotation

BIASES = {
    "linear_bias": (linear_bias, lambda heads, direction: alibi_slopes(heads)),
    "sided_linear_bias": (sided_linear_bias, sided_slopes),
}


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
        self, x: Float[Tensor, "b t d"], *rest: Any, read: Int[Tensor, "b m"] | None = None
    ) -> Float[Tensor, "b m d"]:
        """The stream after this sub-layer: at all positions, or at flat ones if the function can do that."""
        chosen = {} if read is None else {"read": read}
        change = self.dropout(self.function(self.norm(x) if self.pre else x, *rest, **chosen))
        changed = (x if read is None else states_at(x, read)) + change
        return changed if self.pre else self.norm(changed)


def _sub_layer(kind: str, settings: StackSettings) -> SubLayer:
    if kind == "ffn":
        return SubLayer(FeedForward(settings), settings)
    return SubLayer(MultiHeadAttention(settings.hidden_size, settings.heads, settings.attention_dropout), settings)


class TransformerEncoder(nn.Module):
    """Embeddings and the layers over them; every layer's output is returned.

    A layer is attention, then feed-forward. ``blocks[i]`` holds the sub-layers that layer i is the first to use;
    ``owners[i]`` maps each kind to the block that holds that of layer i.
    """

    def __init__(self, settings: StackSettings, vocab_size: int) -> None:
        super().__init__()
        self.direction: Direction = settings.direction
        self.supports = settings.supports
        self.embeddings = Embeddings(settings, vocab_size)
        self.owners = [settings.owners(layer) for layer in range(settings.num_layers)]
        self.blocks = nn.ModuleList(
            nn.ModuleDict({kind: _sub_layer(kind, settings) for kind, owner in owners.items() if owner == layer})
            for layer, owners in enumerate(self.owners)
        )
        self.final_norm = nn.LayerNorm(settings.hidden_size, settings.norm_eps) if settings.norm == "pre" else None
        self.bias, slopes = BIASES.get(settings.positions, (None, None))
        self.rotary_size, self.head_size = settings.rotary_size, settings.hidden_size // settings.heads
        self.register_buffer("slopes", slopes and slopes(settings.heads, settings.direction), persistent=False)
        self.apply(lambda module: _initialise(module, settings.init, settings.init_std))

    @property
    def carries(self) -> bool:
        """Whether a text can go on where a batch ended: nothing that was read changes with what follows."""
        return self.direction == "left_to_right"

    def forward(self, example: Example, carry: Carry | tuple[()] | None = None) -> Encoded:
        """Encodes a batch, by itself or as what follows a carry; see `Encoded.carry`."""
        example.check_readable(self.supports)
        if carry is None:
            layers, last = self.above(self.embeddings(example), example)
            return Encoded(layers=layers, last=last, table=self.embeddings.word.weight)
        if not self.carries:
            raise Unsupported(f"a model with direction '{self.direction}' has no carry: what it read changes with more")
        past = Past(carry, example, len(self.owners))
        self.embeddings.check_length(1 + int(past.place.max()))
        example = replace(example, inputs=replace(example.inputs, positions=past.place))
        layers, last = self.above(self.embeddings(example), example, past)
        return Encoded(layers=layers, last=last, table=self.embeddings.word.weight, carry=past.carry())

    def above(
        self, x: Float[Tensor, "b t d"], example: Example, past: Past | None = None
    ) -> tuple[list[Tensor], Float[Tensor, "b t d"]]:
        """The layers over the output of the embeddings, and the last states.

        Where not all of the last states are read, the last layer is computed at those that are and is not in the list.
        Of the other positions it needs keys and values, which spares most of its work.
        """
        bias, turn = self._attention_bias(example, x, past), self._rotation(example, x)
        length, layers = x.shape[1], [x]
        for layer, owners in enumerate(self.owners):
            read = example.read if layer == len(self.owners) - 1 else None
            before = None if past is None else past.layers[layer]
            x = self._sub_layer(owners, "attention")(x, bias, turn, before, read=read)
            x = self._sub_layer(owners, "ffn")(x)
            layers += [x] if read is None else []
        last = x if self.final_norm is None else self.final_norm(x)
        return layers, last if example.read is None else states_back(last, example.read, length)

    def _sub_layer(self, owners: dict[str, int], kind: str) -> nn.Module:
        block = self.blocks[owners[kind]]
        assert isinstance(block, nn.ModuleDict)
        return block[kind]

    def _attention_bias(
        self, example: Example, x: Float[Tensor, "b t d"], past: Past | None
    ) -> Float[Tensor, "#b #h t s"] | None:
        """The bias that every layer adds to its scores, computed once in the precision that attention runs in."""
        positions, attended = _positions(example, x), None if past is None else past.positions
        position_bias = None if self.bias is None else self.bias(positions, self.slopes, attended)
        if past is None:
            mask = attention_mask(example.visible.toward(self.direction), x.shape[1], x.device)
        else:
            mask = past.mask()
        return attention_bias(mask, position_bias, _precision(x))

    def _rotation(self, example: Example, x: Float[Tensor, "b t d"]) -> Rotation | None:
        """The rotation of queries and keys in every layer."""
        if self.rotary_size is None:
            return None
        return rotation(_positions(example, x), self.rotary_size, self.head_size, _precision(x))

    def depth(self, name: str) -> int:
        """The depth of a parameter: 0 for embeddings, i + 1 for the first layer i that uses it, L + 1 above."""
        if name.startswith("embeddings."):
            return 0
        return int(name.split(".")[1]) + 1 if name.startswith("blocks.") else len(self.blocks) + 1


def _positions(example: Example, x: Float[Tensor, "b t d"]) -> Int[Tensor, "#b t"]:
    given = example.inputs.positions
    return torch.arange(x.shape[1], device=x.device)[None] if given is None else given


def _precision(x: Tensor) -> torch.dtype:
    """The precision that attention runs in."""
    kind = x.device.type
    is_cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # meta tensors have none
    return torch.get_autocast_dtype(kind) if is_cast else x.dtype


def _initialise(module: nn.Module, kind: str, std: float) -> None:
    """Weights normal with mean 0, biases 0, LayerNorm 1 and 0 (BERT's released code)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        if kind == "normal":
            nn.init.normal_(module.weight, std=std)
        else:
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
