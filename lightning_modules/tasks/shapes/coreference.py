"""Which of two names a pronoun refers to, or neither: three classes, from the states of the three mentions.

A mention is represented by the states of its first and last piece. A small network, the same for both names, scores
each name from the pronoun's mention, its own, and their product; "neither" has the score 0, as the missing antecedent
of Lee et al. (2017, section 3). So swapping the names swaps the answers. The head is ours: Webster et al. (2018) only
evaluate systems.

A text that is longer than a row is cut to the pieces around its mentions. If these are too far apart for a row, the
row contains the pronoun and the nearer name, or the pronoun alone, and a name outside is read at the first position.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example, Target
from lightning_modules.config import required
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model.layers import draw
from lightning_modules.tasks.baselines.surface import by_surface
from lightning_modules.tasks.reading.layout import Arranged, Segments
from lightning_modules.tasks.reading.lines import refused
from lightning_modules.tasks.reading.own_lines import Mark, OwnLine
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.shapes.shape import Head, Labelled, Scored, Shape
from lightning_modules.tasks.shapes.tagging import filled

ANSWER, MENTIONS = "answer", "mentions"  # the names of the targets
CLASSES = ("A", "B", "neither")
MASCULINE, FEMININE = ("he", "him", "his"), ("she", "her", "hers")  # the pronouns of the official scorer


class Mentioned(NamedTuple):
    """One text as in its source.

    Attributes:
        name: Its id in the source.
        text: The text, with any white space.
        spans: Start and end of pronoun, A and B in characters.
        label: Number of the answer in ``CLASSES``.
    """

    name: str
    text: str
    spans: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    label: int


class MentionLine(OwnLine):
    """A text with a pronoun and two names in a user's own file."""

    text: str = required("The text.")
    pronoun: Mark = required("The pronoun.")
    a: Mark = required("A name.")
    b: Mark = required("Another name.")
    label: Literal["A", "B", "neither"] = required("Which name the pronoun refers to, if either.")


def words_of(text: str, spans: Sequence[tuple[int, int]]) -> tuple[list[str], list[list[int]]]:
    """The words of a text, also split where a span starts or ends, and the bounds of each span in words.

    >>> words_of("Ann (her mother) left.", [(5, 8), (0, 3), (4, 15)])
    (['Ann', '(', 'her', 'mother', ')', 'left.'], [[2, 3], [0, 1], [1, 4]])
    """
    edges = sorted({0, len(text), *(edge for span in spans for edge in span)})
    words, before = [], {}
    for start, end in zip(edges, [*edges[1:], len(text)], strict=True):
        before[start] = len(words)
        words += text[start:end].split()
    return words, [[before[start], before[end]] for start, end in spans]


@dataclass(frozen=True, eq=False)
class MentionExamples(Labelled):
    """The texts of a split.

    Attributes:
        names: Ids of the texts ``[n]``.
        passages: Texts, words separated by single spaces ``[n]``.
        spans: Bounds of pronoun, A and B in words ``[n 3 2]``.
        labels: Numbers of the answers in ``CLASSES`` ``[n]``.
        feminine: Whether the pronoun is feminine ``[n]``.
    """

    names: list[str]
    passages: list[str]
    spans: np.ndarray
    labels: np.ndarray
    feminine: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def items_for_pin(self) -> list[list[Any]]:
        """Text, spans in words, number of the answer."""
        items = zip(self.passages, self.spans.tolist(), self.labels.tolist(), strict=True)
        return [list(item) for item in items]

    def texts(self) -> list[str]:
        """The texts."""
        return self.passages

    def words(self) -> int:
        """Words of all texts."""
        return sum(text.count(" ") + 1 for text in self.passages)

    def about(self) -> list[tuple[str, ...]]:
        """Each text."""
        return [(passage,) for passage in self.passages]


