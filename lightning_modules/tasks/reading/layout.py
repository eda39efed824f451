"""Rows of one or two texts between special symbols: ``[CLS] a [SEP] b [SEP]``, or another layout.

Layouts differ in their symbols alone, so all of them leave the same room for the texts, which are cut alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from lightning_modules.batch import Example, Target, Tokens
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model.embeddings import FIRST_NEW

MARKS = 2  # symbols of a row of one text
LayoutName = Literal["cls_sep", "cls_last", "extract"]


class Marks(NamedTuple):
    """The ids of the symbols of a row: before its first text, between two texts, after the last."""

    start: int
    between: int
    end: int


class Layout(NamedTuple):
    """One way to arrange texts in a row.

    Attributes:
        words: A row of one text and a row of two, for people.
        new: Symbols that no vocabulary has: each is a new row of the embedding table.
        marks: The symbols, for a vocabulary.
        segments: How many numbers of segments its rows have.
    """

    words: tuple[str, str]
    new: int
    marks: Callable[[Vocabulary], Marks]
    segments: int = 2


def _berts(vocabulary: Vocabulary) -> Marks:
    return Marks(vocabulary.cls, vocabulary.sep, vocabulary.sep)


LAYOUTS: dict[LayoutName, Layout] = {
    "cls_sep": Layout(("[CLS] a [SEP]", "[CLS] a [SEP] b [SEP]"), 0, _berts),
    # Yang et al. 2019, released code; section 2.5 prints [CLS] first
    "cls_last": Layout(("a [SEP] [CLS]", "a [SEP] b [SEP] [CLS]"), 0, _berts, segments=3),
    # Radford et al. 2018, section 3.3 and Figure 1
    "extract": Layout(
        ("[start] a [extract]", "[start] a [delimiter] b [extract]"),
        3,
        lambda vocabulary: Marks(FIRST_NEW, FIRST_NEW + 1, FIRST_NEW + 2),
    ),
}


class Segments:
    """Rows of one or two runs of pieces each, between special symbols.

    Segment numbers are 0 for the first symbol, the first run and the symbol behind it, 1 for the second run and its,
    and 2 for a [CLS] behind all.

    Args:
        ids: Token ids ``[m]``.
        parts: Where each row's first run starts and ends in ``ids``, and its second ``[1 or 2, 2, n]``.
        layout: Which symbols are around the runs.
    """

    def __init__(
        self, ids: np.ndarray, parts: np.ndarray, vocabulary: Vocabulary, layout: LayoutName = "cls_sep"
    ) -> None:
        self.ids, self.parts, self.vocabulary = ids, parts, vocabulary
        self.pad, self.marks, self.cls_last = vocabulary.pad, LAYOUTS[layout].marks(vocabulary), layout == "cls_last"

    @cached_property
    def lengths(self) -> np.ndarray:
        """Positions of each row, special tokens included ``[n]``."""
        return (self.parts[:, 1] - self.parts[:, 0]).sum(0) + len(self.parts) + 1

    def tokens(self, rows: np.ndarray) -> Tokens:
        """The rows with these numbers ``[b t]``, padded to the longest of them."""
        parts = self.parts[:, :, rows, None]
        start, end = parts[0]
        column = np.arange(self.lengths[rows].max())
        middle = 1 + end - start  # the symbol behind the first run
        source, last, second = start + column - 1, middle, np.zeros((len(rows), len(column)), dtype=bool)
        if len(parts) == 2:
            start, end = parts[1]
            last, second = middle + 1 + end - start, column > middle
            source = np.where(second, start + column - middle - 1, source)
        real, separator = column <= last, (column == middle) | (column == last)
        ids = self.ids[np.clip(source, 0, max(0, len(self.ids) - 1))].astype(np.int64)
        ids[~real] = self.pad
        ids[separator] = np.where(column == last, self.marks.end, self.marks.between)[separator]
        ids[:, 0] = self.marks.start
        special = separator | ~real
        special[:, 0] = True
        tokens = Tokens.of(ids, special, real, rows, {"segment": (second & real).astype(np.int64)})
        return tokens.with_cls_last() if self.cls_last else tokens


class Arranged(ABC):
    """Items of one row each, or of several that are compared with each other.

    Attributes:
        rows: The rows of all items, one item after the other.
        sizes: Positions of each row of each item, special tokens included ``[n k]``.
    """

    rows: Segments
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    def batch(self, indices: np.ndarray) -> Example:
        """The items with these numbers, padded to the longest row of them: ``[b t]``, b = items x rows."""
        indices, each = np.asarray(indices, dtype=np.int64), self.sizes.shape[1]
        example = Example.of(self.rows.tokens((indices[:, None] * each + np.arange(each)).ravel()))
        example.targets.update(self.goals(indices, *example.inputs.ids.shape))
        return example

    @abstractmethod
    def goals(self, indices: np.ndarray, rows: int, length: int) -> dict[str, Target]:
        """What some items should predict, by name, in a batch of so many rows and positions."""
