"""Reads the frozen states of a pretrained model by every probe, next to three controls.

The regression reads the output of the embeddings, of the layer half-way up or of the last one: inner folds on the
training part choose layer and penalty by squared error. Controls are the initial weights of the same run, read in the
same way, which show what the architecture alone gives away at that width; the words of the texts without their order;
and the majority class.
"""

import functools
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from lightning_modules import NUMERICS, cached, languages
from lightning_modules.config import identity
from lightning_modules.data.store import tokenizer_file
from lightning_modules.data.text.encode import Encoder
from lightning_modules.places import cache
from lightning_modules.probing import ridge, words
from lightning_modules.probing.parts import Parts, Probe
from lightning_modules.probing.retrieval import HeldOutPairs, Retrieval, bars, layers
from lightning_modules.probing.states import LAYERS, Rows, combined, pooled
from lightning_modules.probing.table import RECIPE, with_examples
from lightning_modules.system import System
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.tasks.scores.metrics import METRICS
from lightning_modules.tasks.shapes.texts import TextExamples

MOST_POSITIONS = 64  # of a text, [CLS] and [SEP] included; the same for models with more
_FOLDS = 5
_Kept = TypeVar("_Kept", float, dict[str, float])


@dataclass
class Probed:
    """The results of probes.

    Attributes:
        metrics: ``probes.<name>``, and the same with ``_random``, ``_words`` or ``_majority`` for the controls. Where a
            probe asks for it, also with ``_embeddings``, ``_middle`` and ``_last`` for the layers that are read. Those
            of sentence retrieval have ``_letters``, ``_length`` and ``_best_simple`` as well.
        examples: ``probes.<name>``: which test answers are right, packed; only where answers are classes. Of sentence
            retrieval the share of both directions in which a pair is found.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, other: "Probed") -> None:
        """Adds the results of another probe."""
        self.metrics |= other.metrics
        self.examples |= other.examples


class Reading(NamedTuple):
    """The answers that are read from an encoder's states.

    Attributes:
        chosen: The answers from the layer with the least error on the training part ``[m]``.
        layers: Name -> the answers from that layer ``[m]``; empty unless the probe asks for them.
    """

    chosen: np.ndarray
    layers: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Question:
    """A probe with its examples."""

    probe: Probe
    parts: Parts

    @functools.cached_property
    def targets(self) -> Float[np.ndarray, "n k"]:
        """What the regression is fitted to: 1 in the column of an example's class, or its real number."""
        labels, classes = self.parts.train.labels, self.probe.shape.classes
        return np.eye(classes)[labels.astype(np.int64)] if classes else labels[:, None].astype(np.float64)

    @functools.cached_property
    def folds(self) -> Int[np.ndarray, " n"]:
        """The inner fold of each training example; examples with the same first text share it."""
        return np.array([zlib.crc32(text.encode()) % _FOLDS for text in self.parts.train.first])

    def answers(self, outputs: Float[np.ndarray, "m k"]) -> np.ndarray:
        """Class numbers, or real numbers in regression."""
        return outputs.argmax(1) if self.probe.shape.labels else outputs[:, 0]

    def score(self, answers: np.ndarray) -> float:
        """The metric of answers for the test examples."""
        return METRICS[self.probe.metric].of(self.parts.test.labels, answers)

    def digest(self) -> str:
        """A hash of all texts and labels."""
        items = [part.items_for_pin() for part in (self.parts.train, self.parts.test)]
        return hashlib.sha256(repr(items).encode()).hexdigest()


def probe(
    system: System, seed: int, backbone: nn.Module, device: torch.device, between: Callable[[], None] = lambda: None
) -> Probed:
    """The scores of a pretrained encoder on the probes of its system's evaluation that its text gives examples for.

    Args:
        seed: The seed of its initial weights, which are the control.
        backbone: The trained encoder; it is not changed.
        between: Called before each probe; what it raises ends the measurement.

    Raises:
        ConfigError: When data are missing.
    """
    result = Probed()
    encoder = Encoder(tokenizer_file(system.data), system.data.tokenizer.kind)
    initial = functools.cache(lambda: system.build(seed).backbone.to(device))
    for question in questions(system):
        between()
        name = question.probe.name
        if isinstance(question.probe, Retrieval | HeldOutPairs):
            result.add(_retrieved(question.probe, question, system, seed, encoder, (backbone, initial), device))
            continue
        rows = Rows.of(question.parts, encoder, min(MOST_POSITIONS, system.format.sequence_length))
        answers, of_layers = read(question, rows, backbone, device)
        key = [system.model.essence(), system.data.tokenizer.vocab_size, seed, NUMERICS, device.type, rows.digest()]
        result.metrics |= {
            f"probes.{name}": question.score(answers),
            f"probes.{name}_random": _control(
                question, "random", key, lambda q=question, r=rows: read(q, r, initial(), device).chosen
            ),
            f"probes.{name}_words": words_control(question),
            f"probes.{name}_majority": question.score(_constant(question)),
        }
        result.metrics |= {f"probes.{name}_{layer}": question.score(found) for layer, found in of_layers.items()}
        if question.probe.shape.labels:
            result.examples[f"probes.{name}"] = pack(answers == question.parts.test.labels)
    return result


