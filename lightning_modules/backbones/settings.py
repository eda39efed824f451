"""The settings of a stack of layers: its sizes, how its layers share, which way it looks, what it costs."""

from typing import Literal, Self

from pydantic import model_validator

from lightning_modules.batch import Direction, Size
from lightning_modules.config import Settings, knob, once

HEAD_SIZE = 64  # width of a head where num_heads is not given: that of every BERT and GPT


class StackSettings(Settings):
    """Embeddings and a stack of layers over them. Defaults are those of BERT-base (Devlin et al. 2019, section 3)."""

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
