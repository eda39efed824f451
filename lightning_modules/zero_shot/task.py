"""What a zero-shot task is: data, a way to ask, scores, and what answers without a network."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from lightning_modules.config import Problem, identity
from lightning_modules.data import Data, open_store
from lightning_modules.data.baselines.bigram import Bigrams, count
from lightning_modules.data.corpora.sources import Origin
from lightning_modules.generation.scoring import LanguageModelOf, Windows, log_probabilities
from lightning_modules.system import System
from lightning_modules.zero_shot.settings import Measurement

# ends the score of a method without a network on the tokens that a model predicts, where these are not all
SAME_TOKENS = "_same_tokens"
PIECES = 1.6  # per word, the estimate of plans; 1.5 to 1.8 with a vocabulary of 4,096


@dataclass(frozen=True, eq=False)
class Asking:
    """A model, and how it is evaluated.

    Attributes:
        data: The text that it learned from, which simple methods count; None for a checkpoint of others.
        system: The run that it is of, if it is of one.
    """

    model: LanguageModelOf
    settings: Measurement
    data: Data | None = None
    system: System | None = None

    @cached_property
    def windows(self) -> Windows:
        """How rows are read that are longer than the model's positions."""
        most = self.model.max_positions - len(self.model.start)
        return Windows(stride=max(1, min(self.settings.stride or self.model.max_positions // 2, most - 1)))

    def flat(self, text: str) -> str:
        """A text with the white space that the model knows, and none around it."""
        return self.model.spaced(text).strip()

    def pieces(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.model.encode(self.flat(text))

    def nats(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Minus the log-probability of each token of some texts, after the start tokens."""
        started = [[*self.model.start, *row] for row in rows]
        hidden = max(0, len(self.model.start) - 1)
        return [-found[hidden:] for found in log_probabilities(self.model, started, windows=self.windows)]

    @cached_property
    def counted(self) -> Bigrams | None:
        """The bigrams of the text that the model learned from, for what is seen on the left."""
        return count(open_store(self.data, "train"), (True, False)) if self.data is not None else None

    def unigram_nats(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray] | None:
        """Minus the log-probability of each token by its frequency in the text that the model learned from."""
        if self.counted is None:
            return None
        tokens = self.counted.tokens
        by_token = np.log(tokens.sum() + len(tokens)) - np.log(tokens + 1.0)
        return [by_token[np.asarray(row, dtype=np.int64)] for row in rows]

    def bigram_nats(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray] | None:
        """The same by the token before it; the first token of a row by its frequency."""
        if self.counted is None:
            return None
        found = []
        for row in rows:
            word = np.asarray(row, dtype=np.int64)
            left = np.concatenate([[-1], word[:-1]]).astype(np.int64)
            found.append(-np.log(self.counted.probability(word, left, np.full(len(word), -1))))
        return found


@dataclass(frozen=True)
class Found:
    """What a model answered.

    Attributes:
        metrics: Every metric by name, without the name of the task.
        scores: Metric -> what each example adds to it, by example: the metric is their mean, by weight.
        weights: How often each example counts; by default once.
        documents: The document of each example; by default each its own.
    """

    metrics: dict[str, float | bool]
    scores: dict[str, np.ndarray] = field(default_factory=dict)
    weights: np.ndarray | None = None
    documents: np.ndarray | None = None


@dataclass(frozen=True)
class ZeroShot(ABC):
    """A task that a language model is evaluated on without training. Tasks are frozen dataclasses.

    Attributes:
        name: Its name in grids; metrics are called ``<name>.<metric>``.
        title: Published name and question, in one line.
        source: Publication.
        metrics: Name of each metric -> its description, the main one first.
        methods: Name of each method without a network -> what tables call it; its score of the main metric is called
            ``<name>.<metric>.<method>``.
        reads: The settings of a measurement that act on it.
        recipes: Kind of tokenizer -> version of how a model of its pieces is evaluated, where it is not the first.
        better: The better direction of the main metric.
        of_run: Whether its examples are made from the text of a run's corpora.
        of_weights: Whether its scores follow from the weights and the text alone, as those of time do not.
        own_split: How its examples differ from the official ones; empty where they do not.
        licence: Terms of use of its data, in a few words.
    """

    name: str
    title: str
    source: str = ""
    licence: str = ""
    own_split: str = ""
    metrics: ClassVar[dict[str, str]]
    methods: ClassVar[dict[str, str]] = {}
    reads: ClassVar[frozenset[str]] = frozenset({"examples"})
    recipes: ClassVar[dict[str, int]] = {}
    better: ClassVar[str] = "higher"
    of_run: ClassVar[bool] = False
    of_weights: ClassVar[bool] = True

    @property
    def main(self) -> str:
        """The metric that comparisons use."""
        return next(iter(self.metrics))

    @abstractmethod
    def fingerprint(self) -> str:
        """What its examples are, and how they are presented. Pinned data are not opened."""

    def fingerprint_under(self, kind: str) -> str:
        """`fingerprint`, and the version of how pieces of a kind of tokenizer are presented, from the second on."""
        own = self.recipes.get(kind)
        return identity([self.fingerprint(), own]) if own else self.fingerprint()

    @abstractmethod
    def check(self) -> None:
        """Opens its data and compares them with their pins.

        Raises:
            ConfigError: When they are missing (the message says how to get them) or differ.
        """

    def at_hand(self) -> bool:
        """Whether its fingerprint is available: its data are pinned, or their files exist."""
        return True

    @property
    def origin(self) -> Origin | None:
        """Where its data come from; None where it has no files."""
        return None

    @abstractmethod
    def positions(self, system: System, settings: Measurement) -> float:
        """The expected number of positions that the model reads."""

    @abstractmethod
    def ask(self, asking: Asking) -> Found:
        """Asks a model."""

    def text(self, system: System, settings: Measurement) -> Any:
        """What determines the text, where it is made from a run's own: scores on another one do not compare."""
        return system.data.corpora

    def memory(self, system: System, settings: Measurement) -> int:
        """Positions that the model remembers before those that it reads; texts are read without."""
        return 0

    def problems(self, system: System, settings: Measurement) -> Iterator[Problem]:
        """Why a run cannot be evaluated, which is known before it is trained."""
        return iter(())

    def settled(self, settings: Measurement) -> Measurement:
        """The settings with those neutral that do not act."""
        return settings.acting(self.reads)

    def idle(self, settings: Measurement) -> list[str]:
        """The settings that are given and cannot act."""
        acting = self.settled(settings)
        return [name for name in type(settings).model_fields if getattr(settings, name) != getattr(acting, name)]

    def work(self, system: System, settings: Measurement) -> tuple[int, float]:
        """The expected positions and FLOPs of a measurement, forward passes only."""
        tokens, length = self.positions(system, settings), system.format.sequence_length
        return round(tokens), tokens / length * flops(system, length, self.memory(system, settings))


def flops(system: System, length: int, memory: int = 0) -> float:
    """FLOPs of a forward pass over a row after what is remembered, the output layer at every position."""
    size = system.model.size(system.data.tokenizer.vocab_size)
    forward = system.model.flops_per_sequence(length, memory=memory)
    return forward + system.objectives.flops_per_sequence(length, size)


def share(settings: Measurement, examples: int) -> float:
    """The share of so many examples that is evaluated."""
    return min(settings.examples or examples, examples) / examples


class OfRun(ZeroShot):
    """What tasks share that are made from the text of a run: they have no data of their own, and nothing is pinned."""

    of_run = True
    recipe: ClassVar[tuple[Any, ...]]  # how the text is made into what is predicted. Another one gives other scores

    def fingerprint(self) -> str:
        return identity([*self.recipe])

    def check(self) -> None:
        """The corpora are those of the run, which is refused without them."""
