"""Classification and regression of texts and pairs of texts, in rows of the chosen layout (`reading.layout`).

Texts are encoded like the pretraining text: same tokenizer, word by word, after the same cleaning. Segments are 0 for
[CLS], the first text and its [SEP], 1 for the second and its [SEP] (Devlin et al. 2019, figure 2). Of texts that may
change places an item may have a row for each order. What represents the two rows is then added (Radford et al. 2018,
section 3.3).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example, Target
from lightning_modules.config import required
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model.layers import draw
from lightning_modules.tasks.reading.layout import LAYOUTS, MARKS, Arranged, LayoutName, Segments
from lightning_modules.tasks.reading.lines import refused
from lightning_modules.tasks.reading.own_lines import OwnLine
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.reading.text_vectors import READERS, ReaderName
from lightning_modules.tasks.scores.kept import packed
from lightning_modules.tasks.scores.metrics import METRICS
from lightning_modules.tasks.settings import FineTuning, HiddenLayer
from lightning_modules.tasks.shapes.shape import Head, Labelled, Scored, Shape

LABEL = "label"  # the name of the target


class Row(NamedTuple):
    """One example as in its source.

    Attributes:
        second: The second text of a pair.
        label: Name or number of the class, or a real number.
        part: The part of the dev examples, where parts have metrics of their own.
        place: File and line.
        fault: Why it cannot be read; empty if it can.
    """

    first: str
    second: str | None
    label: str
    part: str = ""
    place: str = ""
    fault: str = ""


class TextLine(OwnLine):
    """A text and its label in a user's own file."""

    text: str = required("The text.")
    label: str | int | float = required("Name or number of the class, or a real number.")


class PairLine(OwnLine):
    """Two texts and their label in a user's own file."""

    first: str = required("The first text.")
    second: str = required("The second text.")
    label: str | int | float = required("Name or number of the class, or a real number.")


@dataclass(frozen=True, eq=False)
class TextExamples(Labelled):
    """The examples of a split.

    Attributes:
        first: Texts, their words separated by single spaces ``[n]``.
        second: The second texts of a task of pairs ``[n]``, None for a task of single texts.
        labels: Class numbers, or real numbers in regression ``[m]``: of all, or of the first that have one.
        parts: The part of each example ``[n]``, "" for the main one; None if there are no others.
    """

    first: list[str]
    second: list[str] | None
    labels: np.ndarray
    parts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.first)

    def items_for_pin(self) -> list[list[Any]]:
        """First text, second text or "", label, and the part if there are several."""
        columns = [self.first, self.second or [""] * len(self), self.labels.tolist()]
        columns += [] if self.parts is None else [self.parts.tolist()]
        return [list(row) for row in zip(*columns, strict=True)]

    def texts(self) -> list[str]:
        """The first texts, then the second ones."""
        return self.first + (self.second or [])

    def words(self) -> int:
        """Words of all texts."""
        return sum(len(text.split()) for text in self.texts())

    def about(self) -> list[tuple[str, ...]]:
        """The text or the two texts of each example."""
        return list(zip(*filter(None, (self.first, self.second)), strict=True))

    def beside(self, unlabelled: Sequence[tuple[str, ...]]) -> Self:
        """The examples, and behind them texts without a label, a text or two each."""
        first = self.first + [texts[0] for texts in unlabelled]
        second = None if self.second is None else self.second + [texts[1] for texts in unlabelled]
        return type(self)(first, second, self.labels)

    def part(self, name: str) -> np.ndarray:
        """Whether each example belongs to that part ``[n]``; all do if there are no parts."""
        return np.ones(len(self), dtype=bool) if self.parts is None else self.parts == name


