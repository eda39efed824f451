"""Questions about passages, each answered by a stretch of its passage: the examples of the shape ``Spans``."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

_WORD = re.compile(r"\S+")


class Question(NamedTuple):
    """One question as its source spells it.

    Attributes:
        id: Its name in the data set.
        text: What is asked.
        context: The passage that is asked of.
        answers: Where each marked answer starts in the passage, in characters, and its text; none where the passage
            does not hold an answer.
    """

    id: str
    text: str
    context: str
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, eq=False)
class SpanExamples:
    """The questions of a split.

    Attributes:
        ids: Names of the questions ``[n]``.
        questions: What is asked, words separated by single spaces ``[n]``.
        contexts: The passages as their source has them, each once.
        where: Which passage each question asks of ``[n]``.
        answers: Of each question the starts and texts of its marked answers ``[n]``.
    """

    ids: list[str]
    questions: list[str]
    contexts: list[str]
    where: np.ndarray
    answers: list[tuple[tuple[int, str], ...]]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, found: list[Question]) -> Self:
        """The examples, with each passage once."""
        numbers: dict[str, int] = {}
        where = np.array([numbers.setdefault(row.context, len(numbers)) for row in found], dtype=np.int64)
        questions = [" ".join(row.text.split()) for row in found]
        return cls([row.id for row in found], questions, list(numbers), where, [tuple(row.answers) for row in found])

    def items_for_pin(self) -> list[list[Any]]:
        """Id, question, number of the passage, its text where it comes first, answers."""
        seen: set[int] = set()
        rows = []
        for n, context in enumerate(self.where.tolist()):
            text = "" if context in seen else self.contexts[context]
            seen.add(context)
            rows.append([self.ids[n], self.questions[n], context, text, [list(answer) for answer in self.answers[n]]])
        return rows

    def texts(self) -> list[str]:
        """The questions, then the passages, each once."""
        return self.questions + [" ".join(context.split()) for context in self.contexts]

    def words(self) -> int:
        """Words of all questions and of the passage of each."""
        of_context = np.array([len(context.split()) for context in self.contexts], dtype=np.int64)
        return sum(question.count(" ") + 1 for question in self.questions) + int(of_context[self.where].sum())

    def take(self, numbers: np.ndarray) -> Self:
        """Some of the questions and their passages."""
        used, where = np.unique(self.where[numbers], return_inverse=True)
        chosen = numbers.tolist()
        return type(self)(
            [self.ids[n] for n in chosen],
            [self.questions[n] for n in chosen],
            [self.contexts[n] for n in used.tolist()],
            where.astype(np.int64),
            [self.answers[n] for n in chosen],
        )

    @cached_property
    def bounds(self) -> "Words":
        """Where the words of the passages are."""
        return Words.of(self.contexts)


@dataclass(frozen=True, eq=False)
class Words:
    """Where the words of some texts are: runs of characters other than white space.

    Attributes:
        starts: First character of each word, counted in its text ``[w]``.
        ends: The character after its last ``[w]``.
        texts: Where each text's words start among all, and the end ``[n + 1]``.
    """

    starts: np.ndarray
    ends: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, texts: list[str]) -> "Words":
        """The words of texts; a text without any has an empty one, as where it is encoded."""
        found = [[match.span() for match in _WORD.finditer(text)] or [(0, 0)] for text in texts]
        flat = np.array([span for spans in found for span in spans], dtype=np.int32).reshape(-1, 2)
        return cls(
            flat[:, 0], flat[:, 1], np.concatenate([[0], np.cumsum([len(spans) for spans in found])]).astype(int)
        )

    def covering(self, text: int, start: int, end: int) -> tuple[int, int]:
        """The first and the last word of the characters ``start`` to before ``end`` of a text, counted among all."""
        first, stop = self.texts[text], self.texts[text + 1]
        left = first + np.searchsorted(self.ends[first:stop], start, side="right")
        right = first + np.searchsorted(self.starts[first:stop], end, side="left") - 1
        return int(left), int(right)
