"""What a pretrained model knows before any fine-tuning: hidden words filled in, simple classifiers of its states."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from lightning_modules.batch import Encoded, Target
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder, as_example
from lightning_modules.system import System
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.loader import InOrder, TaskData
from lightning_modules.tasks.reading.passages import Question, SpanExamples
from lightning_modules.tasks.reading.pieces import Pieces
from lightning_modules.tasks.shapes.shape import Inputs
from lightning_modules.tasks.shapes.span import Spans
from lightning_modules.training.pretrain import Pretrain

MASK = "[MASK]"
_BATCH = 64  # items that the encoder sees at once


def pretrained(system: System, weights: Path) -> Pretrain:
    """The module of a finished pretraining, ready to be asked.

    Args:
        system: What was pretrained.
        weights: The file that ``fit`` left.
    """
    module = system.build(0)
    module.load_state_dict(load_file(weights))
    return module.eval()


class Filling(NamedTuple):
    """A piece that may stand in the place of a hidden one, and its probability."""

    piece: str
    probability: float


def fill_mask(module: Pretrain, encoder: Encoder, text: str, count: int = 5) -> list[list[Filling]]:
    """The likeliest pieces for each ``[MASK]`` of a text, likeliest first.

    The text is given as one segment between [CLS] and [SEP]. What follows a mask directly starts a word: right for
    WordPiece, while byte-level BPE would have told ``[MASK].`` from ``[MASK] .``.

    Args:
        module: From `pretrained`.
        encoder: The tokenizer of pretraining.
        text: A text with one mask or more.
        count: Pieces a mask.

    Raises:
        ConfigError: For a text without a mask or too long, and for a model that predicts no hidden words.
    """
    objective = module.objectives.mlm
    if objective is None:
        raise ConfigError(["this model was not trained to predict hidden words: it has no objective 'mlm'"])
    vocabulary = encoder.vocabulary
    example = as_example(_masked(text, encoder), vocabulary)
    where = (example.inputs.ids[0] == vocabulary.mask).nonzero()[:, 0]
    if not len(where):
        raise ConfigError([f"the text has no {MASK}: {text!r}"])
    example.targets["mlm"] = Target(where, torch.zeros_like(where))
    try:
        with torch.no_grad():
            logits = objective.logits(module.heads["mlm"], module(example), example)
    except ValueError as error:  # the position table is too short
        raise ConfigError([f"the text is too long: {error}"]) from None
    best = torch.softmax(logits.float(), 1).topk(min(count, vocabulary.size))
    return [
        [Filling(vocabulary.pieces[piece], value) for piece, value in zip(pieces, values, strict=True)]
        for pieces, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _masked(text: str, encoder: Encoder) -> list[int]:
    """Token ids of a text with masks."""
    vocabulary, found = encoder.vocabulary, []
    for part in text.split(MASK):
        words = " ".join(part.split())
        found += [*encoder([words])[0].tolist(), vocabulary.mask] if words else [vocabulary.mask]
    return found[:-1]


def states(
    backbone: nn.Module, inputs: Inputs, pooling: Literal["mean", "first"] = "mean", layer: int | None = None
) -> np.ndarray:
    """One vector an item with one row, in the order of the items ``[n d]``.

    Args:
        backbone: A pretrained encoder.
        inputs: The encoded examples of a split.
        pooling: The mean over the positions that are no padding, or the first position.
        layer: 0 for the embeddings' output, i for layer i; by default the last states as heads see them.
    """
    return _pooled(backbone, inputs, pooling, lambda encoded: [_layer(encoded, layer)])[0]


def _pooled(
    backbone: nn.Module, inputs: Inputs, pooling: str, chosen: Callable[[Encoded], list[torch.Tensor]]
) -> np.ndarray:
    """One vector an item from each of the chosen states ``[k n d]``, from one pass over the items."""
    order, found, training = InOrder(inputs, _BATCH), [], backbone.training
    backbone.eval()
    with torch.no_grad():
        for example in order:
            hidden = torch.stack(chosen(backbone(example))).float()
            real = example.inputs.real[:, :, None]
            pooled = hidden[:, :, 0] if pooling == "first" else (hidden * real).sum(2) / real.sum(1)
            found.append(pooled.numpy())
    backbone.train(training)
    return np.concatenate(found, 1)[:, np.argsort(order.order)]


def _layer(encoded: Encoded, layer: int | None) -> torch.Tensor:
    return encoded.last if layer is None else encoded.layers[layer]


def linear_probe(train: tuple[np.ndarray, np.ndarray], dev: tuple[np.ndarray, np.ndarray]) -> float:
    """Accuracy of a logistic regression on states, each dimension scaled to unit variance.

    Args:
        train: States ``[n d]`` and classes ``[n]``.
        dev: The same of what is asked.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return float(make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(*train).score(*dev))


