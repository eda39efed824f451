"""What all input formats share: common knobs, the sequences that a text is arranged as, and a part of those."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from lightning_modules import cached
from lightning_modules.batch import Tokens
from lightning_modules.config import ConfigError, Problem, Settings, identity, knob, once, problems
from lightning_modules.data.store import TokenStore
from lightning_modules.draws import permutation
from lightning_modules.problems import did_you_mean

_KNOBS: dict[str, dict[str, FieldInfo]] = {}  # name -> the kinds that have it
_ALONE = ("frame", "languages")  # knobs that are refused where they have no effect


class Sequences(ABC):
    """The sequences of a store: each shows one or more stretches of its text.

    Attributes:
        specials: Special tokens of a sequence.
        length: Positions of a sequence.
    """

    specials: ClassVar[int]

    store: TokenStore
    length: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    @abstractmethod
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start and end of the stretches of text that each sequence shows, each ``[sequences]``."""

    @abstractmethod
    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """The sequences with these numbers, as rows ``[b t]``; of so many positions, by default of all."""

    @property
    def starts(self) -> np.ndarray:
        """Where in the text each sequence begins ``[sequences]``."""
        return self.stretches[0][0]

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Positions of each sequence that are no padding ``[sequences]``."""
        return sum((end - start for start, end in self.stretches), np.full(len(self), self.specials))

    @property
    def alike(self) -> np.ndarray:
        """A number for each sequence: those with neighbouring numbers have similar lengths ``[sequences]``."""
        return self.sizes


@dataclass(frozen=True, eq=False)
class Subset(Sequences):
    """Some of the sequences of a store, numbered again from 0: less text, shown more often.

    Attributes:
        chosen: The numbers of those that belong to it.
    """

    whole: Sequences
    chosen: np.ndarray

    def __post_init__(self) -> None:
        for name in ("store", "length"):
            object.__setattr__(self, name, getattr(self.whole, name))

    @classmethod
    def share(cls, whole: Sequences, share: float) -> Sequences:
        """A share of the sequences, at least one of them, drawn at random but once and for all.

        All seeds have the same part, and a smaller part is within a larger one.
        """
        if share >= 1:
            return whole
        return cls(whole, permutation(0, "part of the text", 0, len(whole))[: max(1, round(share * len(whole)))])

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def stretches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Sequences.stretches`."""
        return [(start[self.chosen], end[self.chosen]) for start, end in self.whole.stretches]

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """See `Sequences.sizes`."""
        return self.whole.sizes[self.chosen]

    @property
    def alike(self) -> np.ndarray:
        """See `Sequences.alike`."""
        return self.whole.alike[self.chosen]

    def batch(self, indices: np.ndarray, length: int | None = None) -> Tokens:
        """See `Sequences.batch`."""
        return self.whole.batch(self.chosen[np.asarray(indices)], length)