class MentionInputs(Arranged):
    """The encoded texts of a split, one row each.

    Attributes:
        sizes: Positions of each row ``[n 1]``.
        ends: Positions of the first and last piece of pronoun, A and B; 0 for a mention outside the row ``[n 3 2]``.
    """

    def __init__(self, examples: MentionExamples, pieces: Pieces, vocabulary: Vocabulary, max_length: int) -> None:
        self.examples = examples
        spans = pieces.words[pieces.texts[:-1, None, None] + examples.spans]
        own = np.array([_required(mentions, max_length - 2) for mentions in spans.tolist()]).reshape(-1, 2)
        outer = np.stack([pieces.bounds[:-1], pieces.bounds[1:]], 1)
        runs = filled(own, outer, max_length - 2)
        start, end = runs[:, 0, None], runs[:, 1, None]
        inside = (spans[..., 0] >= start) & (spans[..., 1] <= end) & (spans[..., 1] > spans[..., 0])
        first = spans - np.array([0, 1]) - start[..., None] + 1
        self.ends = np.where(inside[..., None], first, 0)
        self.rows = Segments(pieces.ids, runs.T[None], vocabulary)
        self.sizes = self.rows.lengths[:, None]

    def goals(self, indices: np.ndarray, rows: int, length: int) -> dict[str, Target]:
        """One entry per text in ``answer`` and six in ``mentions``: the two ends of pronoun, A and B, with their number
        among the six as id.
        """
        firsts = torch.arange(rows) * length
        where = firsts[:, None] + torch.from_numpy(self.ends[indices].reshape(rows, 6))
        answers = torch.from_numpy(self.examples.labels[indices])
        return {ANSWER: Target(firsts, answers), MENTIONS: Target(where.flatten(), torch.arange(6).repeat(rows))}


def _required(spans: list[list[int]], room: int) -> tuple[int, int]:
    """The pieces that a row must contain: all mentions, or pronoun and nearer name, or the start of the pronoun."""
    pronoun, *names = spans
    names.sort(key=lambda name: max(pronoun[0] - name[1], name[0] - pronoun[1]))
    for mentions in (spans, [pronoun, names[0]]):
        start, end = min(span[0] for span in mentions), max(span[1] for span in mentions)
        if end - start <= room:
            return start, end
    return pronoun[0], min(pronoun[1], pronoun[0] + room)


class MentionHead(Head):
    """One score per name from a hidden layer with tanh and dropout; 0 for neither.

    Args:
        hidden_size: Width d of the backbone and of the hidden layer.
        dropout: Dropout on the hidden layer.
    """

    target = ANSWER

    def __init__(self, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden, self.dropout = nn.Linear(6 * hidden_size, hidden_size), nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, 1)
        draw(self.hidden, self.output)

    def forward(self, encoded: Encoded, example: Example) -> Float[Tensor, "b 3"]:
        """Logits of A, B and neither."""
        mentions = encoded.at(example.targets[MENTIONS].where).view(len(encoded.last), 3, -1)
        names = mentions[:, 1:]
        pronoun = mentions[:, :1].expand_as(names)
        states = torch.tanh(self.hidden(torch.cat([pronoun, names, pronoun * names], -1)))
        return F.pad(self.output(self.dropout(states)).squeeze(-1), (0, 1))


def f1(labels: np.ndarray, answers: np.ndarray) -> float:
    """F1 as in the official scorer of GAP: each text is two binary questions, one per name.

    Args:
        labels: Numbers in ``CLASSES`` ``[n]``.
        answers: Numbers in ``CLASSES`` ``[n]``.
    """
    right = int(((labels == answers) & (labels < 2)).sum())
    return 2 * right / max(1, int((labels < 2).sum()) + int((answers < 2).sum()))


def _pronoun(row: Mentioned) -> str:
    return row.text[slice(*row.spans[0])].strip().lower()


