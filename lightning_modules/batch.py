"""The records that every room shares, and the glossary of axes.

Axes, in shape comments and type annotations everywhere:

    b  sequences in a batch             n  predictions (targets) in a batch
    t  positions of a sequence          m  queries of a second stream
    s  positions looked at              d  hidden width
    h  attention heads                  e  embedding width
    v  vocabulary

A *flat* position is an index into the ``[b t]`` grid laid out as ``b * t`` numbers.
The records are plain (not frozen) dataclasses because Lightning moves batches between devices through them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

Direction = Literal["both", "left_to_right", "right_to_left", "two_way"]  # in which a model reads
STEP = {"next": 1, "previous": -1}  # target -> from the position that predicts to the predicted one; else they are one


def _moved(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _moved(getattr(value, f.name), device) for f in fields(value)})
    return value


class _Movable:
    """Gives a record ``.to(device)``, the hook by which Lightning transfers it."""

    def to(self, device: torch.device | str) -> Self:
        return _moved(self, device)


@runtime_checkable
class Vocabulary(Protocol):
    """What an objective needs to know of a tokenizer's vocabulary."""

    mask: int  # id of the piece that stands for a hidden one

    @property
    def size(self) -> int:
        """How many pieces there are."""
        ...


@dataclass
class Tokens(_Movable):
    """Sequences as the input format arranged them, before any objective touched them."""

    ids: Int[Tensor, "b t"]
    begins_word: Bool[Tensor, "b t"]  # True where a piece starts a word
    special: Bool[Tensor, "b t"]  # [CLS], [SEP], ... and padding
    real: Bool[Tensor, "b t"]  # False on padding
    sample: Int[Tensor, " b"]  # which sequence of the store each row is
    tables: dict[str, Int[Tensor, "b t"]] = field(default_factory=dict)  # one embedding table per name
    positions: Int[Tensor, "b t"] | None = None  # None means 0 .. t-1
    labels: dict[str, Int[Tensor, " b"]] = field(default_factory=dict)
    fresh: Bool[Tensor, " b"] | None = None  # a row that starts a new stream (carried state is reset)
    source: "Tokens | None" = None  # encoder side of sequence-to-sequence


@dataclass
class Visibility(_Movable):
    """Who may look where. True = may look; the parts are combined with *and*."""

    causal: bool = False  # to the left only, itself included
    anticausal: bool = False  # the mirror: to the right only, itself included
    real: Bool[Tensor, "b s"] | None = None  # None means that every position is real
    pairs: Bool[Tensor, "#b #h t s"] | None = None

    def toward(self, direction: Direction) -> Self:
        """What is left of it for a model that reads in one direction; all of it for any other."""
        return replace(
            self,
            causal=self.causal or direction == "left_to_right",
            anticausal=self.anticausal or direction == "right_to_left",
        )


@dataclass
class Target(_Movable):
    """What an objective predicts. A head runs at these positions and nowhere else."""

    where: Int[Tensor, " n"]  # flat positions
    ids: Num[Tensor, " n"]  # of tokens or classes; real numbers in regression
    weight: Float[Tensor, " n"] | None = None  # None means 1 everywhere

    def count(self) -> float:
        """The denominator of this target's mean loss: the sum of weights."""
        return float(self.ids.numel() if self.weight is None else self.weight.sum())


@dataclass
class Query(_Movable):
    """The second stream of two-stream attention (XLNet, section 2.3): positions that ask without seeing themselves."""

    where: Int[Tensor, "b m"]
    visible: Bool[Tensor, "b m s"]


@dataclass
class Example(_Movable):
    """One micro-batch ready for a backbone: what it sees, who looks where, what is predicted.

    ``counts`` holds, per target, the denominator over the *whole* optimiser step (all micro-batches, all
    ranks), so that accumulated gradients equal those of one large batch exactly. Empty means "this batch alone".
    """

    inputs: Tokens
    visible: Visibility
    targets: dict[str, Target] = field(default_factory=dict)
    query: Query | None = None
    counts: dict[str, float] = field(default_factory=dict)
    features: Float[Tensor, "b t k d"] | None = None  # layers of a frozen encoder, computed before; zero on padding

    @classmethod
    def of(cls, tokens: Tokens) -> "Example":
        """The uncorrupted example: everyone sees every real position, nothing is predicted."""
        padded = not bool(tokens.real.all())
        return cls(inputs=tokens, visible=Visibility(real=tokens.real if padded else None))


@dataclass
class Encoded:
    """What a backbone returns. ``layers[0]`` is the embedding output, ``layers[-1]`` equals ``last``
    unless a final normalisation follows the last layer.
    """

    layers: list[Float[Tensor, "b t d"]]
    last: Float[Tensor, "b t d"]
    unembed: Callable[[Float[Tensor, "n e"]], Float[Tensor, "n v"]]  # the tied embedding table, transposed
    query: Float[Tensor, "b m d"] | None = None
    carry: Any = None


@dataclass(frozen=True)
class Size:
    """The widths a head needs to know of its backbone."""

    hidden_size: int
    embedding_size: int
    vocab_size: int
