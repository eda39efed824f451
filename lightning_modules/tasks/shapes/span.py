"""Extractive question answering as in SQuAD 1.1 and 2.0: the answer is a span of a passage.

Follows BERT's ``run_squad.py`` (Devlin et al. 2019, sections 4.2 and 4.3): a linear layer gives every position two
logits, for the start and the end of the answer; "no answer" has both at [CLS]. XLNet's head, whose ends depend on
starts, is in ``span_beam``. The other parts are in
``reading.passages`` (examples), ``reading.windows`` (inputs), ``scores.decoding`` and ``scores.squad_scores``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.config import required
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model.layers import draw
from lightning_modules.model.losses import summed_divergence_of_logits
from lightning_modules.tasks.reading.lines import refused
from lightning_modules.tasks.reading.own_lines import Mark, OwnLine
from lightning_modules.tasks.reading.passages import Question, SpanExamples
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.reading.windows import END, START, SpanInputs
from lightning_modules.tasks.scores.decoding import SpanAnswers, decoded, decoded_beam
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.tasks.scores.squad_scores import best_of, best_threshold, halves
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.shapes.shape import Head, Scored, Shape
from lightning_modules.tasks.shapes.span_beam import SpanBeamHead

_LOGITS = 2  # outputs of a position without a beam
_QUESTION = 0.08  # share of the question in the words of question and passage, on SQuAD 1.1
_LENGTHS = (
    0.42,
    0.66,
    0.74,
    0.81,
    0.88,
    0.96,
    1.06,
    1.19,
    1.38,
    1.90,
)  # deciles of passage length over the mean, on SQuAD 1.1


class SpanHead(Head):
    """Two logits per position, from one linear layer without dropout.

    The loss of a row is the mean of two cross-entropies over its positions. The released code pads all rows to one
    length and includes padding, question and [SEP] in the softmax. Here a batch is padded to its longest row, so
    padding is excluded: a row's loss must not depend on the rest of its batch. Question and [SEP] are included.

    Args:
        hidden_size: Width d of the backbone.
    """

    target = START

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden_size, 2)
        draw(self.output)

    def forward(self, encoded: Encoded, example: Example) -> Float[Tensor, "b t 2"]:
        """The logits of starts and ends."""
        return self.output(encoded.last)

    def loss(self, outputs: Float[Tensor, "b t 2"], example: Example) -> Tensor:
        """The summed loss of the rows in nats."""
        logits = outputs.float().masked_fill(~example.inputs.real[..., None], -torch.inf)
        right = torch.stack([example.targets[name].ids for name in (START, END)], dim=1)
        return F.cross_entropy(logits, right, reduction="sum") / 2

    def divergence(
        self, outputs: Float[Tensor, "b t 2"], taught: Float[Tensor, "b t 2"], example: Example, temperature: float
    ) -> Tensor:
        """The mean of those of starts and ends, over real positions."""
        padding = ~example.inputs.real[..., None]
        ours, theirs = (
            logits.float().masked_fill(padding, torch.finfo(torch.float32).min / 4).transpose(1, 2).flatten(0, 1)
            for logits in (outputs, taught)
        )
        return summed_divergence_of_logits(ours, theirs, temperature) / 2

    def by_item(self, outputs: Tensor, example: Example) -> list[Tensor]:
        """The logits of each row without its padding ``[t 2]``."""
        sizes = example.inputs.real.sum(1).tolist()
        return [row[:size] for row, size in zip(outputs, sizes, strict=True)]


class SpanLine(OwnLine):
    """A question about a passage in a user's own file."""

    question: str = required("The question.")
    context: str = required("The passage.")
    answers: tuple[Mark, ...] = required("The marked answers. None if the passage holds no answer.")


_MEASURES = {
    "f1": "word F1 with the best matching marked answer, mean over questions, 0 to 1",
    "exact_match": "share of answers equal to a marked one except case, punctuation and articles, 0 to 1",
    "best_f1": "f1 with the no-answer threshold that is best on these questions: optimistic, as published",
    "best_exact_match": "exact_match with the no-answer threshold that is best on these questions: optimistic",
    "held_out_f1": "f1 where each half of the questions uses the best threshold of the other half",
    "held_out_exact_match": "exact_match where each half uses the best threshold of the other half",
    "has_answer_f1": "f1 over questions with an answer",
    "has_answer_exact_match": "exact_match over questions with an answer",
    "no_answer_accuracy": "share of questions without an answer that are left unanswered, 0 to 1",
}


