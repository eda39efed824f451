"""Questions about passages, each answered by a span of its passage: the examples of the shape ``Spans``."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

_WORD = re.compile(r"\S+")


class Question(NamedTuple):
    """One question as in its source.

    Attributes:
        id: Its id in the data set.
        answers: Start in the passage (in characters) and text of each marked answer; empty if the passage has no
            answer.
    """

    id: str
    text: str
    context: str
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, eq=False)
class SpanExamples:
    """The questions of a split.

    Attributes:
        ids: Ids of the questions ``[n]``.
        questions: The questions, words separated by single spaces ``[n]``.
        contexts: The passages as in their source, each once.
        where: Number of each question's passage ``[n]``.
        answers: Starts and texts of each question's marked answers ``[n]``.
    """

    ids: list[str]
    questions: list[str]
    contexts: list[str]
    where: np.ndarray
    answers: list[tuple[tuple[int, str], ...]]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, rows: list[Question]) -> Self:
        """The examples, with each passage once."""
        numbers: dict[str, int] = {}
        where = np.array([numbers.setdefault(row.context, len(numbers)) for row in rows], dtype=np.int64)
        questions = [" ".join(row.text.split()) for row in rows]
        return cls([row.id for row in rows], questions, list(numbers), where, [tuple(row.answers) for row in rows])

    def gold(self) -> list[tuple[str, ...]]:
        """The texts of the right answers of each question; none where it has no answer."""
        return [tuple(text for _, text in answers) for answers in self.answers]

    def items_for_pin(self) -> list[list[Any]]:
        """Id, question, number of the passage, its text at its first occurrence, answers."""
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
        """Words of all questions and of each question's passage."""
        of_context = np.array([len(context.split()) for context in self.contexts], dtype=np.int64)
        return sum(question.count(" ") + 1 for question in self.questions) + int(of_context[self.where].sum())

    def about(self) -> list[tuple[str, ...]]:
        """The passage of each question."""
        passages = [" ".join(context.split()) for context in self.contexts]
        return [(passages[n],) for n in self.where.tolist()]

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
    """The bounds of the words of some texts; a word is a run of characters other than white space.

    Attributes:
        starts: First character of each word in its text ``[w]``.
        ends: The character after its last one ``[w]``.
        texts: Where each text's words start among all words, and the end ``[n + 1]``.
    """

    starts: np.ndarray
    ends: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, texts: list[str]) -> "Words":
        """The words of texts; a text without any has one empty word, as in the encoder."""
        words = [[match.span() for match in _WORD.finditer(text)] or [(0, 0)] for text in texts]
        flat = np.array([span for spans in words for span in spans], dtype=np.int32).reshape(-1, 2)
        return cls(
            flat[:, 0], flat[:, 1], np.concatenate([[0], np.cumsum([len(spans) for spans in words])]).astype(int)
        )

    def covering(self, text: int, start: int, end: int) -> tuple[int, int]:
        """The first and last word of a text that characters ``start`` (inclusive) to ``end`` (exclusive) touch."""
        first, stop = self.texts[text], self.texts[text + 1]
        left = first + np.searchsorted(self.ends[first:stop], start, side="right")
        right = first + np.searchsorted(self.starts[first:stop], end, side="left") - 1
        return int(left), int(right)
