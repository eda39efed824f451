"""What is known of a batch's text before anything is hidden: which positions may be, and where its words are."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from lightning_modules.batch import Annotation, Tokens, Unsupported, Vocabulary
from lightning_modules.words import beginnings


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of neighbouring positions, such as words, in the order of each row.

    Attributes:
        first: First position of each stretch ``[b w]``; the length of a row where a row has fewer.
        size: Number of its positions ``[b w]``; 0 where a row has fewer.
        number: Number of the stretch of each position ``[b t]``; meaningless outside of stretches.
    """

    first: np.ndarray
    size: np.ndarray
    number: np.ndarray

    @classmethod
    def of(cls, members: np.ndarray, begins: np.ndarray) -> Self:
        """The stretches of some positions ``[b t]``, each from a beginning to the next."""
        rows, length = members.shape
        number = np.cumsum(begins, axis=1) - 1
        most = max(1, int(number[:, -1].max(initial=0)) + 1)
        row, column = np.nonzero(begins)
        first = np.full((rows, most), length)
        first[row, number[row, column]] = column
        row, column = np.nonzero(members)
        size = np.bincount(row * most + number[row, column], minlength=rows * most).reshape(rows, most)
        return cls(first, size, number)

    @property
    def end(self) -> np.ndarray:
        """The position after each stretch ``[b w]``."""
        return self.first + self.size

    @cached_property
    def following(self) -> np.ndarray:
        """How many stretches follow each other without a gap from each one on, itself included ``[b w]``."""
        count = self.first.shape[1]
        last = np.full_like(self.first, count - 1)
        joined = (self.first[:, 1:] == self.end[:, :-1]) & (self.size[:, 1:] > 0)
        last[:, :-1] = np.where(joined, count - 1, np.arange(count - 1))
        return np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1] - np.arange(count) + 1


@dataclass(frozen=True, eq=False)
class Text:
    """The text of a batch.

    Attributes:
        vocabulary: The pieces; says where words begin.
    """

    tokens: Tokens
    vocabulary: Vocabulary

    @cached_property
    def candidates(self) -> np.ndarray:
        """The positions that may be hidden ``[b t]``: neither special nor padding."""
        return (self.tokens.real & ~self.tokens.special).numpy()

    @cached_property
    def begins(self) -> np.ndarray:
        """The first pieces of words ``[b t]``."""
        return beginnings(self.vocabulary.word_edges, self.tokens.ids.numpy(), self.candidates)

    @cached_property
    def words(self) -> Stretches:
        """The words; none crosses a special position."""
        return Stretches.of(self.candidates, self.begins)

    def tagged(self, annotation: Annotation) -> Stretches:
        """The stretches that an annotator found.

        Raises:
            Unsupported: When the text was not annotated.
        """
        if annotation not in self.tokens.marks:
            held = ", ".join(f"{tags} by {annotator}" for annotator, tags in self.tokens.marks) or "none"
            raise Unsupported(f"the text has no annotation of {annotation[1]} by {annotation[0]}. It has {held}.")
        marks = self.tokens.marks[annotation].numpy()
        members = (marks > 0) & self.candidates
        begins = members.copy()
        begins[:, 1:] &= (marks[:, 1:] == 1) | ~members[:, :-1]
        return Stretches.of(members, begins)


def runs(hidden: np.ndarray) -> np.ndarray:
    """The groups of hidden positions that touch: the first position of each one's group ``[b t]``, -1 elsewhere."""
    column = np.arange(hidden.shape[1])
    starts = hidden.copy()
    starts[:, 1:] &= ~hidden[:, :-1]
    return np.where(hidden, np.maximum.accumulate(np.where(starts, column, -1), axis=1), -1)


def spread(stretches: Stretches, group: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Groups of positions ``[b t]`` from groups of stretches ``[b w]``, -1 where nothing is hidden."""
    rows = np.arange(len(members))[:, None]
    return np.where(members, group[rows, np.maximum(stretches.number, 0)], -1)
