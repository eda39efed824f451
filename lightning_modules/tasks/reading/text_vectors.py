"""What represents a text: one vector of each row, read from the states of its positions (`FineTuning.reader`).

Padding never enters. A mean or a maximum is over all other positions, [CLS] and [SEP] among them, as in
sentence-transformers (Reimers and Gurevych 2019) and BERT-flow (Li et al. 2020). Where the two texts of a row are read
apart, each counts with the [SEP] that closes it and [CLS] with neither. So both are read alike, and a text that was cut
to nothing still has a state. The segment numbers of the batch distinguish the two. The batch holds them whether or not
the model has a segment table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lightning_modules.batch import Tokens

ReaderName = Literal["first", "last", "ends", "mean", "max", "concat", "mean_per_text"]
_States = Float[Tensor, "b t d"]
_Vectors = Float[Tensor, "b w"]


@dataclass(frozen=True)
class Reader:
    """One way to read a row.

    Attributes:
        words: What represents a text, for people.
        widths: Width of the vector in widths of a state.
        read: The states and the tokens of a batch -> a vector for each row.
        at_a_position: Whether the vector is a state, as a pooler of pretraining expects.
    """

    words: str
    widths: int
    read: Callable[[_States, Tokens], _Vectors]
    at_a_position: bool = False


def _first(hidden: _States, tokens: Tokens) -> _Vectors:
    return hidden[:, 0]


def _last(hidden: _States, tokens: Tokens) -> _Vectors:
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, tokens.real.sum(1) - 1]


def _ends(hidden: _States, tokens: Tokens) -> _Vectors:
    half = hidden.shape[-1] // 2
    return torch.cat([_last(hidden, tokens)[:, :half], _first(hidden, tokens)[:, half:]], -1)


def _mean(hidden: _States, tokens: Tokens) -> _Vectors:
    return _mean_among(hidden, tokens.real)


def _max(hidden: _States, tokens: Tokens) -> _Vectors:
    return hidden.masked_fill(~tokens.real[..., None], -torch.inf).amax(1)


def _concat(hidden: _States, tokens: Tokens) -> _Vectors:
    return torch.cat([_last(hidden, tokens), _max(hidden, tokens), _mean(hidden, tokens)], -1)


def _mean_per_text(hidden: _States, tokens: Tokens) -> _Vectors:
    segment = tokens.tables["segment"]
    second, first = tokens.real & (segment == 1), tokens.real & (segment == 0)
    if tokens.cls is None:
        first[:, 0] = False
    a, b = _mean_among(hidden, first), _mean_among(hidden, second)
    return torch.cat([a, b, (a - b).abs(), a * b], -1)


def _mean_among(hidden: _States, among: Bool[Tensor, "b t"]) -> _Vectors:
    """The mean of some states in full precision; 0 where there are none."""
    kept = hidden.float().masked_fill(~among[..., None], 0.0)  # unlike a product it is 0 even next to infinite states
    return kept.sum(1) / among.sum(1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class Part:
    """What is kept of a window of rows, whose padding is at the end of rows.

    Attributes:
        maximum: Of the states of real positions, unit by unit ``[b d]``; minus infinity where there are none.
        total: Their sum in full precision ``[b d]``.
        last: The last of them ``[b d]``; any where there are none.
        count: How many there are ``[b]``.
    """

    maximum: Float[Tensor, "b d"]
    total: Float[Tensor, "b d"]
    last: Float[Tensor, "b d"]
    count: Int[Tensor, " b"]

    @classmethod
    def of(cls, hidden: _States, real: Bool[Tensor, "b t"]) -> Self:
        """What is kept of the states of a window."""
        count, rows = real.sum(1), torch.arange(len(hidden), device=hidden.device)
        return cls(
            maximum=hidden.masked_fill(~real[..., None], -torch.inf).amax(1),
            total=hidden.float().masked_fill(~real[..., None], 0.0).sum(1),
            last=hidden[rows, (count - 1).clamp_min(0)],
            count=count,
        )


def _last_of(parts: Sequence[Part]) -> _Vectors:
    counts = torch.stack([part.count for part in parts], 1)
    window = torch.where(counts > 0, torch.arange(len(parts), device=counts.device), 0).amax(1)
    return torch.stack([part.last for part in parts], 1)[torch.arange(len(counts), device=counts.device), window]


def _max_of(parts: Sequence[Part]) -> _Vectors:
    return torch.stack([part.maximum for part in parts], 1).amax(1)


def _mean_of(parts: Sequence[Part]) -> _Vectors:
    count = torch.stack([part.count for part in parts], 1).sum(1, keepdim=True)
    return torch.stack([part.total for part in parts], 1).sum(1) / count.clamp_min(1)


def _concat_of(parts: Sequence[Part]) -> _Vectors:
    return torch.cat([_last_of(parts), _max_of(parts), _mean_of(parts)], -1)


# The readers that need no state once a window has been read: what they make of the windows of a row.
FOLDED: dict[ReaderName, Callable[[Sequence[Part]], _Vectors]] = {
    "last": _last_of, "max": _max_of, "mean": _mean_of, "concat": _concat_of,
}  # fmt: skip
READERS: dict[ReaderName, Reader] = {
    "first": Reader("the state of its first position", 1, _first, at_a_position=True),
    "last": Reader("the state of its last position", 1, _last, at_a_position=True),
    "ends": Reader("the state at its end, read from the left, and at its start, read from the right", 1, _ends, True),
    "mean": Reader("the mean of its states", 1, _mean),
    "max": Reader("the maximum of its states, unit by unit", 1, _max),
    "concat": Reader("last state, maximum and mean of its states side by side", 3, _concat),
    "mean_per_text": Reader(
        "the means of both texts side by side, with their absolute difference and product", 4, _mean_per_text
    ),
}
