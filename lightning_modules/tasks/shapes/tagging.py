"""Sequence tagging: one tag per word, as in named-entity recognition.

The first piece of each word carries label and prediction, its other pieces no loss; a linear layer with dropout reads
the states, without CRF (Devlin et al. 2019, section 5.3). Two decisions are ours. A sentence longer than a row is cut
into several rows at word boundaries, so that each word is predicted once; remaining room is filled with neighbouring
words as context without predictions. A word without pieces, such as a lone control character, is predicted "O" and
has no loss.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules.batch import Encoded, Example, Target
from lightning_modules.config import knob, required
from lightning_modules.data.text.tokenizer import Vocabulary
from lightning_modules.model.layers import draw
from lightning_modules.tasks.baselines import tagger
from lightning_modules.tasks.reading.layout import Arranged, Segments
from lightning_modules.tasks.reading.lines import refused
from lightning_modules.tasks.reading.own_lines import OwnLine
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.scores import by_example
from lightning_modules.tasks.scores.kept import packed
from lightning_modules.tasks.settings import FineTuning
from lightning_modules.tasks.shapes.shape import Head, Scored, Shape

TAG = "tag"  # the name of the target


class Sentence(NamedTuple):
    """One sentence as in its source: words, their tags, and the number of its document."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    document: int


class TagLine(OwnLine):
    """A sentence with tags in a user's own file."""

    words: tuple[str, ...] = required("The words.")
    tags: tuple[str, ...] = required("A tag for each word: O, B-<type> or I-<type>.")
    document: int | None = knob(None, "Number of its document, ascending. By default each sentence is one.", ge=0)


@dataclass(frozen=True, eq=False)
class TaggedExamples:
    """The sentences of a split; all are kept, as context of their neighbours.

    Attributes:
        sentences: Words separated by single spaces ``[s]``.
        bounds: Where each sentence's words start among all words, and the end ``[s + 1]``.
        tags: Class of each word: 0 for O, 1 + 2k and 2 + 2k for the first and the other words of type k ``[w]``.
        documents: Number of each sentence's document, in ascending order ``[s]``.
        context: Whether rows include the document around a sentence.
        numbers: Numbers of the sentences that are examples ``[n]``.
    """

    sentences: list[str]
    bounds: np.ndarray
    tags: np.ndarray
    documents: np.ndarray
    context: bool
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def of_each(self, values: np.ndarray) -> list[np.ndarray]:
        """Values of all words ``[w]`` as one array per example."""
        return [values[self.bounds[n] : self.bounds[n + 1]] for n in self.numbers.tolist()]

    def items_for_pin(self) -> list[list[Any]]:
        """Sentence, classes of its words, number of its document."""
        parts = zip(self.numbers.tolist(), self.of_each(self.tags), strict=True)
        return [[self.sentences[n], tags.tolist(), int(self.documents[n])] for n, tags in parts]

    def gold(self) -> list[int]:
        """The tags of all words that are tagged."""
        return [tag for tags in self.of_each(self.tags) for tag in tags.tolist()]

    def texts(self) -> list[str]:
        """All sentences, including those that are only context."""
        return self.sentences

    def words(self) -> int:
        """Words of the sentences, or with context of their documents."""
        sizes = np.diff(self.bounds)
        if self.context:
            _, which = np.unique(self.documents, return_inverse=True)
            sizes = np.bincount(which, sizes)[which]
        return int(sizes[self.numbers].sum())

    def about(self) -> list[tuple[str, ...]]:
        """The number of each sentence's document, in place of its text."""
        return [(str(number),) for number in self.documents[self.numbers].tolist()]

    def take(self, numbers: np.ndarray) -> Self:
        """Some of the examples, with unchanged neighbours."""
        return replace(self, numbers=self.numbers[numbers])


