"""Multiple choice: one score per option from what represents its row, softmax over a question's options.

An item has one row per option: ``[CLS] context [SEP] question option [SEP]``, or the same in another layout. The score
is the product of the pooled state with one vector, without bias (SWAG in Devlin et al. 2019, section 4.4), after
dropout as in the classifiers of section 4.1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lightning_modules.batch import Encoded, Example, Target
from lightning_modules.config import knob, required
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.tasks.reading.layout import LAYOUTS, Arranged, LayoutName, Segments
from lightning_modules.tasks.reading.lines import refused
from lightning_modules.tasks.reading.own_lines import OwnLine
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.reading.text_vectors import ReaderName
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.tasks.settings import FineTuning, HiddenLayer
from lightning_modules.tasks.shapes.shape import Labelled, Scored, Shape
from lightning_modules.tasks.shapes.texts import TextHead, truncated

RIGHT = "right"  # the name of the target
BLANK = "_"


class Question(NamedTuple):
    """One question as in its source.

    Attributes:
        context: The passage or sentence that the question refers to.
        question: The text before each option, or with a blank for it; may be empty.
        label: Number of the right option, from 0.
        group: The part of the data set, where parts have scores of their own.
    """

    context: str
    question: str
    options: tuple[str, ...]
    label: int
    group: str = ""


class ChoiceLine(OwnLine):
    """A question with options in a user's own file."""

    context: str = knob("", "The passage or sentence that the question refers to.")
    question: str = knob("", "The text before each option.")
    options: tuple[str, ...] = required("The options.")
    label: int = required("Number of the right option, from 0.")


def joined(question: str, option: str, blank: bool) -> str:
    """A question with the option in its blanks ("_"), if ``blank`` and it has any; else followed by the option.

    >>> joined("He is _ .", "tall", blank=True), joined("Who is tall?", "He", blank=True)
    ('He is tall .', 'Who is tall? He')
    """
    if blank and BLANK in question:
        return question.replace(BLANK, option)
    return f"{question} {option}" if question else option


@dataclass(frozen=True, eq=False)
class ChoiceExamples(Labelled):
    """The questions of a split. Each distinct text is held, and encoded, once.

    Attributes:
        known: The distinct texts, words separated by single spaces ``[m]``.
        context: Number of each question's context among them ``[n]``; None if contexts are hidden.
        rows: Number of each option, joined with its question ``[n k]``.
        labels: Number of the right option ``[n]``.
        groups: Part of the data set of each question ``[n]``.
        questions: Question and options, not joined, for baselines ``n x (question, options)``.
    """

    known: list[str]
    context: np.ndarray | None
    rows: np.ndarray
    labels: np.ndarray
    groups: np.ndarray
    questions: list[tuple[str, tuple[str, ...]]]
    shared = ("known",)

    def __len__(self) -> int:
        return len(self.labels)

    def contexts(self) -> list[str]:
        """The context of each question; empty if contexts are hidden."""
        return [""] * len(self) if self.context is None else [self.known[n] for n in self.context.tolist()]

    def items_for_pin(self) -> list[list[Any]]:
        """Context, questions joined with their options, number of the right option."""
        rows = [[self.known[n] for n in row] for row in self.rows.tolist()]
        return [list(item) for item in zip(self.contexts(), rows, self.labels.tolist(), strict=True)]

    def texts(self) -> list[str]:
        """The distinct texts."""
        return self.known

    def words(self) -> int:
        """Words of all rows; a context counts once per option."""
        sizes = np.array([text.count(" ") + 1 for text in self.known])
        shared = 0 if self.context is None else self.rows.shape[1] * sizes[self.context].sum()
        return int(sizes[self.rows].sum() + shared)

    def about(self) -> list[tuple[str, ...]]:
        """The context of each question; the question where there is none."""
        parts = zip(self.contexts(), self.questions, strict=True)
        return [(context or question,) for context, (question, _) in parts]


