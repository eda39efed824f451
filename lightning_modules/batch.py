"""The batch dataclasses that all packages share, and the glossary of axes.

Axes, in shape comments and type annotations everywhere::

    b  sequences in a batch             n  predictions (targets) in a batch
    t  positions of a sequence          d  hidden width
    m  positions of it that are read,   c  width of a head
       or queries about them            e  embedding width
    s  positions attended to            v  vocabulary
    r  positions and queries            w  width of the states that heads read
    h  attention heads

A *flat* position is an index into the ``[b t]`` grid laid out as ``b * t`` numbers.
The dataclasses are not frozen because Lightning moves batches between devices through them.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Num, Shaped
from torch import Tensor

from lightning_modules.words import Edges

BEGIN: tuple[()] = ()  # the carry at the start of a text
Direction = Literal["both", "left_to_right", "right_to_left", "two_way"]  # in which a model reads
Tags = Literal["entities", "noun_phrases"]
Annotation = tuple[str, Tags]  # who annotated a text, and what was tagged
STEP = {
    "next": 1,
    "previous": -1,
}  # target -> step from predicting to predicted position; else 0
OF_WORDS = "_word"  # ends the name of a target that is a whole word
# what a backbone may support and an objective need
WIDE_TABLE = "word embeddings as wide as its states"
QUERY_STREAM = "query stream"
RECURRENT_STATES = "recurrent states"
WORD_TABLE = "table of word embeddings"
CHARACTERS = "characters of words"
BOTH_WAYS = "row that continues to the left"
REUSE = "row of which a part continues"
SOURCE = "source"
NO_LANGUAGE = -1  # in place of the number of a language: no embedding is added
_ALIGNED = 16  # bytes, of the place of a tensor among others
_MOST_READ = 0.75  # of a row's positions, where choosing them still pays


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed, in the order in which they are."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: mapped(getattr(value, f.name), change) for f in fields(value)})
    return value


_Batch = TypeVar("_Batch")


def moved_at_once(batch: _Batch, device: torch.device | str) -> _Batch:
    """A batch on another device, by one copy for all of its tensors, which the host does not wait for.

    A GPU starts a copy in more time than the copy of a small tensor takes, and a batch has some ten of them.
    """
    tensors: list[Tensor] = []
    mapped(batch, lambda tensor: tensors.append(tensor) or tensor)
    ends = list(itertools.accumulate(-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in tensors))
    pinned = torch.device(device).type == "cuda"
    buffer = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, pin_memory=pinned)

    def parts(buffer: Tensor) -> Iterator[Tensor]:
        for tensor, start in zip(tensors, [0, *ends], strict=False):
            yield buffer[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)

    for part, tensor in zip(parts(buffer), tensors, strict=True):
        part.copy_(tensor)
    moved = parts(buffer.to(device, non_blocking=True))
    return mapped(batch, lambda tensor: next(moved))


class _Movable:
    """A batch dataclass with ``.to(device)``, which Lightning calls to transfer it."""

    def to(self, device: torch.device | str) -> Self:
        if torch.device(device).type == "cuda":
            return moved_at_once(self, device)
        return mapped(self, lambda tensor: tensor.to(device, non_blocking=True))


class Unsupported(ValueError):
    """A backbone was given an input, or was to give an output, that it does not have."""


@runtime_checkable
class Vocabulary(Protocol):
    """The part of a tokenizer's vocabulary that objectives use."""

    @property
    def mask(self) -> int:
        """The id of [MASK]."""
        ...

    @property
    def size(self) -> int:
        """Number of pieces."""
        ...

    @property
    def ordinary(self) -> np.ndarray:
        """The ids of all pieces that are not special, in ascending order."""
        ...

    @property
    def word_edges(self) -> Edges:
        """Which pieces begin and end words."""
        ...

    @property
    def text(self) -> np.ndarray | None:
        """The ids of a text in these pieces, from which words are drawn by frequency; None if there is none."""
        ...