def _retrieved(
    asked: Retrieval | HeldOutPairs,
    question: Question,
    system: System,
    seed: int,
    encoder: Encoder,
    backbones: tuple[nn.Module, Callable[[], nn.Module]],
    device: torch.device,
) -> Probed:
    """The accuracies of sentence retrieval: of the trained encoder, of its initial weights, and of simple methods."""
    most, digests, spoken = min(MOST_POSITIONS, system.format.sequence_length), [], asked.languages(system.data)

    def rows_of(texts: list[str]) -> Rows:
        none = TextExamples([], [], np.zeros(0, dtype=np.int64))
        alone = TextExamples(texts, None, np.zeros(len(texts), dtype=np.int64))
        return Rows.of(Parts(none, alone), encoder, most)

    def found(backbone: nn.Module) -> list[np.ndarray]:
        def reads(texts: list[str], language: str) -> list[np.ndarray]:
            rows = rows_of(texts)
            digests.append(rows.digest())
            number = languages.read_as(system.model, system.evaluation, language)
            return [combined(layer, rows.test) for layer in pooled(backbone, rows, device, number)]

        return layers(question.parts.test, spoken, reads)

    trained, initial = backbones
    by_layer = found(trained)
    middle, name = by_layer[LAYERS.index("middle")], f"probes.{asked.name}"
    read_as = [languages.read_as(system.model, system.evaluation, one) for one in spoken]
    made = [system.model.essence(), system.data.tokenizer.vocab_size, seed, NUMERICS, device.type]
    key = [asked.fingerprint(), *made, *digests, *read_as]
    untrained = _kept(question, "random", key, lambda: float(found(initial())[LAYERS.index("middle")].mean()))
    simple = {f"{name}_{method}": score for method, score in simple_methods(question).items()}
    scores = {f"{name}_{layer}": float(each.mean()) for layer, each in zip(LAYERS, by_layer, strict=True)}
    metrics = {name: float(middle.mean()), f"{name}_random": untrained, f"{name}_majority": 1 / len(middle)}
    return Probed(metrics | scores | simple, {name: pack(middle.astype(np.float16))})


def simple_methods(question: Question) -> dict[str, float]:
    """The scores of what needs no encoder, by name, from the cache or measured now: those of the words, at least."""
    if isinstance(question.probe, Retrieval | HeldOutPairs):
        return _kept(question, "simple", [], lambda: bars(question.parts.test))
    return {"words": words_control(question)}


def questions(system: System) -> Iterator[Question]:
    """The probes of a system's evaluation that its text gives examples for.

    Raises:
        ConfigError: When data are missing.
    """
    for asked, parts in with_examples(system.evaluation.probes, system.data):
        yield Question(asked, parts)


def words_control(question: Question) -> float:
    """The score of the words of the texts without their order, from the cache or measured now."""
    return _control(
        question, "words", [], lambda: question.answers(words.outputs(question.parts, question.targets, question.folds))
    )


def read(question: Question, rows: Rows, backbone: nn.Module, device: torch.device) -> Reading:
    """The answers of the regression on an encoder's states for the test examples."""
    readers = []
    vectors = pooled(backbone, rows, device)
    for layer in vectors:
        features = ridge.Features.of(combined(layer, rows.train))
        errors, sums = ridge.tried(features, question.targets, question.folds)
        readers.append((errors.min(), features, sums, errors))
    best = min(range(len(readers)), key=lambda number: readers[number][0])

    def answers(number: int) -> np.ndarray:
        reader = ridge.fitted(*readers[number][1:])
        return question.answers(reader(combined(vectors[number], rows.test)))

    asked = LAYERS if question.probe.by_layer else ()
    return Reading(answers(best), {layer: answers(number) for number, layer in enumerate(asked)})


def _constant(question: Question) -> np.ndarray:
    """The most frequent class of the training examples, or their mean."""
    labels, count = question.parts.train.labels, len(question.parts.test)
    return np.full(count, np.bincount(labels).argmax() if question.probe.shape.labels else labels.mean())


def _control(question: Question, kind: str, key: list, answers: Callable[[], np.ndarray]) -> float:
    """The score of a control, which other runs share, from the cache or measured now."""
    return _kept(question, kind, key, lambda: question.score(answers()))


def _kept(question: Question, kind: str, key: list, make: Callable[[], _Kept]) -> _Kept:
    """What a control gave, from the cache or made now."""
    digest = identity([RECIPE, kind, question.digest(), question.probe.metric, *key])[:24]
    path = cache() / "probe-controls" / f"{question.probe.name}-{kind}-{digest}.json"
    return cached.kept_json(path, make)