class InputFormat(Settings):
    """How documents are arranged as sequences, once, before any corruption; each ``kind`` has a class of its own.

    One recipe may set knobs for formats of several kinds. A knob of another kind has no effect here, and has one again
    where the kind is changed.
    """

    model_config = ConfigDict(extra="allow")
    keeps_knobs: ClassVar[bool] = True  # a format of another kind starts from the knobs that both have
    labels: ClassVar[Any] = frozenset[str]()  # of sequences that its batches hold, which objectives may read
    gives: ClassVar[frozenset[str]] = frozenset({"segment table"})  # what the backbone reads besides ids
    sides: ClassVar[int] = 1  # sequences of a row: two with a source, which are counted together where rows are counted
    _same: ClassVar[Mapping[str, Any]] = {"share": 1.0}  # knobs that choose from the same sequences

    kind: Any = knob(None, "Layout.")  # of a format itself, its name
    sequence_length: int = knob(
        512,
        "Positions per sequence, special tokens included. With seq2seq those of each side, and longer pairs are left "
        "out.",
        ge=8,
        le=1 << 20,
    )
    share: float = knob(
        1.0,
        "Share of the training sequences that are shown, drawn once at random: the same for all seeds. A smaller share "
        "is within a larger one.",
        neutral=1.0,
        gt=0,
        le=1,
    )
    first_share: float = knob(
        0.0,
        "Length curriculum: share of the steps, the first ones, that show first_length positions, 0.9 in BERT.",
        neutral=0.0,
        ge=0,
        lt=1,
    )
    first_length: int | None = knob(
        None,
        "Length curriculum: positions per sequence of the first steps. Without effect from sequence_length up.",
        neutral=None,
        ge=8,
        le=1 << 20,
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if kind := cls.model_fields["kind"].default:
            for name, info in cls.model_fields.items():
                _KNOBS.setdefault(name, {})[kind] = info

    def __getattr__(self, name: str) -> Any:
        if name in _KNOBS:
            return (self.__pydantic_extra__ or {}).get(name, _info(name).default)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    @model_validator(mode="before")
    @classmethod
    def _knobs_of_other_kinds_are_valid(cls, data: Any) -> Any:
        others = {n: value for n, value in data.items() if n not in cls.model_fields} if isinstance(data, dict) else {}
        for name, value in others.items():
            if name not in _KNOBS:
                raise ConfigError([Problem(name, f"there is no such knob.{did_you_mean(name, _KNOBS)}")])
            try:
                _adapter(name).validate_python(value, strict=True)
            except ValidationError as error:
                raise ConfigError([Problem(name, wrong.message) for wrong in problems(error, cls)]) from None
            if name in _ALONE and value != _neutral(name):
                kinds, kind = " or ".join(_KNOBS[name]), cls.model_fields["kind"].default
                but = f"set {name} to {_neutral(name)}, or kind to {kinds}"
                raise ValueError(f"{name} {value} is of kind {kinds}, and kind is {kind}: {but}")
        return data

    @model_validator(mode="after")
    def _first_steps_have_a_length(self) -> Self:
        if self.first_share and self.first_length is None:
            raise ValueError(
                f"first_share {self.first_share:g} needs first_length, the positions of these steps. BERT has 128."
            )
        return self

    @once
    def resolved(self) -> Self:
        """The settings with knobs that have no effect set to their neutral values."""
        shorter = self.first_length is not None and self.first_length < self.sequence_length
        form = self if shorter and self.first_share else self._of_one_length(self.sequence_length)
        others = {name: _neutral(name) for name in _KNOBS if name not in type(self).model_fields}
        return form.model_copy(update=others | form._idle())

    def _idle(self) -> dict[str, Any]:
        """Own knobs without effect, at their neutral values."""
        return {}

    @property
    def longest(self) -> int:
        """The most positions of a row."""
        return self.sequence_length

    def unpredicted(self, positions: int) -> int:
        """Tokens of a row of so many positions, with one segment and of one document, that no neighbour predicts.

        ``[CLS]`` and ``[SEP]``, or the first token of a block; the rows of a stream predict as many as they have. Of a
        source, half of the positions, none is predicted.
        """
        return 2

    def length_shares(self, length: int) -> dict[int, float]:
        """The probability of each number of positions of a step that has usually so many."""
        return {length: 1.0}

    def _of_one_length(self, length: int) -> Self:
        return self.model_copy(update={"sequence_length": length, "first_share": 0.0, "first_length": None})

    def first(self) -> Self | None:
        """The format of the first steps of a length curriculum, if there is one."""
        length = self.resolved().first_length
        return self._of_one_length(length) if length else None

    def stages(self, steps: int) -> list[tuple[int, int]]:
        """Positions of a row, of all sides, and number of steps of each stage of a training of so many steps."""
        form = self.resolved()
        first = round(form.first_share * steps)
        last = form.sides * form.sequence_length
        return [(form.first_length, first)] * bool(form.first_length) + [(last, steps - first)]

    @abstractmethod
    def heldout(self, *, blocks: bool = False) -> "InputFormat":
        """The format of the held-out text: running text of full length, so that measures are comparable.

        That of a stream is a stream, and that of pairs of two sequences is such pairs; for all others it is the same.

        Args:
            blocks: Whether it is cut at a fixed length for full sentences too, as it is for every other format.
        """

    @abstractmethod
    def arrange(self, store: TokenStore) -> Sequences:
        """The sequences of a store, in the order of the text; the index is cached in its folder."""

    def _cached(self, store: TokenStore, name: str, recipe: int, make: Callable[[], np.ndarray]) -> np.ndarray:
        whole = self._of_one_length(self.sequence_length).model_copy(update=self._same)
        path = store.folder / f"{name}-{identity([whole.essence(), recipe])[:12]}.npy"
        return cached.kept_array(path, make)


def _info(name: str) -> FieldInfo:
    return next(iter(_KNOBS[name].values()))


def _neutral(name: str) -> Any:
    extra: Any = _info(name).json_schema_extra
    return extra["neutral"]


@functools.cache
def _adapter(name: str) -> TypeAdapter:
    allowed: Any = Annotated[_info(name).annotation, _info(name)]
    return TypeAdapter(allowed)