@dataclass
class SegmentState(_Movable):
    """How the rows of a batch go on from the batch before: those of one micro-batch are the same at every step.

    Attributes:
        group: Which rows of a step they are: the number of their micro-batch.
        reset_mask: Which of them start again from nothing. None if none does.
        backward: Which of them go on to the left: what they read before is to the right of them. None if none does.
        reuse: How many of their positions go on, the first that are read, which the others follow for this step alone;
            None if all do.
    """

    group: int = 0
    reset_mask: Bool[Tensor, " b"] | None = None
    backward: Bool[Tensor, " b"] | None = None
    reuse: int | None = None


def padded(table: Shaped[Tensor, "..."], more: int, axis: int = 1, value: float = 0) -> Shaped[Tensor, "..."]:
    """A tensor with so many more entries behind those of an axis."""
    return F.pad(table, [0] * (2 * (table.ndim - 1 - axis)) + [0, more], value=value)


@dataclass
class Characters(_Movable):
    """The words of some rows by their characters (`data.text.characters`).

    Attributes:
        spelt: The characters of each distinct word.
        ids: The piece that each of them is; of a word of several pieces [UNK].
        words: Which of them begins at a position, -1 where none does.
    """

    spelt: Int[Tensor, "u 50"]
    ids: Int[Tensor, " u"]
    words: Int[Tensor, "b t"]


@dataclass
class Tokens(_Movable):
    """Sequences as the input format arranged them, before any corruption."""

    ids: Int[Tensor, "b t"]
    special: Bool[Tensor, "b t"]  # [CLS], [SEP], ... and padding
    real: Bool[Tensor, "b t"]  # False on padding
    sample: Int[Tensor, " b"]  # which sequence of the store each row is
    tables: dict[str, Int[Tensor, "b t"]] = field(default_factory=dict)  # one embedding table per name
    positions: Int[Tensor, "b t"] | None = None  # None means 0 .. t-1
    labels: dict[str, Int[Tensor, " b"]] = field(default_factory=dict)
    marks: dict[Annotation, Int[Tensor, "b t"]] = field(default_factory=dict)  # 1 begins a tagged span, 2 is inside
    ends: Bool[Tensor, "b t"] | None = None  # the special ones that end a document, which a language model predicts
    following: Int[Tensor, " b"] | None = None  # the token after each row's last; None if it is not predicted
    context: int = 0  # the first positions, which are read and predict nothing
    segment_state: SegmentState | None = None  # None for rows that go on from no other batch
    cls: Int[Tensor, " b"] | None = None  # the column of each row's [CLS] where it is not the first
    characters: Characters | None = None  # of models that read them
    source: "Tokens | None" = None  # what each row is a translation of, in the same order, as long as its own longest

    @classmethod
    def of(
        cls, ids: Any, special: Any, real: Any, sample: Any, tables: Mapping[str, Any] | None = None, **more: Any
    ) -> Self:
        """Of arrays of numpy."""
        arrays = map(torch.from_numpy, (ids, special, real, sample))
        own = {name: torch.from_numpy(np.ascontiguousarray(table)) for name, table in (tables or {}).items()}
        return cls(*arrays, tables=own, **more)

    def padded(self, wide: int) -> Self:
        """The same rows with padding behind them, to so many columns; their source stays as it is."""
        more = wide - self.ids.shape[1]
        if not more:
            return self
        given: dict[str, Any] = {
            name: padded(held, more) for name in ("positions", "ends") if (held := getattr(self, name)) is not None
        }
        if (spelt := self.characters) is not None:
            given["characters"] = replace(spelt, words=padded(spelt.words, more, value=-1))
        return replace(
            self,
            ids=padded(self.ids, more),
            special=padded(self.special, more, value=1),
            real=padded(self.real, more),
            tables=mapped(self.tables, lambda table: padded(table, more)),
            marks=mapped(self.marks, lambda table: padded(table, more)),
            **given,
        )

    @property
    def cached(self) -> Bool[Tensor, "b t"] | None:
        """Which positions of rows that go on are cached for what follows; None if all are."""
        state, (rows, length) = self.segment_state, self.ids.shape
        if state is None or state.reuse is None:
            return None
        column = torch.arange(length, device=self.ids.device).expand(rows, -1)
        if state.backward is not None:
            column = torch.where(state.backward[:, None], length - 1 - column, column)
        return column < state.reuse

    def with_cls_last(self) -> Self:
        """The same rows with their first piece, [CLS], behind their last one, as segment 2 (XLNet's released code).

        Rows that have their [CLS] elsewhere stay as they are.
        """
        if self.cls is not None:
            return self
        column, last = torch.arange(self.ids.shape[1]), self.real.sum(1, keepdim=True) - 1
        source = torch.where(column < last, column + 1, torch.where(column == last, 0, column))

        def moved(values: Tensor) -> Tensor:
            return values.gather(1, source)

        tables = {name: moved(numbers) for name, numbers in self.tables.items()}
        if "segment" in tables:
            tables["segment"] = tables["segment"].masked_fill(column == last, 2)
        marks = {name: moved(tags) for name, tags in self.marks.items()}
        own = {"ids": moved(self.ids), "special": moved(self.special), "tables": tables, "marks": marks}
        return replace(self, **own, cls=last[:, 0])


