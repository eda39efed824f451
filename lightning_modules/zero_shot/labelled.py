"""Labelled data sets of `tasks`, not trained on but evaluated: GPT's heuristics (Radford et al. 2018, section 5).

Reviews are followed by the word "very" and then one of two words; of an exam question and of a cause or effect the most
probable option is chosen; a pronoun is replaced by either name, and the rest of the text says which fits; a sentence is
called acceptable if its tokens are probable on average, above a threshold from training examples.
"""

import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_modules.config import identity
from lightning_modules.data.baselines.two_way import Answers
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.system import System
from lightning_modules.tasks import fingerprint, task_named
from lightning_modules.tasks import pins as task_pins
from lightning_modules.tasks.measured_baselines import baselines
from lightning_modules.tasks.scores.metrics import matthews
from lightning_modules.tasks.shapes.choice import BLANK, ChoiceExamples
from lightning_modules.tasks.shapes.coreference import MentionExamples
from lightning_modules.tasks.shapes.texts import TextExamples
from lightning_modules.tasks.task import Split
from lightning_modules.zero_shot.function_words import FUNCTION_WORDS
from lightning_modules.zero_shot.options import Choice, Options, few
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.task import PIECES, Asking, Found, ZeroShot, share

_RECIPE = 1  # raise when the same examples would be presented otherwise
_THRESHOLDS = 4000  # training examples that a threshold is chosen on
_MOST_AFTER = 40  # words after a pronoun that are scored


@dataclass(frozen=True, kw_only=True)
class OfTask(ZeroShot):
    """A task that asks the examples of a labelled data set.

    Attributes:
        task: The data set, a name of `tasks.TASKS`.
        splits: Its parts that are evaluated.
    """

    task: str
    splits: tuple[Split, ...] = ("dev",)

    @property
    def origin(self) -> Origin | None:
        return task_named(self.task).origin

    def fingerprint(self) -> str:
        return identity([_RECIPE, fingerprint(self.task), *self.splits])

    def check(self) -> None:
        for split in ("train", "dev"):
            task_pins.checked(self.task, split)

    def at_hand(self) -> bool:
        return task_pins.at_hand(self.task)

    def counted(self) -> tuple[int, int]:
        """Examples and words of its parts, from the pins."""
        parts = [task_pins.expected(self.task)[split] for split in self.splits]
        return sum(part.examples for part in parts), sum(part.words for part in parts)

    def without_network(self, questions: int) -> dict[str, float]:
        """The accuracy of the data set's own methods on its dev examples, if exactly these are evaluated."""
        if self.splits != ("dev",) or questions != self.counted()[0]:
            return {}
        return {name: found["accuracy"] for name, found in baselines(self.task).items() if name in self.methods}


class OptionsOfTask(OfTask, Options):
    """What tasks share that ask the examples of a data set as questions with options."""

    def questions(self, asking: Asking) -> list[Choice]:
        return [choice for split in self.splits for choice in self._of(split)]

    def simple(self, questions: Sequence[Choice]) -> dict[str, float]:
        """Also the methods of the data set, which learn from all training labels."""
        return {**super().simple(questions), **self.without_network(len(questions))}

    @abstractmethod
    def _of(self, split: Split) -> list[Choice]: ...


@dataclass(frozen=True, kw_only=True)
class Verbalised(OptionsOfTask):
    """Texts whose class is predicted as one of some words after them.

    Attributes:
        words: The word of each class, in the order of the labels.
        hint: What is between a text and the word.
    """

    words: tuple[str, ...]
    hint: str = ""

    methods = {"majority": "majority class", "tfidf": "TF-IDF + logistic regression"}
    reads = frozenset({"examples", "rule", "shots", "shots_seed"})

    def size(self) -> tuple[int, int, float]:
        count, words = self.counted()
        return count, len(self.words), PIECES * words / count + 2

    def demonstrations(self) -> list[Choice]:
        return few(self._of("train"))

    def _of(self, split: Split) -> list[Choice]:
        examples: TextExamples = _checked(self.task, split)
        texts = [f"{text} {self.hint}".strip() for text in examples.first]
        return [Choice((text,), self.words, int(label)) for text, label in zip(texts, examples.labels, strict=True)]


class Answered(OptionsOfTask):
    """Questions with options. Of a question with a blank, the option fills it."""

    methods = {"majority": "majority class", "tfidf": "TF-IDF similarity"}

    def size(self) -> tuple[int, int, float]:
        count, words = self.counted()
        options = task_named(self.task).shape.classes or task_named(self.task).shape.rows
        return count, options, PIECES * words / (count * options)

    def _of(self, split: Split) -> list[Choice]:
        examples: ChoiceExamples = _checked(self.task, split)
        rows = zip(examples.contexts(), examples.questions, examples.labels.tolist(), strict=True)
        return [_choice(context, question, options, label) for context, (question, options), label in rows]


