"""The phases of a training: first a shorter arrangement of its text, if there is one, then the full one."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lightning_modules.config import ConfigError
from lightning_modules.data.formats.by_language import InTurn, SeveralLanguages
from lightning_modules.data.formats.parts import Arranged
from lightning_modules.data.formats.stream import Stream
from lightning_modules.data.order.languages import ByLanguage
from lightning_modules.data.order.portions import Portions
from lightning_modules.data.order.shuffled import Bucketed, BySequences, ByTokens, DrawnLengths, Streamed
from lightning_modules.draws import Draws


@dataclass(frozen=True, eq=False)
class Phase:
    """Consecutive steps of a training that show one arrangement of its text.

    Attributes:
        order: Which of its sequences come when.
        start: The step of the training with which it begins.
    """

    sequences: Arranged
    order: BySequences
    start: int
    steps: int

    def presented(self, step: int) -> Draws:
        """The sequences that a step of the training presents, and the keys of their noise."""
        return self.order.presented(step - self.start)

    def fresh(self, step: int) -> bool | None:
        """Whether the rows of a step start again from nothing. None where rows do not go on from step to step."""
        return self.order.fresh(step - self.start)

    def length(self, step: int) -> int | None:
        """Positions of the rows of a step of the training, if they are drawn: then samples are places of the text."""
        return self.order.length(step - self.start)

    def lengths(self, step: int) -> np.ndarray:
        """How many of its sequences of each number of real positions are presented before a step of the training."""
        return self.order.lengths(min(max(step - self.start, 0), self.steps))


def phases(sequences: Arranged, portions: Portions, first: Arranged | None = None) -> list[Phase]:
    """The phases of a training.

    Args:
        sequences: The arrangement of the last steps, or of all.
        first: The arrangement of the first steps.

    Raises:
        ConfigError: When an arrangement has no sequence.
    """
    parts = [(sequences, portions.first_steps, max(portions.steps - portions.first_steps, 0))]
    parts = [(first, 0, portions.first_steps), *parts] if first is not None else parts
    made: list[Phase] = []
    for arranged, start, steps in parts:
        before = made[-1].order.first(made[-1].steps) if made else 0
        made.append(Phase(arranged, _order(arranged, portions, sequences.length, before), start, steps))
    return made


def _order(arranged: Arranged, portions: Portions, longest: int, before: int) -> BySequences:
    seed, batch = portions.seed, portions.batch_size
    if arranged.goes_on:
        rows = batch // 2 if portions.both_ways else batch
        if len(arranged) < rows:
            assert isinstance(arranged, Stream)
            held, needed = arranged.tokens, arranged.needed(rows)
            raise ConfigError(
                [
                    f"the text of {arranged.store.folder} has {held} tokens. One step of a stream needs {needed}: "
                    f"training.batch_size {batch} rows{' in two directions' * portions.both_ways} of "
                    f"format.sequence_length {arranged.length}, and the token after them. Add text, or lower one of "
                    "the two."
                ]
            )
        if portions.lengths_drawn:
            assert isinstance(arranged, Stream)
            width = np.array([(arranged.tokens - 1) // rows])
            usual, multiple = arranged.length, portions.drawn_multiple
            return DrawnLengths(seed, width, batch, before, usual, portions.steps, multiple)
        return Streamed(seed, arranged.sizes, batch, before, portions.both_ways, portions.drawn)
    if len(arranged) == 0:
        raise ConfigError(
            [f"the text of {arranged.store.folder} has no sequence of {arranged.length} positions. Add text."]
        )
    if portions.bucket_steps > 1:
        assert not isinstance(arranged, InTurn), "refused with `format.languages`"
        sizes, alike = arranged.sizes, arranged.alike
        return Bucketed(seed, sizes, batch * longest, alike=alike, together=portions.bucket_steps)
    kind, unit = (ByTokens, longest) if portions.by_tokens else (BySequences, 1)
    if not isinstance(arranged, SeveralLanguages):
        return kind(seed, arranged.sizes, batch * unit, before)
    groups = [group for turn in arranged.turns for group in turn]
    orders = tuple(kind(seed, arranged.sizes[group.first : group.end], batch * unit) for group in groups)
    exponent = portions.language_exponent
    return ByLanguage(seed, arranged.sizes, batch, before, arranged.turns, orders, exponent, portions.steps)


def shown(made: list[Phase], portions: Portions, steps: int) -> Counter[int]:
    """Positions -> how many rows of so many positions the first steps of a training show.

    Where steps have equally many sequences, rows count in full, as published costs do; by tokens without padding, and
    of drawn lengths as they were drawn.
    """
    rows: Counter[int] = Counter()
    for phase in made:
        lengths = phase.lengths(steps)
        if portions.by_tokens or portions.lengths_drawn:
            rows.update({int(length): int(lengths[length]) for length in np.flatnonzero(lengths)})
        else:
            rows[phase.sequences.length] += int(lengths.sum())
    return rows


def real_tokens(made: list[Phase], steps: int) -> int:
    """The positions that are no padding of all rows that the first steps of a training show."""
    return sum(int(np.dot(lengths, np.arange(len(lengths)))) for lengths in (phase.lengths(steps) for phase in made))


def tokens_by_language(made: list[Phase], steps: int) -> dict[str, int]:
    """Language -> the positions of its rows that are no padding, of those that the first steps of a training show.

    Of a pair those of each sentence. Empty where languages are not known.
    """
    (last,) = made[-1:]
    arranged = last.sequences
    if not isinstance(arranged, SeveralLanguages):
        return {}
    counts = last.order.total(min(steps, last.steps), arranged.tokens_by_language())
    return dict(zip(arranged.names, map(int, counts), strict=True))