class TagInputs(Arranged):
    """The encoded sentences of a split: one row each, several for long sentences.

    Attributes:
        sizes: Positions of each row ``[r 1]``.
        words: Numbers of the words that each row predicts, those with a piece ``r x [k]``.
        cut: Number of sentences with several rows.
    """

    def __init__(self, examples: TaggedExamples, pieces: Pieces, vocabulary: Vocabulary, max_length: int) -> None:
        self.examples, room, starts = examples, max_length - 2, pieces.words
        places, own, outer, self.cut = [], [], [], 0
        first, last = _documents(examples)
        for number in examples.numbers.tolist():
            start, end = examples.bounds[number : number + 2].tolist()
            windows = _windows(starts, start, end, room)
            self.cut += len(windows) > 1
            places += windows
            own += [(starts[start], min(starts[end], starts[start] + room)) for start, end in windows]
            outer += [(starts[first[number]], starts[last[number]])] * len(windows)
        runs = filled(np.array(own).reshape(-1, 2), np.array(outer).reshape(-1, 2), room)
        self.rows = Segments(pieces.ids, runs.T[None], vocabulary)
        self.sizes = self.rows.lengths[:, None]
        present = np.diff(starts) > 0
        self.words = [start + np.flatnonzero(present[start:end]) for start, end in places]
        self._where = [1 + starts[words] - run for words, run in zip(self.words, runs[:, 0].tolist(), strict=True)]

    def goals(self, indices: np.ndarray, rows: int, length: int) -> dict[str, Target]:
        """The tags of the words that rows predict, in order."""
        chosen = indices.tolist()
        where = np.concatenate([row * length + self._where[n] for row, n in enumerate(chosen)])
        tags = np.concatenate([self.examples.tags[self.words[n]] for n in chosen])
        return {TAG: Target(torch.from_numpy(where), torch.from_numpy(tags))}


def _documents(examples: TaggedExamples) -> tuple[np.ndarray, np.ndarray]:
    """First word, and word after the last, of each sentence's context: its document or only itself ``[s]``, ``[s]``."""
    if not examples.context:
        return examples.bounds[:-1], examples.bounds[1:]
    first = np.searchsorted(examples.documents, examples.documents, "left")
    last = np.searchsorted(examples.documents, examples.documents, "right")
    return examples.bounds[first], examples.bounds[last]


def _windows(starts: np.ndarray, start: int, end: int, room: int) -> list[tuple[int, int]]:
    """Words ``start`` to ``end`` in runs of at most ``room`` pieces, or of one long word; no run without pieces."""
    runs = []
    while start < end:
        fits = int(np.searchsorted(starts, starts[start] + room, "right")) - 1
        stop = max(start + 1, min(end, fits))
        if starts[stop] > starts[start]:
            runs.append((start, stop))
        start = stop
    return runs