def truncated(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens remain of two texts ``[n]`` that share ``room`` positions.

    As in BERT's ``_truncate_seq_pair``: while they are too long, the longer one loses its last token, of equals the
    second.

    >>> truncated(np.array([9, 3, 9]), np.array([4, 9, 9]), 7)
    (array([4, 3, 4]), array([3, 4, 3]))
    """
    left = np.minimum(first, np.maximum(room - second, room - room // 2))
    return left, np.minimum(second, room - left)


class TextInputs(Arranged):
    """The encoded examples of a split, one row each, or of two texts a row for each order.

    Attributes:
        sizes: Positions of each row of each example ``[n k]``.
    """

    def __init__(
        self,
        examples: TextExamples,
        pieces: Pieces,
        vocabulary: Vocabulary,
        max_length: int,
        layout: LayoutName = "cls_sep",
        both_orders: bool = False,
    ) -> None:
        self.examples, count = examples, len(examples)
        starts, counts = pieces.bounds[:-1], np.diff(pieces.bounds)
        if examples.second is None:
            parts = [(starts, starts + np.minimum(counts, max_length - MARKS))]
        else:
            left = truncated(counts[:count], counts[count:], max_length - 3)
            parts = [(starts[:count], starts[:count] + left[0]), (starts[count:], starts[count:] + left[1])]
        bounds = np.array(parts)
        if both_orders:
            left = truncated(counts[count:], counts[:count], max_length - 3)
            other = [(starts[count:], starts[count:] + left[0]), (starts[:count], starts[:count] + left[1])]
            bounds = np.stack([bounds, np.array(other)], -1).reshape(2, 2, -1)  # one after the other
        self.rows = Segments(pieces.ids, bounds, vocabulary, layout)
        self.sizes = self.rows.lengths.reshape(count, -1)
        labels = examples.labels
        self.labels = labels.astype(np.float32) if labels.dtype.kind == "f" else labels

    def goals(self, indices: np.ndarray, rows: int, length: int) -> dict[str, Target]:
        """The labels of the items that have one, at their first row."""
        known = np.flatnonzero(indices < len(self.labels))
        first = torch.from_numpy(known) * (self.sizes.shape[1] * length)
        return {LABEL: Target(first, torch.from_numpy(self.labels[indices[known]]))}


class _BatchNorm(nn.BatchNorm1d):
    """Batch norm in full precision. A batch of one row has no variance, and is normalised as in evaluation."""

    spared = ("weight", "bias")  # without weight decay

    def forward(self, input: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The rows, each unit over the batch in training and over running means in evaluation."""
        if len(input) == 1:
            return F.batch_norm(
                input.float(), self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input.float())


class TextHead(Head):
    """One answer per item: what represents its row, BERT's pooler tanh(W h + b), dropout, a linear layer.

    Of several rows, which are the orders of two texts, the vectors that the linear layer would read are added. With
    BERT's reader and pooler this is its classifier (Devlin et al. 2019, section 4.1). With the reader ``concat``, no
    pooler and a hidden layer it is ULMFiT's; that layer is initialised as the others, in fastai as torch's layers are.

    Args:
        hidden_size: Width d of the backbone, and of the pooler.
        outputs: One logit per class, or 1 in regression.
        dropout: Dropout on the vector that the linear layer reads.
        reader: What represents a row, a name of ``READERS``.
        orders: Rows per item whose vectors are added.
        hidden: A layer before the last one; None for none.
    """

    target = LABEL

    def __init__(
        self,
        hidden_size: int,
        outputs: int,
        dropout: float,
        reader: ReaderName = "first",
        pooler: bool = True,
        orders: int = 1,
        hidden: HiddenLayer | None = None,
    ) -> None:
        super().__init__()
        self.reader, self.orders = READERS[reader], orders
        width = self.reader.widths * hidden_size
        self.pooler = nn.Linear(width, hidden_size) if pooler else None
        width = hidden_size if pooler else width
        self.hidden = None
        if hidden is not None:
            linear, drop = nn.Linear(width, hidden.units), nn.Dropout(hidden.dropout)
            self.hidden = nn.Sequential(_BatchNorm(width), drop, linear, nn.ReLU(), _BatchNorm(hidden.units))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden.units if hidden else width, outputs)
        draw(*(part for part in self.modules() if isinstance(part, nn.Linear)))

    def forward(self, encoded: Encoded, example: Example) -> Float[Tensor, "n k"]:
        """The outputs, from what represents each row."""
        vectors = self.reader.read(encoded.last, example.inputs) if encoded.vectors is None else encoded.vectors
        if self.pooler is not None:
            vectors = torch.tanh(self.pooler(vectors))
        if self.orders > 1:
            vectors = vectors.unflatten(0, (-1, self.orders)).sum(1)
        if self.hidden is not None:
            vectors = self.hidden(vectors)
        return self.output(self.dropout(vectors))

    def adopt_pooler(self, weights: dict[str, Tensor]) -> None:
        """Loads a trained pooler if it reads vectors of this width."""
        if self.pooler is not None and weights["weight"].shape == self.pooler.weight.shape:
            self.pooler.load_state_dict(weights)

    def start_at_mean(self, labels: np.ndarray) -> None:
        """Sets the bias to the mean label, so that only differences are left to learn."""
        nn.init.constant_(self.output.bias, float(labels.mean()))

    def loss(self, outputs: Float[Tensor, "n k"], example: Example) -> Tensor:
        """The summed cross-entropy, or squared error in regression, of the items that have a label."""
        target = example.targets[LABEL]
        if len(target.ids) < len(outputs):
            outputs = outputs[target.where // (self.orders * example.inputs.ids.shape[1])]
        return summed_loss(outputs, target.ids)

    def divergence(
        self, outputs: Float[Tensor, "n k"], taught: Float[Tensor, "n k"], example: Example, temperature: float
    ) -> Tensor:
        """In regression the squared difference of both answers, without a temperature."""
        if outputs.shape[1] == 1:
            return F.mse_loss(outputs.float(), taught.float(), reduction="sum")
        return super().divergence(outputs, taught, example, temperature)


def summed_loss(outputs: Float[Tensor, "n k"], labels: Num[Tensor, " n"]) -> Tensor:
    """The sum of cross-entropies in nats for classes, of squared errors for real numbers."""
    if labels.is_floating_point():
        return F.mse_loss(outputs[:, 0].float(), labels, reduction="sum")
    return F.cross_entropy(outputs.float(), labels, reduction="sum")


@dataclass(frozen=True)
class Texts(Shape):
    """One or two texts with a class or a real number.

    Attributes:
        labels: Names of the classes in the order of their numbers; empty in regression.
        pair: Whether an example is two texts.
        symmetric: Whether the two may change places, as where likeness is predicted.
        tuned: Whether the penalty of the linear model is chosen by cross-validation. By default it is that of
            scikit-learn.
    """

    labels: tuple[str, ...] = ()
    pair: bool = False
    symmetric: bool = False
    tuned: bool = False
    layouts = frozenset(LAYOUTS)
    taught = True
    parts = ("mismatched",)

    @property
    def measures(self) -> dict[str, str]:
        """Correlations of real numbers; of classes all, but F1 asks for one of two."""
        if not self.labels:
            return {name: METRICS[name].description for name in ("spearman", "pearson")}
        known = {name: metric.description for name, metric in METRICS.items() if name != "f1" or self.classes == 2}
        return known | {
            "mismatched_accuracy": "accuracy on dev examples of genres that do not occur in training, 0 to 1"
        }

    @property
    def methods(self) -> dict[str, str]:
        """Name of each baseline -> what tables call it."""
        if not self.labels:
            return {"majority": "mean label", "tfidf": "TF-IDF + ridge regression"}
        tfidf = "TF-IDF + logistic regression, tuned" if self.tuned else super().methods["tfidf"]
        return {**super().methods, "tfidf": tfidf}

    @property
    def reads(self) -> int:
        """Texts of a row."""
        return 1 + self.pair

    @property
    def numbers(self) -> bool:
        """Whether labels are real numbers."""
        return not self.labels

    @property
    def classes(self) -> int:
        """Number of classes; 0 in regression."""
        return len(self.labels)

    @property
    def keeps_answers(self) -> bool:
        """Whether answers are classes; real numbers are not kept."""
        return bool(self.labels)

    @property
    def outputs(self) -> int:
        """Outputs per example: one per class, or 1 in regression."""
        return max(1, len(self.labels))

    def read(self, rows: Iterable[Row], task: str) -> TextExamples:
        """Checks that no text is empty and that every label is a class or, in regression, a finite number."""
        wrong, first, second, labels, parts = [], [], [], [], []
        for number, row in enumerate(rows):
            texts = [" ".join((text or "").split()) for text in row[: 1 + self.pair]]
            if problem := self.problem(row):
                wrong.append(f"{row.place or f'example {number} of {task}'}: {problem}")
            first.append(texts[0])
            second += texts[1:]
            labels.append(self._label(row.label)[0])
            parts.append(row.part)
        if wrong:
            raise refused(wrong)
        kind = np.int64 if self.labels else np.float64
        groups = np.array(parts) if any(parts) else None
        return TextExamples(first, second if self.pair else None, np.array(labels, dtype=kind), groups)

    @property
    def line(self) -> type[OwnLine]:
        """The keys of an example in a user's own file."""
        return PairLine if self.pair else TextLine

    def row(self, line: Any, number: int) -> Row:
        """The texts and the label."""
        texts = (line.first, line.second) if self.pair else (line.text, None)
        return Row(*texts, str(line.label))

    def problem(self, row: Row) -> str:
        """Why it could not be read, a label that is none, or an empty text."""
        empty = not all((text or "").split() for text in row[: 1 + self.pair])
        return row.fault or self._label(row.label)[1] or ("has an empty text" if empty else "")

    def text_of(self, row: Row) -> str:
        """The first text."""
        return row.first

    @property
    def usual(self) -> tuple[str, ...]:
        """Accuracy, or in regression two correlations."""
        return ("accuracy",) if self.labels else tuple(self.measures)

    def _label(self, text: str) -> tuple[float, str]:
        """A label from the name or the number of its class, or from a number in regression; and its fault."""
        if text in self.labels:
            return self.labels.index(text), ""
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if np.isfinite(value) and (not self.labels or value in range(len(self.labels))):
            return value, ""
        allowed = f"one of {', '.join(self.labels)}, or its number" if self.labels else "a number"
        return 0.0, f"has the label {text!r}, which is not {allowed}"

    def inputs(
        self, examples: TextExamples, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning
    ) -> TextInputs:
        """The examples as rows of at most ``max_length`` positions."""
        both = self.rows_of(settings) > 1
        return TextInputs(examples, pieces, vocabulary, settings.max_length, settings.layout, both)

    def head(self, hidden_size: int, settings: FineTuning) -> TextHead:
        """A new `TextHead`."""
        reader, orders = settings.reader or "first", self.rows_of(settings)
        hidden = settings.hidden_layer
        return TextHead(hidden_size, self.outputs, settings.dropout, reader, settings.pooler, orders, hidden)

    def answers(self, outputs: Sequence[np.ndarray], inputs: TextInputs) -> np.ndarray:
        """Class numbers, or real numbers in regression ``[n]``."""
        stacked = np.stack(outputs)
        return stacked.argmax(1) if self.labels else stacked[:, 0]

    def probabilities(self, outputs: Sequence[np.ndarray]) -> np.ndarray | None:
        """Softmax over the classes ``[n classes]``; None in regression."""
        return torch.from_numpy(np.stack(outputs)).double().softmax(1).numpy() if self.labels else None

    def score(self, answers: np.ndarray, examples: TextExamples, metrics: Sequence[str]) -> Scored:
        """Each metric over its part of the examples: ``mismatched_accuracy`` is for the part ``mismatched``."""
        scores = {}
        for metric in metrics:
            part, _, name = metric.rpartition("_")
            chosen = examples.part(part)
            scores[metric] = METRICS[name].of(examples.labels[chosen], answers[chosen])
        if self.labels:
            kept = {"answer": answers.astype(np.int64), "right": answers == examples.labels}
        else:  # real numbers are not kept, but what each example adds
            whole = {name: METRICS[name].by_example for name in metrics if name in METRICS}
            kept = {name: of(examples.labels, answers).astype(np.float16) for name, of in whole.items()}
        return Scored(scores, packed(kept))

    def baselines(self, train: TextExamples, dev: TextExamples) -> dict[str, np.ndarray]:
        """``majority``: the majority class, or the mean label in regression; ``tfidf``: see `linear`."""
        from lightning_modules.tasks.baselines.linear import linear  # seconds to import, which planning does without

        constant = np.bincount(train.labels).argmax() if self.labels else train.labels.mean()
        return {"majority": np.full(len(dev), constant), "tfidf": linear(train, dev, tuned=self.tuned)}