def nearest_neighbours(
    train: tuple[np.ndarray, np.ndarray], dev: tuple[np.ndarray, np.ndarray], count: int = 5
) -> float:
    """Accuracy of the commonest class among the nearest training examples, by the cosine of their states.

    Args:
        train: States ``[n d]`` and classes ``[n]``.
        dev: The same of what is asked.
        count: Neighbours that vote; all there are if they are fewer.
    """
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(min(count, len(train[1])), metric="cosine")
    return float(model.fit(*train).score(*dev))


PROBES = {"linear": linear_probe, "neighbours": nearest_neighbours}


def probe(
    backbone: nn.Module,
    data: TaskData,
    kinds: Sequence[str] = tuple(PROBES),
    pooling: Literal["mean", "first"] = "mean",
    layer: int | None = None,
) -> dict[str, float]:
    """Kind of probe -> its accuracy on the dev examples of a task whose examples are a text and a class.

    Args:
        backbone: A pretrained encoder, which stays as it is.
        data: The task, encoded by the tokenizer of pretraining.
        kinds: Names of ``PROBES``.
        pooling: See `states`.
        layer: See `states`.

    Raises:
        ConfigError: For a task that asks for anything else than a class of a text.
    """
    labels = _classes(data)
    pairs = [
        (states(backbone, inputs, pooling, layer), found)
        for inputs, found in zip((data.train, data.dev), labels, strict=True)
    ]
    return {kind: PROBES[kind](*pairs) for kind in kinds}


def probe_layers(
    backbone: nn.Module,
    data: TaskData,
    kinds: Sequence[str] = tuple(PROBES),
    pooling: Literal["mean", "first"] = "mean",
) -> dict[str, list[float]]:
    """What `probe` says of each layer, the output of the embeddings first; the examples are encoded once.

    Raises:
        ConfigError: See `probe`.
    """
    labels = _classes(data)
    train, dev = (_pooled(backbone, inputs, pooling, lambda e: e.layers) for inputs in (data.train, data.dev))
    layers = [((ours, labels[0]), (theirs, labels[1])) for ours, theirs in zip(train, dev, strict=True)]
    return {kind: [PROBES[kind](*pairs) for pairs in layers] for kind in kinds}


def _classes(data: TaskData) -> list[np.ndarray]:
    """The class of each training and each dev example."""
    labels = [getattr(inputs, "labels", None) for inputs in (data.train, data.dev)]
    if any(found is None or found.dtype.kind not in "iu" or found.ndim != 1 for found in labels):
        raise ConfigError([f"'{data.task.name}' cannot be probed: its answers are not one class a text"])
    return labels


@torch.no_grad()
def answer(networks: tuple[nn.Module, nn.Module], encoder: Encoder, spans: Spans, length: int, asked: Question) -> str:
    """The words of a passage that answer a question; empty where the passage seems to hold no answer.

    Args:
        networks: Backbone and head of a fine-tuning on a reading task.
        encoder: Their tokenizer.
        spans: The shape of that task.
        length: Positions of a window at most.
        asked: Question and passage; its id and its answers are not looked at.
    """
    backbone, head = networks
    examples = SpanExamples.of([asked])
    settings = FineTuning().but(max_length=length)
    inputs = spans.inputs(examples, Pieces.of(examples.texts(), encoder), encoder.vocabulary, settings)
    batch = inputs.batch(np.arange(len(inputs)))
    outputs = head.by_item(head(backbone(batch).last, batch), batch)
    said = spans.answers([found.float().numpy() for found in outputs], inputs)
    return "" if spans.unanswerable and said.nulls[0] > 0 else said.texts[0]
