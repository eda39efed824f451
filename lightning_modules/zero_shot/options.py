"""Questions with options: the option whose text the model finds most probable after the prompt.

The text of an option is the option and what follows it, so that a cloze asks for the probability of the word and of the
rest of its sentence (Radford et al. 2019, section 3.2). `SCORES` of `generation.scoring` makes one number of the
log-probabilities of its tokens: their sum, their mean, or what the prompt adds to the sum.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lightning_modules.config import Problem
from lightning_modules.data.baselines.two_way import Answers
from lightning_modules.draws import permutation
from lightning_modules.generation.scoring import SCORES, scored
from lightning_modules.system import System
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.task import Asking, Found, ZeroShot, share

_MOST_DEMONSTRATIONS = 512  # training examples that shots are drawn from


class Choice(NamedTuple):
    """One question.

    Attributes:
        prompts: The text before each option; one for all if it is the same.
        options: The options, each with what follows it.
        label: Number of the right one.
        guesses: Method without a network -> number of its answer.
    """

    prompts: tuple[str, ...]
    options: tuple[str, ...]
    label: int
    guesses: Mapping[str, int] = MappingProxyType({})

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Each option with the text before it."""
        before = self.prompts if len(self.prompts) > 1 else self.prompts * len(self.options)
        return list(zip(before, self.options, strict=True))

    @property
    def solved(self) -> str:
        """The question with its answer, as an example in a prompt."""
        return " ".join(self.rows[self.label])


@dataclass(frozen=True)
class Options(ZeroShot):
    """A task of questions with options."""

    metrics = {
        "accuracy": "share of questions whose right option is the most probable one",
        "auc": "area under the ROC curve of one option's score against the other's, for questions with two options",
    }
    methods = {"majority": "majority class"}
    reads = frozenset({"examples", "rule"})
    rule = "mean"

    @abstractmethod
    def questions(self, asking: Asking) -> list[Choice]:
        """The questions, in a fixed order.

        Raises:
            ConfigError: When the data are missing.
        """

    @abstractmethod
    def size(self) -> tuple[int, int, float]:
        """Number of questions, options of each, tokens of a question with an option; estimates."""

    def demonstrations(self) -> list[Choice]:
        """Solved questions for prompts, from training examples."""
        return []

    def simple(self, questions: Sequence[Choice]) -> dict[str, float]:
        """The accuracy of each method of ``methods``."""
        labels = np.array([question.label for question in questions])
        named = dict.fromkeys(name for question in questions for name in question.guesses)
        guessed = {name: [q.guesses.get(name) == q.label for q in questions] for name in named}
        return {"majority": float(np.bincount(labels).max() / len(labels))} | {
            name: float(np.mean(right)) for name, right in guessed.items()
        }

    def positions(self, system: System, settings: Measurement) -> float:
        count, options, tokens = self.size()
        each = min(system.format.sequence_length, tokens * (1 + settings.shots))
        return count * options * each * share(settings, count)

    def problems(self, system: System, settings: Measurement) -> Iterator[Problem]:
        if (settings.rule or self.rule) == "gain" and not system.has_start:
            text = f"{self.name} by gain asks for options without a prompt, and without a start token, as with "
            text += (
                "format.frame none or format.cls last, nothing predicts the first token of a row: choose sum or mean"
            )
            yield Problem("measuring.rule", f"{text}, or another frame")

    def ask(self, asking: Asking) -> Found:
        settings = asking.settings
        questions = self.questions(asking)[: settings.examples]
        before = shots(self.demonstrations(), settings)
        rows = [row for question in questions for row in question.rows]
        prompts = [asking.flat(" ".join([*before, prompt])) for prompt, _ in rows]
        options = [[asking.flat(option)] for _, option in rows]
        rule = settings.rule or self.rule
        found = scored(asking.model, prompts, options, neutral="" if rule == "gain" else None, windows=asking.windows)
        values = iter([SCORES[rule](one) for (one,) in found])
        by_question = [np.array([next(values) for _ in question.options]) for question in questions]
        labels = np.array([question.label for question in questions])
        answers = np.array([int(found.argmax()) for found in by_question])
        right = answers == labels
        metrics: dict[str, float | bool] = {"accuracy": float(right.mean()), "all_equal": len(set(answers)) == 1}
        if all(len(found) == 2 for found in by_question):
            metrics["auc"] = Answers(np.array([found[1] - found[0] for found in by_question]), labels).auc
        simple = {f"accuracy.{name}": value for name, value in self.simple(questions).items()}
        return Found(metrics | simple, {"accuracy": right})


def shots(solved: Sequence[Choice], settings: Measurement) -> list[str]:
    """Solved examples for a prompt, in turn of each class as far as there are some.

    They are the same before each question, as in a prompt that somebody writes once.
    """
    order = permutation(settings.shots_seed, "shots", 0, len(solved)) if solved else []
    by_class: dict[int, list[Choice]] = {}
    for n in order:
        by_class.setdefault(solved[n].label, []).append(solved[n])
    found: list[Choice] = []
    while len(found) < settings.shots and any(by_class.values()):
        found += [own.pop() for label, own in sorted(by_class.items()) if own]
    return [question.solved for question in found[: settings.shots]]


def few(examples: Sequence[Choice]) -> list[Choice]:
    """The examples that shots are drawn from."""
    return [*examples[:_MOST_DEMONSTRATIONS]]