def _choice(context: str, question: str, options: Sequence[str], label: int) -> Choice:
    """One question. What is after a blank follows each option."""
    before, blank, after = question.partition(BLANK)
    rest = after if blank else ""
    return Choice((f"{context} {before}".strip(),), tuple(f"{option}{rest}" for option in options), label)


class Substituted(OptionsOfTask):
    """Pronouns that refer to one of two names: each name takes its place, and the text after it is scored.

    Pronouns for neither are left out. The option is the text after the name, so that long names lose nothing.
    """

    methods = {"majority": "majority class", "nearest": "nearer name"}

    def size(self) -> tuple[int, int, float]:
        count, words = self.counted()
        return count, 2, PIECES * words / count

    def _of(self, split: Split) -> list[Choice]:
        return _substituted(_checked(self.task, split))


def _substituted(examples: MentionExamples) -> list[Choice]:
    found = []
    for passage, spans, label in zip(examples.passages, examples.spans.tolist(), examples.labels.tolist(), strict=True):
        words, (start, end) = passage.split(" "), spans[0]
        rest = words[end : end + _MOST_AFTER]
        if label > 1 or not any(letter.isalnum() for letter in "".join(rest)):
            continue
        owner = "'s" if _is_possessive(words[start], rest) else ""
        before = [" ".join([*words[:start], *words[a:b]]) + owner for a, b in spans[1:]]
        nearest = int(np.argmin([min(abs(start - b), abs(a - end)) for a, b in spans[1:]]))
        found.append(Choice(tuple(before), (" ".join(rest),) * 2, label, {"nearest": nearest}))
    return found


def _is_possessive(pronoun: str, rest: Sequence[str]) -> bool:
    """Whether a name in the place of a pronoun needs an 's: of "her", where a content word follows."""
    word = pronoun.lower()
    follows = rest[0].lower() if rest else ""
    return word in ("his", "hers") or (word == "her" and follows.isalpha() and follows not in FUNCTION_WORDS)


class Threshold(OfTask):
    """Sentences that are called acceptable if their mean log-probability of a token is above a threshold.

    The threshold is the one with the highest correlation on training examples: one number is learnt from labels.
    """

    metrics = {
        "matthews": "Matthews correlation of answers and labels, -1 to 1",
        "auc": "area under the ROC curve of the mean log-probability",
    }
    methods = {"majority": "majority class", "unigram": "word frequencies"}

    def positions(self, system: System, settings: Measurement) -> float:
        count, words = self.counted()
        train = task_pins.expected(self.task)["train"]
        asked = PIECES * words * share(settings, count)
        return asked + PIECES * train.words * min(1.0, _THRESHOLDS / train.examples)

    def ask(self, asking: Asking) -> Found:
        train: TextExamples = _checked(self.task, "train")
        dev: TextExamples = _checked(self.task, "dev")
        asked, count = len(dev.first[: asking.settings.examples]), len(train.first[:_THRESHOLDS])
        rows = [asking.pieces(text) for text in (*train.first[:count], *dev.first[:asked])]
        labels = np.concatenate([np.asarray(train.labels)[:count], np.asarray(dev.labels)[:asked]]).astype(int)
        means = -np.array([nats.sum() / max(1, len(nats)) for nats in asking.nats(rows)])
        answers = _answered(means, labels, count)
        metrics: dict[str, float | bool] = {
            "matthews": matthews(labels[count:], answers),
            "auc": Answers(means[count:], labels[count:]).auc,
            "all_equal": len(set(answers.tolist())) == 1,
            "matthews.majority": 0.0,
        }
        if (simple := asking.unigram_nats(rows)) is not None:
            by_words = -np.array([nats.mean() for nats in simple])
            metrics["matthews.unigram"] = matthews(labels[count:], _answered(by_words, labels, count))
        return Found(metrics, {"right": answers == labels[count:]})


def _answered(scores: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """The answers after the first ``count`` scores, by the threshold that is best on those."""
    return (scores[count:] > threshold(scores[:count], labels[:count])).astype(int)


def threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The threshold with the highest Matthews correlation; an example is in class 1 if its score is above it.

    >>> threshold(np.array([-3.0, -2.0, -1.0, -0.5]), np.array([0, 0, 1, 1]))
    -1.5
    """
    order = np.argsort(scores, kind="stable")
    ranked, right = scores[order], labels[order]
    ones, size = right.sum(), len(right)
    below = np.arange(1, size)  # so many are called 0
    missed = np.cumsum(right)[:-1]  # of those, class 1
    hits, called = ones - missed, size - below
    spread = np.sqrt(called.astype(float) * below * ones * (size - ones))
    correlation = (hits * size - called * ones) / np.maximum(spread, 1e-12)
    correlation[ranked[1:] == ranked[:-1]] = -np.inf  # nothing is between equal scores
    best = int(correlation.argmax())
    return float((ranked[best] + ranked[best + 1]) / 2)


def _checked(task: str, split: Split) -> Any:
    return _examples(task, split, fingerprint(task))


@functools.lru_cache(maxsize=8)
def _examples(task: str, split: Split, _fingerprint: str) -> Any:
    return task_pins.checked(task, split)
