"""The held-out examples: fixed sequences under fixed noise."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from lightning_modules.batch import Example, SegmentState, Tokens
from lightning_modules.config import ConfigError
from lightning_modules.data.formats.format import Sequences
from lightning_modules.data.formats.stream import Stream
from lightning_modules.data.order.batches import CollateFn, uncorrupted
from lightning_modules.draws import Draws, permutation

_SEED = 0  # held-out sequences and their masks are the same for every run


class HeldOut:
    """Held-out sequences: the same examples for every run with the same data and format.

    Every rank evaluates all of them, so that each has the complete result.
    """

    def __init__(self, sequences: Sequences, count: int, batch_size: int, collate: CollateFn = uncorrupted) -> None:
        self.sequences, self.batch_size, self.collate = sequences, batch_size, collate
        self.chosen = permutation(_SEED, "heldout", 0, len(sequences))[:count]
        self._examples: list[Example] | None = None

    def __len__(self) -> int:
        return -(-len(self.chosen) // self.batch_size)

    def __iter__(self) -> Iterator[Example]:
        if self._examples is None:
            self._examples = [self._example(n * self.batch_size) for n in range(len(self))]
        return iter(self._examples)

    def _example(self, start: int) -> Example:
        sample = self.chosen[start : start + self.batch_size].astype(np.int64)
        draws = Draws(seed=_SEED, rows=sample, sample=sample, epoch=np.zeros_like(sample))
        return self.collate(self._tokens(sample), draws, self.sequences.store.vocabulary)

    def _tokens(self, sample: np.ndarray) -> Tokens:
        return self.sequences.batch(sample)


@dataclass(frozen=True)
class Reading:
    """How the rows of a held-out stream are read: segment by segment, all rows at once.

    Attributes:
        rows: Rows, which begin at places spread evenly over the text.
        length: Positions of a segment; the last one of the rows may be shorter.
        context: Positions before a segment, of the same row, that are read again with it and predict nothing. Then rows
            do not go on from segment to segment.
    """

    rows: int
    length: int
    context: int = 0


class HeldOutStream(HeldOut):
    """A held-out stream: all positions of some rows predict, each once, whatever the length of segments.

    Args:
        tokens: Positions of all rows together, at most.

    Raises:
        ConfigError: When the text is shorter than the rows.
    """

    def __init__(self, stream: Stream, tokens: int, reading: Reading, collate: CollateFn = uncorrupted) -> None:
        rows, part = reading.rows, (stream.tokens - 1) // reading.rows  # of the text, from row to row
        self.width = min(part, tokens // rows)
        if self.width < 1:
            raise ConfigError(
                [
                    f"{min(stream.tokens - 1, tokens)} positions of held-out text cannot be laid out in "
                    f"evaluation.rows {rows}: lower it, raise evaluation.sequences, or add text"
                ]
            )
        ends = np.append(np.arange(0, self.width, reading.length), self.width)
        edges = np.append(np.arange(rows)[:, None] * part + ends, rows * part)
        super().__init__(stream.cut(edges, reading.length), 0, rows, collate)
        self.reading, self.segments = reading, len(ends) - 1
        # the last stretch of each row leads to the next one and is not shown
        self.chosen = (np.arange(self.segments)[:, None] + np.arange(rows) * len(ends)).ravel()

    def segment(self, number: int) -> Example:
        """A segment of all rows."""
        return self._example(number * self.batch_size)

    def _tokens(self, sample: np.ndarray) -> Tokens:
        column = int(sample[0])
        context = min(self.reading.context, column * self.reading.length)
        assert isinstance(self.sequences, Stream)
        tokens = self.sequences.batch(sample, context=context)
        if not self.reading.context:
            tokens.segment_state = SegmentState(0, None if column else torch.ones(len(sample), dtype=torch.bool))
        return tokens