@dataclass(frozen=True)
class Spans(Shape):
    """Questions about passages.

    Attributes:
        unanswerable: Whether passages may lack an answer, as in SQuAD 2.0.
        doc_stride: Pieces from the start of a window to that of the next.
        max_query: Maximum pieces of a question.
        max_answer: Maximum pieces of a predicted answer.
        n_best: How many starts and ends of a window are considered, without a beam.
    """

    unanswerable: bool = False
    doc_stride: int = 128
    max_query: int = 64
    max_answer: int = 30
    n_best: int = 20
    layouts = frozenset({"cls_sep", "cls_last"})
    taught = True
    methods = {"majority": "most frequent answer", "sliding_window": "sliding window"}

    def read(self, rows: Iterable[Question], task: str) -> SpanExamples:
        """Checks ids, questions and passages, and that answers are at their marked positions."""
        source, wrong, seen = list(rows), [], set()
        for number, row in enumerate(source):
            name = f"question {row.id!r} of '{task}'" if row.id else f"question number {number} of '{task}'"
            if problem := self.problem(row) or ("occurs twice" if row.id in seen else ""):
                wrong.append(f"{name} {problem}")
            seen.add(row.id)
        if wrong:
            raise refused(wrong, "questions are wrong")
        return SpanExamples.of(source)

    line = SpanLine

    def row(self, line: SpanLine, number: int) -> Question:
        """The question, its answers where they are marked."""
        marked = tuple((mark.at(line.context)[0], mark.text) for mark in line.answers)
        return Question(line.id or f"line {number}", line.question, line.context, marked)

    def text_of(self, row: Question) -> str:
        """The passage."""
        return row.context

    @property
    def measures(self) -> dict[str, str]:
        """F1 and exact match; all if a passage may lack the answer."""
        return {name: _MEASURES[name] for name in (_MEASURES if self.unanswerable else ("f1", "exact_match"))}

    def problem(self, row: Question) -> str:
        """A missing id, an empty text, or an answer that is not where it is marked."""
        if not row.id:
            return "has no id"
        if not row.text.split():
            return "is empty"
        if not row.context.split():
            return "has an empty passage"
        if not row.answers and not self.unanswerable:
            return "has no answer, which only Spans(unanswerable=True), as for SQuAD 2.0, allows"
        for start, text in row.answers:
            if not text.split():
                return "has an empty answer"
            if start < 0 or row.context[start : start + len(text)] != text:
                return f"has the answer {text!r}, which is not at character {start} of its passage"
        return ""

    def inputs(
        self, examples: SpanExamples, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning
    ) -> SpanInputs:
        """The items: one per window of a passage, with its question."""
        shape = (settings.max_length, self.max_query, self.doc_stride, settings.layout)
        return SpanInputs(examples, pieces, vocabulary, *shape)

    @property
    def idle(self) -> dict[str, str]:
        """See `Shape.idle`: spans may be read by a beam."""
        return {name: why for name, why in super().idle.items() if name != "span_beam"}

    def head(self, hidden_size: int, settings: FineTuning) -> SpanHead | SpanBeamHead:
        """A new `SpanHead`, or a `SpanBeamHead` if ends are predicted given their starts."""
        beam = settings.span_beam
        if beam is None:
            return SpanHead(hidden_size)
        return SpanBeamHead(hidden_size, beam.starts, beam.ends, settings.dropout)

    def answers(self, outputs: Sequence[np.ndarray], inputs: SpanInputs) -> SpanAnswers:
        """The best span of each passage and its null score."""
        if len(outputs) and outputs[0].shape[1] > _LOGITS:
            return decoded_beam(outputs, inputs, self.max_answer)
        return decoded(outputs, inputs, self.n_best, self.max_answer)

    def all_equal(self, answers: SpanAnswers) -> bool:
        """Whether all questions got the same words, or none."""
        return len(answers.texts) > 1 and len(set(answers.texts)) == 1

    def score(self, answers: SpanAnswers, examples: SpanExamples, metrics: Sequence[str]) -> Scored:
        """Scores the answers; where a passage may lack one, "" replaces answers with a positive null score.

        That is a threshold of 0; ``best_`` and ``held_out_`` metrics use others, fitted separately for F1 and exact
        match. The halves of the latter are chosen by a hash of the question's id.
        """
        golds = [[text for _, text in marked] for marked in examples.answers]
        answered, withheld = (
            np.array([best_of(text, gold, self.unanswerable) for text, gold in zip(texts, golds, strict=True)])
            for texts in (answers.texts, [""] * len(golds))
        )
        silent = (answers.nulls > 0) & self.unanswerable
        final = np.where(silent[:, None], withheld, answered)
        has = np.array([bool(gold) for gold in golds])
        half = halves(examples.ids)
        scores = {
            "has_answer_exact_match": _mean(final[has, 0]),
            "has_answer_f1": _mean(final[has, 1]),
            "no_answer_accuracy": _mean(final[~has, 0]),
        }
        for name, given, empty, chosen in zip(("exact_match", "f1"), answered.T, withheld.T, final.T, strict=True):
            cuts = [best_threshold(answers.nulls[part], given[part], empty[part]) for part in (half, ~half)]
            own = best_threshold(answers.nulls, given, empty)
            scores[name] = _mean(chosen)
            scores[f"best_{name}"] = _mean(np.where(answers.nulls > own, empty, given))
            cut = np.where(half, cuts[1], cuts[0])
            scores[f"held_out_{name}"] = _mean(np.where(answers.nulls > cut, empty, given))
        texts = ["" if no else text for no, text in zip(silent.tolist(), answers.texts, strict=True)]
        kept = {"right": pack(final[:, 1])}
        return Scored({name: scores[name] for name in metrics}, kept, dict(zip(examples.ids, texts, strict=True)))

    def baselines(self, train: SpanExamples, dev: SpanExamples) -> dict[str, SpanAnswers]:
        """``majority``: the most frequent training answer, mostly "" in SQuAD 2.0; ``sliding_window``: see there."""
        from lightning_modules.tasks.baselines.sliding_window import nearest

        counts = Counter(marked[0][1] if marked else "" for marked in train.answers)
        common = counts.most_common(1)[0][0]
        texts, scores = nearest(dev)
        return {
            "majority": SpanAnswers([common] * len(dev), np.zeros(len(dev))),
            "sliding_window": SpanAnswers(texts, -scores),
        }

    def items(self, examples: int, pieces: int, settings: FineTuning) -> float:
        """The number of windows, if passage lengths vary as in SQuAD."""
        mean = pieces / max(1, examples)
        room = settings.max_length - 3 - min(self.max_query, mean * _QUESTION)
        step = min(self.doc_stride, max(1, room // 2))
        longer = np.array(_LENGTHS) * mean * (1 - _QUESTION) - room
        return examples * float(1 + np.maximum(0, np.ceil(longer / step)).mean())


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