@dataclass(frozen=True)
class Coreference(Shape):
    """Texts with a pronoun and two names.

    The official ratio of feminine to masculine F1 is left out, since higher is not better; both F1s are metrics.
    """

    keeps_answers = taught = True
    positive = (0, 1)
    measures = {
        "f1": "F1 over the questions whether the pronoun refers to A and to B, 0 to 1",
        "masculine_f1": "the same F1, masculine pronouns",
        "feminine_f1": "the same F1, feminine pronouns",
        "accuracy": "share of pronouns resolved correctly, neither included, 0 to 1",
    }
    methods = {
        "majority": "majority class",
        "nearest": "nearest name before the pronoun",
        "surface": "logistic regression on positions, lengths and neighbours",
    }

    def read(self, rows: Iterable[Mentioned], task: str) -> MentionExamples:
        """Checks that mentions are not empty and that pronouns are known to the official scorer."""
        source, wrong, passages, spans, feminine = list(rows), [], [], [], []
        for number, row in enumerate(source):
            if problem := self.problem(row):
                wrong.append(f"example {number} of '{task}' ({row.name}) {problem}")
            else:
                words, places = words_of(row.text, row.spans)
                passages.append(" ".join(words))
                spans.append(places)
            feminine.append(_pronoun(row) in FEMININE)
        if wrong:
            raise refused(wrong)
        labels = np.array([row.label for row in source], dtype=np.int64)
        names = [row.name for row in source]
        return MentionExamples(names, passages, np.array(spans), labels, np.array(feminine))

    line = MentionLine

    def row(self, line: MentionLine, number: int) -> Mentioned:
        """The text with its mentions."""
        pronoun, a, b = (mark.at(line.text) for mark in (line.pronoun, line.a, line.b))
        return Mentioned(line.id or f"line {number}", line.text, (pronoun, a, b), CLASSES.index(line.label))

    def problem(self, row: Mentioned) -> str:
        """An empty mention, a pronoun unknown to the official scorer, or an answer that is none."""
        if any(not row.text[slice(*span)].strip() or span[0] < 0 for span in row.spans):
            return "has an empty mention"
        if _pronoun(row) not in MASCULINE + FEMININE:
            return f"has the pronoun {_pronoun(row)!r}, which is not one of {', '.join(MASCULINE + FEMININE)}"
        is_class = row.label in range(len(CLASSES))
        return "" if is_class else f"has the answer {row.label}, which is not a number from 0 to {len(CLASSES) - 1}"

    def text_of(self, row: Mentioned) -> str:
        """The text."""
        return row.text

    def inputs(
        self, examples: MentionExamples, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning
    ) -> MentionInputs:
        """The texts as rows of at most ``max_length`` positions around their mentions."""
        return MentionInputs(examples, pieces, vocabulary, settings.max_length)

    def head(self, hidden_size: int, settings: FineTuning) -> MentionHead:
        """A new `MentionHead`."""
        return MentionHead(hidden_size, settings.dropout)

    def score(self, answers: np.ndarray, examples: MentionExamples, metrics: Sequence[str]) -> Scored:
        """F1 of the official scorer, and accuracy; keeps ``answer`` and ``right`` of each text.

        Returns:
            Scores whose predictions map the id of a text to its columns ``A-coref`` and ``B-coref``.
        """
        labels, feminine, right = examples.labels, examples.feminine, answers == examples.labels
        scores = {
            "f1": f1(labels, answers),
            "masculine_f1": f1(labels[~feminine], answers[~feminine]),
            "feminine_f1": f1(labels[feminine], answers[feminine]),
            "accuracy": float(right.mean()),
        }
        columns = [[str(answer == kind).upper() for kind in (0, 1)] for answer in answers.tolist()]
        return Scored(
            {name: scores[name] for name in metrics},
            {"answer": pack(answers.astype(np.int64)), "right": pack(right)},
            dict(zip(examples.names, columns, strict=True)),
        )

    def baselines(self, train: MentionExamples, dev: MentionExamples) -> dict[str, np.ndarray]:
        """``majority``: the majority class; ``nearest``: the last name before the pronoun, else the first after it;
        ``surface``: `by_surface`.
        """
        start, end = dev.spans[..., 0], dev.spans[..., 1]
        distance = np.where(end[:, 1:] <= start[:, :1], start[:, :1] - end[:, 1:], 1_000_000 + start[:, 1:])
        constant = np.bincount(train.labels, minlength=len(CLASSES)).argmax()
        surface = by_surface(train, dev)
        return {"majority": np.full(len(dev), constant), "nearest": distance.argmin(1), "surface": surface}
