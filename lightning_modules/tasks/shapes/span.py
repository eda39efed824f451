"""Questions answered by a stretch of a passage: extractive reading, as SQuAD 1.1 and 2.0 ask for it.

Follows BERT's ``run_squad.py`` (Devlin et al. 2019, sections 4.2 and 4.3): a linear layer gives every position two
logits, for being the first and the last of the answer; a passage without an answer has both at [CLS]. The parts have
modules of their own: ``reading.passages`` (examples), ``reading.windows`` (inputs), ``scores.decoding`` and
``scores.squad_scores``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Example
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.tasks.reading.lines import refused
from lightning_modules.tasks.reading.passages import Question, SpanExamples
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.reading.windows import END, START, SpanInputs
from lightning_modules.tasks.scores.decoding import SpanAnswers, decoded
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.tasks.scores.squad_scores import best_of, best_threshold, halves
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.shapes.shape import Head, Scored, Shape

_STD = 0.02  # of fresh weights, cut at two standard deviations as in BERT
_QUESTION = 0.08  # share of a question in the words of question and passage, on SQuAD 1.1
_LENGTHS = (0.42, 0.66, 0.74, 0.81, 0.88, 0.96, 1.06, 1.19, 1.38, 1.90)  # of passages there, over their mean, by tenths


class SpanHead(Head):
    """Two logits at each position, from one linear layer without dropout.

    The loss of a row is the mean of two cross-entropies over its positions. The released code pads all rows to one
    length and lets padding take part, question and [SEP] likewise. Here a batch is padded to its longest row, so that
    padding is left out: a row's loss must not depend on what else is in the batch. Questions and [SEP] take part.

    Args:
        hidden_size: Width d of the backbone.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden_size, 2)
        nn.init.trunc_normal_(self.output.weight, std=_STD, a=-2 * _STD, b=2 * _STD)
        nn.init.zeros_(self.output.bias)

    def forward(self, hidden: Float[Tensor, "b t d"], example: Example) -> Float[Tensor, "b t 2"]:
        """The logits of starts and ends."""
        return self.output(hidden)

    def loss(self, outputs: Float[Tensor, "b t 2"], example: Example) -> Tensor:
        """Summed over the rows, in nats."""
        logits = outputs.float().masked_fill(~example.inputs.real[..., None], -torch.inf)
        right = torch.stack([example.targets[name].ids for name in (START, END)], dim=1)
        return F.cross_entropy(logits, right, reduction="sum") / 2

    def count(self, example: Example) -> float:
        """The rows."""
        return example.targets[START].count()

    def by_item(self, outputs: Tensor, example: Example) -> list[Tensor]:
        """The logits of each row without its padding ``[t 2]``."""
        sizes = example.inputs.real.sum(1).tolist()
        return [row[:size] for row, size in zip(outputs, sizes, strict=True)]


