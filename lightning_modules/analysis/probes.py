"""Probes of a pretrained model without fine-tuning: masked words filled in, simple classifiers of its states."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from lightning_modules.batch import Encoded, Target
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder, as_example
from lightning_modules.data.text.masks import MASK
from lightning_modules.objectives.objective import own_heads
from lightning_modules.system import System
from lightning_modules.tasks.loader import InOrder, TaskData
from lightning_modules.tasks.shapes.shape import Inputs
from lightning_modules.training.pretrain import Pretrain
from lightning_modules.training.weights import load_into

_BATCH = 64  # items per forward pass of the encoder


def pretrained(system: System, weights: Path) -> Pretrain:
    """The module of a finished pretraining, in evaluation mode.

    Args:
        weights: The file that ``fit`` wrote.

    Raises:
        ConfigError: When it is damaged or of another model.
    """
    module = system.build(0)
    load_into(module, weights)
    return module.eval()


class Filling(NamedTuple):
    """A candidate piece for a mask and its probability."""

    piece: str
    probability: float


def fill_mask(module: Pretrain, encoder: Encoder, text: str, count: int = 5) -> list[list[Filling]]:
    """The most probable pieces for each ``[MASK]`` of a text, in descending order.

    The text is one segment between [CLS] and [SEP], read as training shows it (`masked`).

    Raises:
        ConfigError: For a text without a mask or too long, and for a model without the objective 'mlm'.
    """
    objective = module.objectives.mlm
    if objective is None:
        raise ConfigError(["this model has no objective 'mlm' and cannot fill masks. Choose one trained with it."])
    vocabulary = encoder.vocabulary
    example = as_example(masked(text, encoder), vocabulary)
    where = (example.inputs.ids[0] == vocabulary.mask).nonzero()[:, 0]
    if not len(where):
        raise ConfigError([f"the text has no {MASK}: {text!r}. Write {MASK} for each word to fill."])
    example.targets["mlm"] = Target(where, torch.zeros_like(where))
    try:
        with torch.no_grad():
            logits = objective.logits(own_heads(module.heads, "mlm"), module(example), example)
    except ValueError as error:  # the position table is too short
        raise ConfigError([f"the text is too long: {error}"]) from None
    best = torch.softmax(logits.float(), 1).topk(min(count, vocabulary.size))
    return [
        [Filling(vocabulary.pieces[piece], value) for piece, value in zip(pieces, values, strict=True)]
        for pieces, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def masked(text: str, encoder: Encoder) -> list[int]:
    """Token ids of a text with ``[MASK]`` in the place of words, as training hides them; see `data.text.masks`."""
    own, read = encoder.vocabulary.mask, encoder.reading_masks.token_to_id(MASK)  # a checkpoint's mask has its own name
    ids = encoder.reading_masks.encode(" ".join(text.split()), add_special_tokens=False).ids
    return [own if piece == read else piece for piece in ids]


def states(
    backbone: nn.Module, inputs: Inputs, pooling: Literal["mean", "first"] = "mean", layer: int | None = None
) -> np.ndarray:
    """One vector per item of one row, in the order of the items ``[n d]``.

    Args:
        pooling: The mean over positions without padding, or the first position.
        layer: 0 for the embeddings' output, i for layer i; by default the last states, as heads read them.
    """
    return _pooled(
        backbone, inputs, pooling, lambda encoded: [encoded.last if layer is None else encoded.layers[layer]]
    )[0]


def _pooled(
    backbone: nn.Module, inputs: Inputs, pooling: str, chosen: Callable[[Encoded], list[torch.Tensor]]
) -> list[np.ndarray]:
    """One vector per item from each of the chosen states, each ``[n d]``, from one pass over the items."""
    order, vectors, training = InOrder(inputs, _BATCH), [], backbone.training
    backbone.eval()
    with torch.no_grad():
        for example in order:
            real = example.inputs.real[:, :, None]
            hidden = [states.float() for states in chosen(backbone(example))]
            pooled = [h[:, 0] if pooling == "first" else (h * real).sum(1) / real.sum(1) for h in hidden]
            vectors.append([states.numpy() for states in pooled])
    backbone.train(training)
    back = np.argsort(order.order)
    return [np.concatenate(batches)[back] for batches in zip(*vectors, strict=True)]


def linear_probe(train: tuple[np.ndarray, np.ndarray], dev: tuple[np.ndarray, np.ndarray]) -> float:
    """Accuracy of a logistic regression on states, each dimension scaled to unit variance.

    Args:
        train: States ``[n d]`` and classes ``[n]``.
        dev: The same of the dev examples.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return float(make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(*train).score(*dev))


def nearest_neighbours(
    train: tuple[np.ndarray, np.ndarray], dev: tuple[np.ndarray, np.ndarray], count: int = 5
) -> float:
    """Accuracy of the majority class among the nearest training examples, by cosine similarity of states.

    Args:
        train: States ``[n d]`` and classes ``[n]``.
        dev: The same of the dev examples.
        count: Number of neighbours, at most the number of training examples.
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
    """Kind of probe -> accuracy on the dev examples of a text classification task.

    Args:
        data: The task, encoded by the tokenizer of pretraining.
        pooling: See `states`.
        layer: See `states`.

    Raises:
        ConfigError: For a task that is not text classification.
    """
    labels = _classes(data)
    pairs = [
        (states(backbone, inputs, pooling, layer), classes)
        for inputs, classes in zip((data.train, data.dev), labels, strict=True)
    ]
    return {kind: PROBES[kind](*pairs) for kind in kinds}


def probe_layers(
    backbone: nn.Module,
    data: TaskData,
    kinds: Sequence[str] = tuple(PROBES),
    pooling: Literal["mean", "first"] = "mean",
) -> dict[str, list[float]]:
    """The results of `probe` for each layer, the output of the embeddings first; encodes the examples once."""
    labels = _classes(data)
    train, dev = (_pooled(backbone, inputs, pooling, lambda e: e.layers) for inputs in (data.train, data.dev))
    layers = [((fit, labels[0]), (test, labels[1])) for fit, test in zip(train, dev, strict=True)]
    return {kind: [PROBES[kind](*pairs) for pairs in layers] for kind in kinds}


def _classes(data: TaskData) -> list[np.ndarray]:
    """The class of each training and each dev example."""
    found = [getattr(inputs, "labels", None) for inputs in (data.train, data.dev)]
    labels = [part for part in found if part is not None and part.dtype.kind in "iu" and part.ndim == 1]
    if len(labels) < len(found):
        raise ConfigError(
            [f"'{data.task.name}' cannot be probed: probes need one class per text. Choose a text classification task."]
        )
    return labels