def filled(own: np.ndarray, outer: np.ndarray, room: int) -> np.ndarray:
    """Runs of pieces extended on both sides to ``room`` pieces, or to all of the text.

    Half the spare room goes to each side; what one side cannot use goes to the other.

    Args:
        own: Start and end of each run ``[r 2]``.
        outer: Start and end of the text around it ``[r 2]``.
        room: Maximum pieces of a run.

    >>> filled(np.array([[4, 6], [0, 2], [9, 10]]), np.array([[0, 10]] * 3), 6)
    array([[ 2,  8],
           [ 0,  6],
           [ 4, 10]])
    """
    before, after = own[:, 0] - outer[:, 0], outer[:, 1] - own[:, 1]
    spare = room - (own[:, 1] - own[:, 0])
    left = np.minimum(before, np.maximum(spare // 2, spare - after))
    return np.stack([own[:, 0] - left, own[:, 1] + np.minimum(after, spare - left)], 1)


class TagHead(Head):
    """Dropout and a linear layer on the first piece of each word.

    Args:
        hidden_size: Width d of the backbone.
    """

    target = TAG

    def __init__(self, hidden_size: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.output = nn.Dropout(dropout), nn.Linear(hidden_size, outputs)
        draw(self.output)

    def forward(self, encoded: Encoded, example: Example) -> Float[Tensor, "n k"]:
        """Logits of the words' classes, row after row."""
        return self.output(self.dropout(encoded.at(example.targets[TAG].where)))

    def by_item(self, outputs: Float[Tensor, "n k"], example: Example) -> Sequence[Tensor]:
        """The logits of each row's own words."""
        rows, length = example.inputs.ids.shape
        return outputs.split(torch.bincount(example.targets[TAG].where // length, minlength=rows).tolist())


def entities(tags: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The names in a sequence of tags, as the conlleval script of CoNLL-2000 and 2003 reads them.

    A name starts at B, and at an I that follows O, another type or a sentence's start; so IOB1, IOB2 and invalid
    sequences can all be read.

    Args:
        tags: Classes as in `TaggedExamples` ``[w]``.
        begins: Whether a word begins a sentence ``[w]``.

    Returns:
        First word, word after the last, and type of each name ``[e]``.

    >>> entities(np.array([2, 2, 1, 4, 0, 2]), np.array([1, 0, 0, 0, 0, 0], bool))
    (array([0, 2, 3, 5]), array([2, 3, 4, 6]), array([0, 0, 1, 0]))
    """
    kinds = (tags - 1) // 2
    fresh = begins | (np.r_[-1, kinds[:-1]] != kinds) | (tags % 2 == 1)
    starts = np.flatnonzero(fresh & (tags > 0))
    breaks = np.r_[np.flatnonzero(fresh), len(tags)]
    return starts, breaks[np.searchsorted(breaks, starts, "right")], kinds[starts]


def _by_sentence(names: set[tuple[int, int, int]], ends: np.ndarray) -> np.ndarray:
    """How many names each sentence has ``[n]``; ``ends`` are the numbers of the words after its last ``[n]``."""
    starts = np.array([start for start, _, _ in names], dtype=np.int64)
    return np.bincount(np.searchsorted(ends, starts, "right"), minlength=len(ends))


@dataclass(frozen=True)
class Tagging(Shape):
    """Sentences whose words are tagged O, B-<type> or I-<type>.

    Attributes:
        types: The types of names, in the order of their numbers.
        context: Whether the neighbouring sentences of the same document fill each row up to ``max_length``
            ("maximal document context", Devlin et al. 2019, section 5.3); only a sentence's own words are predicted.
    """

    types: tuple[str, ...]
    context: bool = False
    taught = True
    measures = {
        "entity_f1": "F1 of whole names, 0 to 1",
        "precision": "share of predicted names with correct bounds and type, 0 to 1",
        "recall": "share of true names predicted with correct bounds and type, 0 to 1",
        "accuracy": "share of words with the correct tag, 0 to 1",
    }
    methods = {
        "majority": "majority class",
        "lookup": "most frequent tag of each word",
        "linear": "linear tagger that sees letters and capitals",
    }
    methods_version = tagger.VERSION

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the tags, in the order of their numbers."""
        return ("O", *(f"{prefix}-{kind}" for kind in self.types for prefix in "BI"))

    def read(self, rows: Iterable[Sentence], task: str) -> TaggedExamples:
        """Checks that words are not empty, have no spaces and have a tag of the task."""
        source, wrong, known = list(rows), [], {tag: number for number, tag in enumerate(self.labels)}
        for number, row in enumerate(source):
            if problem := self.problem(row):
                wrong.append(f"example {number} of '{task}' {problem}")
        documents = np.array([row.document for row in source], dtype=np.int64)
        if (np.diff(documents) < 0).any():
            wrong.append(f"the sentences of '{task}' are not grouped by document")
        if wrong:
            raise refused(wrong)
        tags = np.array([known[tag] for row in source for tag in row.tags], dtype=np.int64)
        bounds = np.cumsum([0, *(len(row.words) for row in source)])
        sentences = [" ".join(row.words) for row in source]
        return TaggedExamples(sentences, bounds, tags, documents, self.context, np.arange(len(source)))

    line = TagLine

    def row(self, line: TagLine, number: int) -> Sentence:
        """The sentence with its tags."""
        return Sentence(line.words, line.tags, number if line.document is None else line.document)

    def problem(self, row: Sentence) -> str:
        """Words without tags or tags without words, unknown tags, and words that are none."""
        if not row.words or len(row.words) != len(row.tags):
            return f"has {len(row.words)} words and {len(row.tags)} tags"
        known = self.labels
        if unknown := [tag for tag in row.tags if tag not in known]:
            return f"has the tag {unknown[0]!r}, which is not one of {', '.join(known)}"
        is_word = all(word and " " not in word and "\n" not in word for word in row.words)
        return "" if is_word else "has a word that is empty or contains a space"

    def text_of(self, row: Sentence) -> str:
        """The number of the document."""
        return str(row.document)

    def inputs(
        self, examples: TaggedExamples, pieces: Pieces, vocabulary: Vocabulary, settings: FineTuning
    ) -> TagInputs:
        """The sentences as rows of at most ``max_length`` positions."""
        return TagInputs(examples, pieces, vocabulary, settings.max_length)

    def head(self, hidden_size: int, settings: FineTuning) -> TagHead:
        """A new `TagHead`."""
        return TagHead(hidden_size, len(self.labels), settings.dropout)

    def answers(self, outputs: Sequence[np.ndarray], inputs: TagInputs) -> list[np.ndarray]:
        """Classes of the words of each sentence ``n x [k]``; O for words without pieces."""
        tags = np.zeros_like(inputs.examples.tags)
        for words, logits in zip(inputs.words, outputs, strict=True):
            tags[words] = logits.argmax(1)
        return inputs.examples.of_each(tags)

    def score(self, answers: Sequence[np.ndarray], examples: TaggedExamples, metrics: Sequence[str]) -> Scored:
        """Scores names and words.

        Keeps ``right`` of each sentence, the share of its words with the correct tag, and its ``entity_f1``.
        """
        labels, begins = examples.of_each(examples.tags), [np.arange(len(tags)) == 0 for tags in answers]
        joined = [np.concatenate(parts) for parts in (labels, answers, begins)]
        names = (entities(tags, joined[2]) for tags in joined[:2])
        true, predicted = (set(zip(*map(np.ndarray.tolist, part), strict=True)) for part in names)
        right = len(true & predicted)
        scores = {
            "entity_f1": 2 * right / max(1, len(true) + len(predicted)),
            "precision": right / max(1, len(predicted)),
            "recall": right / max(1, len(true)),
            "accuracy": float((joined[0] == joined[1]).mean()),
        }
        shares = np.array([(gold == tags).mean() for gold, tags in zip(labels, answers, strict=True)])
        ends = np.cumsum([len(tags) for tags in answers])
        counts = [_by_sentence(part, ends) for part in (true & predicted, predicted, true)]
        kept = {"right": shares, "entity_f1": by_example.f1(*counts).astype(np.float16)}
        return Scored({name: scores[name] for name in metrics}, packed(kept))

    def baselines(self, train: TaggedExamples, dev: TaggedExamples) -> dict[str, list[np.ndarray]]:
        """``majority``: O for every word; ``lookup``: the most frequent training tag of each word, O if unseen;
        ``linear``: see `baselines.tagger`.
        """
        known, asked = (
            [examples.sentences[number].split(" ") for number in examples.numbers.tolist()] for examples in (train, dev)
        )
        seen: dict[str, Counter[int]] = defaultdict(Counter)
        for words, tags in zip(known, train.of_each(train.tags), strict=True):
            for word, tag in zip(words, tags.tolist(), strict=True):
                seen[word][tag] += 1
        best = {word: max(sorted(counts), key=counts.__getitem__) for word, counts in seen.items()}
        answers = [np.array([best.get(word, 0) for word in words]) for words in asked]
        linear = tagger.by_letters(known, train.of_each(train.tags), asked)
        return {"majority": [np.zeros_like(tags) for tags in answers], "lookup": answers, "linear": linear}

    def items(self, examples: int, pieces: int, settings: FineTuning) -> float:
        """One row per sentence, more if sentences are longer than rows on average."""
        return examples if self.context else max(examples, pieces / (settings.max_length - 2))