@dataclass
class Visibility(_Movable):
    """Which positions may attend to which, True = allowed; the parts are combined with *and*."""

    causal: bool = False  # only to the left, itself included
    anticausal: bool = False  # only to the right, itself included
    real: Bool[Tensor, "b s"] | None = None  # None means no padding
    pairs: Bool[Tensor, "#b #h t s"] | None = None

    def toward(self, direction: Direction) -> Self:
        """This visibility restricted to the direction of a one-directional model; unchanged for any other."""
        return replace(
            self,
            causal=self.causal or direction == "left_to_right",
            anticausal=self.anticausal or direction == "right_to_left",
        )


@dataclass
class Target(_Movable):
    """The predictions of an objective. Its head runs for these only."""

    where: Int[Tensor, " n"]  # flat positions that are predicted. Of an answer that is read from a whole row, its first
    ids: Num[Tensor, " n"]  # of tokens or classes; real numbers in regression
    output_positions: Int[Tensor, "n k"] | None = None  # flat, whose states answer; None means those at ``where``
    queries: Int[Tensor, " n"] | None = None  # flat numbers of the queries that answer in place of states

    def count(self) -> float:
        """The number of predictions, the denominator of this target's mean loss."""
        return float(self.ids.numel())


@dataclass
class Queries(_Movable):
    """Positions that a second stream predicts: a row of states for each, which is not computed from its token.

    A query attends to states of positions, and nothing attends to it (Yang et al. 2019, section 2.3). It sees no more
    than the state at its position does.
    """

    where: Int[Tensor, "b m"]  # flat positions, each in its row; -1 for none
    visible: Bool[Tensor, "b m t"]  # the positions of the row that each one sees