@dataclass(frozen=True)
class Spans(Shape):
    """Questions about passages.

    Attributes:
        unanswerable: Whether passages may hold no answer, as in SQuAD 2.0.
        doc_stride: Pieces from the start of a window to that of the next.
        max_query: Pieces of a question that are shown at most.
        max_answer: Pieces of an answer at most, when a model answers.
        n_best: How many starts and ends of a window are looked at.
    """

    unanswerable: bool = False
    doc_stride: int = 128
    max_query: int = 64
    max_answer: int = 30
    n_best: int = 20
    measures = {
        "f1": "F1 of words with the nearest marked answer, mean of the questions, 0 to 1",
        "exact_match": "share of answers that equal a marked one but for case, punctuation and articles, 0 to 1",
        "best_f1": "f1 with the threshold for no answer that is best on these very questions: optimistic, as published",
        "best_exact_match": "exact_match with the threshold that is best on these very questions: optimistic",
        "held_out_f1": "f1 where either half of the questions takes the threshold that is best on the other half",
        "held_out_exact_match": "exact_match where either half takes the threshold that is best on the other half",
        "has_answer_f1": "f1 of the questions that have an answer",
        "has_answer_exact_match": "exact_match of the questions that have an answer",
        "no_answer_accuracy": "share of the questions without an answer that are left unanswered, 0 to 1",
    }
    methods = {"majority": "most frequent answer", "sliding_window": "sliding window"}

    def read(self, rows: Iterable[Question], task: str) -> SpanExamples:
        """See `Shape.read`. Marked answers must be where they are said to be."""
        found, wrong, seen = list(rows), [], set()
        for number, row in enumerate(found):
            name = f"question {row.id!r} of '{task}'" if row.id else f"question number {number} of '{task}'"
            if problem := self._problem(row) or ("is there twice" if row.id in seen else ""):
                wrong.append(f"{name} {problem}")
            seen.add(row.id)
        if wrong:
            raise refused(wrong, "questions are wrong")
        return SpanExamples.of(found)

    def _problem(self, row: Question) -> str:
        if not row.id:
            return "has no id"
        if not row.text.split():
            return "is empty"
        if not row.context.split():
            return "has an empty passage"
        if not row.answers and not self.unanswerable:
            return "has no answer, which only questions of SQuAD 2.0 may"
        for start, text in row.answers:
            if not text.split():
                return "has an empty answer"
            if start < 0 or row.context[start : start + len(text)] != text:
                return f"has the answer {text!r}, which is not at character {start} of its passage"
        return ""

    def inputs(
        self, examples: SpanExamples, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning
    ) -> SpanInputs:
        """See `Shape.inputs`: an item is a window of a passage with its question."""
        return SpanInputs(examples, pieces, vocabulary, settings.max_length, self.max_query, self.doc_stride)

    def head(self, hidden_size: int, settings: FineTuning) -> SpanHead:
        """See `Shape.head`."""
        return SpanHead(hidden_size)

    def answers(self, outputs: Sequence[np.ndarray], inputs: SpanInputs) -> SpanAnswers:
        """The best stretch of each passage, and how it compares with no answer."""
        return decoded(outputs, inputs, self.n_best, self.max_answer)

    def score(self, answers: SpanAnswers, examples: SpanExamples, metrics: Sequence[str]) -> Scored:
        """See `Shape.score`. Where answers may be absent, "" is said if that scores higher than any stretch.

        That is a threshold of 0; ``best_`` and ``held_out_`` metrics have others, found for F1 and for exact match
        separately. The halves of the latter go by a hash of the question's id.
        """
        golds = [[text for _, text in marked] for marked in examples.answers]
        given, withheld = (
            np.array([best_of(text, gold, self.unanswerable) for text, gold in zip(texts, golds, strict=True)])
            for texts in (answers.texts, [""] * len(golds))
        )
        silent = (answers.nulls > 0) & self.unanswerable
        final = np.where(silent[:, None], withheld, given)
        has = np.array([bool(gold) for gold in golds])
        half = halves(examples.ids)
        found = {
            "has_answer_exact_match": _mean(final[has, 0]),
            "has_answer_f1": _mean(final[has, 1]),
            "no_answer_accuracy": _mean(final[~has, 0]),
        }
        for name, one, none, said in zip(("exact_match", "f1"), given.T, withheld.T, final.T, strict=True):
            cuts = [best_threshold(answers.nulls[part], one[part], none[part]) for part in (half, ~half)]
            own = best_threshold(answers.nulls, one, none)
            found[name] = _mean(said)
            found[f"best_{name}"] = _mean(np.where(answers.nulls > own, none, one))
            found[f"held_out_{name}"] = _mean(np.where(answers.nulls > np.where(half, cuts[1], cuts[0]), none, one))
        texts = ["" if no else text for no, text in zip(silent.tolist(), answers.texts, strict=True)]
        kept = {"right": pack(final[:, 1])}
        return Scored({name: found[name] for name in metrics}, kept, dict(zip(examples.ids, texts, strict=True)))

    def baselines(self, train: SpanExamples, dev: SpanExamples) -> dict[str, SpanAnswers]:
        """The commonest answer of the training questions, mostly "" where that is one; and `sliding_window`."""
        from lightning_modules.tasks.baselines.sliding_window import nearest

        said = Counter(marked[0][1] if marked else "" for marked in train.answers)
        common = said.most_common(1)[0][0]
        texts, near = nearest(dev)
        return {
            "majority": SpanAnswers([common] * len(dev), np.zeros(len(dev))),
            "sliding_window": SpanAnswers(texts, -near),
        }

    def items(self, examples: int, pieces: int, settings: FineTuning) -> float:
        """Windows, if passages are as unlike in length as those of SQuAD."""
        mean = pieces / max(1, examples)
        room = settings.max_length - 3 - min(self.max_query, mean * _QUESTION)
        step = min(self.doc_stride, max(1, room // 2))
        longer = np.array(_LENGTHS) * mean * (1 - _QUESTION) - room
        return examples * float(1 + np.maximum(0, np.ceil(longer / step)).mean())


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