class ChoiceInputs(Arranged):
    """The encoded questions of a split, one row per option.

    Attributes:
        sizes: Positions of each row of each question ``[n k]``.
    """

    def __init__(
        self,
        examples: ChoiceExamples,
        pieces: Pieces,
        vocabulary: Vocabulary,
        max_length: int,
        last: int,
        layout: LayoutName = "cls_sep",
    ) -> None:
        self.examples, bounds = examples, pieces.bounds
        options = examples.rows.shape[1]
        start, end = bounds[examples.rows.ravel()], bounds[examples.rows.ravel() + 1]
        if examples.context is None:
            size = np.minimum(end - start, max_length - 2)
            start = end - size if last else start
            parts = [(start, start + size)]
        else:
            context = np.repeat(examples.context, options)
            sizes = bounds[context + 1] - bounds[context], end - start
            if last:
                second = np.minimum(sizes[1], min(last, (max_length - 3) // 2))
                left, start = np.minimum(sizes[0], max_length - 3 - second), end - second
            else:
                left, second = truncated(*sizes, max_length - 3)
            parts = [(bounds[context], bounds[context] + left), (start, start + second)]
        self.rows = Segments(pieces.ids, np.array(parts), vocabulary, layout)
        self.sizes = self.rows.lengths.reshape(-1, options)

    def goals(self, indices: np.ndarray, rows: int, length: int) -> dict[str, Target]:
        """1 for the row of a right option, 0 for the others."""
        right = np.arange(self.sizes.shape[1]) == self.examples.labels[indices, None]
        return {RIGHT: Target(torch.arange(rows) * length, torch.from_numpy(right.ravel().astype(np.int64)))}


class ChoiceHead(TextHead):
    """The head of texts with one output and no bias: what represents a row, BERT's pooler, dropout, one vector.

    Each row has a dropout mask of its own; GPT's released code has one for all options of a question.

    Args:
        hidden_size: Width d of the backbone.
        dropout: Dropout on the vector that the product reads.
        hidden: A layer before the last one, whose batch norm is over all rows; None for none.
    """

    target = RIGHT

    def __init__(
        self,
        hidden_size: int,
        options: int,
        dropout: float,
        reader: ReaderName = "first",
        pooler: bool = True,
        hidden: HiddenLayer | None = None,
    ) -> None:
        super().__init__(hidden_size, 1, dropout, reader, pooler, hidden=hidden)
        self.options = options
        self.output.register_parameter("bias", None)

    def forward(self, encoded: Encoded, example: Example) -> Float[Tensor, "n k"]:
        """The scores of each question's options."""
        return super().forward(encoded, example).view(-1, self.options)

    def loss(self, outputs: Float[Tensor, "n k"], example: Example) -> Tensor:
        """The sum of the questions' cross-entropies in nats."""
        labels = example.targets[RIGHT].ids.view(-1, self.options).argmax(1)
        return F.cross_entropy(outputs.float(), labels, reduction="sum")

    def count(self, example: Example) -> float:
        """Number of questions."""
        return super().count(example) / self.options


@dataclass(frozen=True)
class Choice(Shape):
    """Questions with exactly one right option.

    Attributes:
        last: Keep the last so many pieces of question and option and cut the context at its end to the remaining
            room, at least half (RACE in ALBERT's released code: 128 of 512). At 0 the longer of the two is cut at its
            end, as in BERT's pairs.
        blank: Whether "_" in a question marks the place of the option.
        context: Whether contexts are shown. Without them a row is ``[CLS] question option [SEP]``, a control for
            cues in the options.
    """

    options: int
    last: int = 0
    blank: bool = False
    context: bool = True
    layouts = frozenset(LAYOUTS)
    keeps_answers = taught = True
    parts = ("middle", "high")
    measures = {
        "accuracy": "share of questions answered correctly, 0 to 1",
        "middle_accuracy": "the same share, questions for middle schools",
        "high_accuracy": "the same share, questions for high schools",
    }

    @property
    def methods(self) -> dict[str, str]:
        """Name of each baseline -> what tables call it."""
        return super().methods if not self.context else {**super().methods, "tfidf": "TF-IDF similarity"}

    @property
    def reads(self) -> int:
        """Texts of a row: the context, and the question with an option."""
        return 1 + self.context

    @property
    def rows(self) -> int:
        """Rows per item."""
        return self.options

    @property
    def classes(self) -> int:
        """Number of possible answers of a question."""
        return self.options

    def read(self, rows: Iterable[Question], task: str) -> ChoiceExamples:
        """Checks that contexts and options are not empty and that every question has the shape's number of options."""
        source, wrong, known = list(rows), [], {}
        contexts, numbers, questions = [], [], []
        for number, row in enumerate(source):
            context, question, *options = (" ".join(text.split()) for text in (row.context, row.question, *row.options))
            if problem := self.problem(row):
                wrong.append(f"example {number} of '{task}' {problem}")
            contexts.append(known.setdefault(context, len(known)) if self.context else 0)
            texts = [joined(question, option, self.blank) for option in options]
            numbers.append([known.setdefault(text, len(known)) for text in texts])
            questions.append((question, tuple(options)))
        if wrong:
            raise refused(wrong)
        return ChoiceExamples(
            list(known),
            np.array(contexts) if self.context else None,
            np.array(numbers),
            np.array([row.label for row in source]),
            np.array([row.group for row in source]),
            questions,
        )

    line = ChoiceLine

    def row(self, line: ChoiceLine, number: int) -> Question:
        """The question with its options."""
        return Question(line.context, line.question, line.options, line.label)

    def problem(self, row: Question) -> str:
        """Another number of options, a right one that is none of them, or an empty text."""
        if len(row.options) != self.options or row.label not in range(self.options):
            return (
                f"has {len(row.options)} options, and number {row.label} is right. "
                f"It must have {self.options}, numbered from 0"
            )
        needed = [*row.options, row.context] if self.context else row.options
        return "" if all(text.split() for text in needed) else "has an empty text"

    def text_of(self, row: Question) -> str:
        """The context; the question where there is none."""
        return row.context or row.question

    @property
    def usual(self) -> tuple[str, ...]:
        """Accuracy over all questions."""
        return ("accuracy",)

    def inputs(
        self, examples: ChoiceExamples, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning
    ) -> ChoiceInputs:
        """The questions as rows of at most ``max_length`` positions."""
        return ChoiceInputs(examples, pieces, vocabulary, settings.max_length, self.last, settings.layout)

    def head(self, hidden_size: int, settings: FineTuning) -> ChoiceHead:
        """A new `ChoiceHead`."""
        reader, hidden = settings.reader or "first", settings.hidden_layer
        return ChoiceHead(hidden_size, self.options, settings.dropout, reader, settings.pooler, hidden)

    def score(self, answers: np.ndarray, examples: ChoiceExamples, metrics: Sequence[str]) -> Scored:
        """Accuracies over all questions or a group; keeps ``answer`` and ``right`` of each question."""
        right, scores = answers == examples.labels, {}
        for name in metrics:
            group = name.removesuffix("accuracy").removesuffix("_")
            scores[name] = float(right[examples.groups == group].mean() if group else right.mean())
        return Scored(scores, {"answer": pack(answers.astype(np.int64)), "right": pack(right)})

    def baselines(self, train: ChoiceExamples, dev: ChoiceExamples) -> dict[str, np.ndarray]:
        """``majority``: the most frequent position of the right option; ``tfidf``: see `lexical.by_words`."""
        from lightning_modules.tasks.baselines.lexical import by_words  # seconds to import, which planning does without

        constant = np.bincount(train.labels, minlength=self.options).argmax()
        return {"majority": np.full(len(dev), constant), "tfidf": by_words(train, dev)}