@dataclass
class Example(_Movable):
    """One micro-batch for a backbone: inputs, visibility, targets.

    ``groups`` holds what was hidden together while objectives mask the example: the first position of each hidden
    position's group, -1 where nothing is hidden. It does not reach the model.

    ``counts`` holds, per loss term, the denominator over the *whole* optimiser step (all micro-batches, all
    ranks), so that accumulated gradients equal those of one large batch exactly. Empty means a step of one batch.
    """

    inputs: Tokens
    visible: Visibility
    targets: dict[str, Target] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    features: Float[Tensor, "b t k d"] | None = None  # precomputed layers of a frozen encoder; zero on padding
    output_positions: Int[Tensor, "b m"] | None = None  # flat, whose last states are read, -1 for none; None means all
    groups: Int[Tensor, "b t"] | None = None
    queries: Queries | None = None

    @classmethod
    def of(cls, tokens: Tokens) -> "Example":
        """The uncorrupted example: full visibility of real positions, no targets.

        Positions that are cached for the next step see each other alone. What they saw of the rest would reveal to
        the next step the tokens that it has to predict.
        """
        padded, cached = not bool(tokens.real.all()), tokens.cached
        pairs = None if cached is None else (~cached[:, :, None] | cached[:, None])[:, None]
        return cls(inputs=tokens, visible=Visibility(real=tokens.real if padded else None, pairs=pairs))

    @property
    def source(self) -> Tokens | None:
        """The sequences that each row is a translation of; None where a row is read by itself."""
        return self.inputs.source

    def rows(self, which: Int[Tensor, " k"]) -> Self:
        """The example with these rows of it in this order, sources among them, before it has targets.

        A row may be chosen several times.
        """
        inputs = mapped(self.inputs, lambda rows: rows[which])
        real, pairs = self.visible.real, self.visible.pairs
        if pairs is not None and len(pairs) > 1:  # one for all rows serves any of them
            pairs = pairs[which]
        visible = replace(self.visible, real=None if real is None else inputs.real, pairs=pairs)
        return replace(self, inputs=inputs, visible=visible)

    def read_at_targets(self) -> Self:
        """The example for a step that reads the last states at its targets and nowhere else; runs on the CPU.

        It stays as it is where most positions are read: then full rows are as fast.
        """
        rows, length = self.inputs.ids.shape
        by_states = (target for target in self.targets.values() if target.queries is None)
        read = ((t.where if t.output_positions is None else t.output_positions).flatten() for t in by_states)
        where = torch.cat([*read, torch.zeros(0, dtype=torch.long)]).unique()
        row = where // length
        counts = torch.bincount(row, minlength=rows)
        most = max(1, int(counts.max()))
        if most > _MOST_READ * length:
            return self
        positions = torch.full((rows, most), -1)
        column = torch.arange(len(where)) - (counts.cumsum(0) - counts)[row]
        positions[row, column] = where
        return replace(self, output_positions=positions)

    def widened(self, multiple: int, most: int) -> Self:
        """The example with a few more columns of padding, and of positions that are read, so that few sizes occur.

        GPUs prepare attention kernels, compiled code and graphs for each size that they meet. Nothing attends to
        padding and nothing is predicted there: only rounding changes, and which random numbers of dropout meet which
        position. Rows that go on from batch to batch keep their length, since what they hand on is their end.

        Args:
            multiple: Numbers of columns are rounded up to multiples of it; 1 changes nothing.
            most: No row becomes longer, together with its source.
        """
        rows, length = self.inputs.ids.shape
        source = self.source
        if source is not None:
            most //= 2

        def wider(length: int) -> int:
            return max(length, min(most, -(-length // multiple) * multiple))

        wide = length if self.inputs.segment_state else wider(length)
        widened = self if wide == length else self._of_length(wide)
        if source is not None:
            source = source.padded(wider(source.ids.shape[1]))
            widened = replace(widened, inputs=replace(widened.inputs, source=source))
        if (positions := widened.output_positions) is not None and (more := -positions.shape[1] % multiple):
            positions = torch.cat([positions, positions.new_full((rows, more), -1)], 1)
            widened = replace(widened, output_positions=positions)
        return widened

    def _of_length(self, wide: int) -> Self:
        """The example with padding behind its rows; flat positions are those of the wider rows."""
        length = self.inputs.ids.shape[1]
        more, inputs = wide - length, self.inputs.padded(wide)

        def moved(where: Tensor) -> Tensor:
            return torch.where(where < 0, where, where // length * wide + where % length)

        pairs = self.visible.pairs
        if pairs is not None:  # a padded position sees itself (`attention_mask`)
            pairs = padded(padded(pairs, more, 3), more, 2, 1)
        targets = {
            name: replace(target, where=moved(target.where), output_positions=mapped(target.output_positions, moved))
            for name, target in self.targets.items()
        }
        rest: dict[str, Any] = {"output_positions": mapped(self.output_positions, moved)}
        if self.features is not None:
            rest["features"] = padded(self.features, more)
        if self.queries is not None:
            rest["queries"] = Queries(moved(self.queries.where), padded(self.queries.visible, more, 2))
        visible = replace(self.visible, real=inputs.real, pairs=pairs)
        return replace(self, inputs=inputs, visible=visible, targets=targets, **rest)

    def check_readable(self, supports: Set[str]) -> None:
        """Refuses a batch that holds inputs besides its tokens which an encoder would ignore.

        Args:
            supports: What the encoder supports; inputs are called ``<name> table``, ``features``, ``query stream``,
                ``row that continues to the left``, ``row of which a part continues`` and ``source``. Characters of
                words say nothing that ids do not.

        Raises:
            Unsupported: With the names of all inputs that it does not read.
        """
        held = {f"{name} table" for name in self.inputs.tables} | ({"features"} if self.features is not None else set())
        held |= {QUERY_STREAM} if self.queries is not None else set()
        held |= {SOURCE} if self.source is not None else set()
        if (state := self.inputs.segment_state) is not None:
            held |= {BOTH_WAYS} if state.backward is not None else set()
            held |= {REUSE} if state.reuse is not None else set()
        if ignored := sorted(held - supports):
            raise Unsupported(
                f"this encoder does not read {', '.join(ignored)}, which the batch holds. "
                f"It supports {', '.join(sorted(supports)) or 'tokens alone'}."
            )


@dataclass
class Encoded:
    """The output of a backbone. ``layers[0]`` is the embedding output, which may have another width than the others;
    ``layers[-1]`` equals ``last`` unless a final normalisation follows the last layer.

    A backbone may compute its last layer only where it is read (`Example.output_positions`). Then ``last`` is NaN
    elsewhere, so that a loss that reads more is none, and ``layers`` ends before the last layer.

    ``carry`` is what a backbone needs of the positions that it has read, an opaque value without gradient: given to
    ``forward`` together with the example of what follows, it spares reading them again. There are two: a text that is
    generated or scored begins with the carry `BEGIN`, which holds all of it; rows that go on from batch to batch begin
    with what `BackboneModule.begin` gives, as much as the model remembers in training. Without a carry none is
    returned. A backbone that has none refuses it.
    """

    layers: list[Float[Tensor, "b t _"]]
    last: Float[Tensor, "b t w"]  # as wide as the layers unless something else reads them, such as a BiLSTM
    table: Float[Tensor, "v e"]  # of word embeddings, to which output layers are tied; in clusters, of the first
    carry: Any = None
    queries: Float[Tensor, "b m w"] | None = None  # the last states of the queries of an example that has any
    clusters: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # see `ClusteredTable`; empty for one table
    teacher: Any = None  # what a teacher makes of the batch (`objectives.distillation.TeacherOutput`)
    vectors: Float[Tensor, "b k"] | None = None  # what represents each row, if not all of its states were kept

    @property
    def words(self) -> int:
        """Words of the table, or of all clusters."""
        return sum(len(table) for table, _ in self.clusters) or len(self.table)

    def at(self, where: Int[Tensor, " n"]) -> Float[Tensor, "n w"]:
        """The last states at flat positions."""
        return self.last.flatten(0, 1).index_select(0, where)

    def answering(self, target: Target) -> Float[Tensor, "n w"]:
        """The last states that answer a target which no other positions answer: of its queries, or at its positions."""
        if target.queries is None:
            return self.at(target.where)
        assert self.queries is not None
        return self.queries.flatten(0, 1).index_select(0, target.queries)


@dataclass(frozen=True)
class Size:
    """The widths of a backbone that heads need; ``divisor`` is above 1 where rarer words are narrower."""

    hidden_size: int
    embedding_size: int
    vocab_size: int
    divisor: int = 1
