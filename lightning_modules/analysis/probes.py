"""Probes of a pretrained model without fine-tuning: masked words filled in, simple classifiers of its states."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from lightning_modules.batch import Target
from lightning_modules.config import ConfigError
from lightning_modules.data.text.encode import Encoder, as_example
from lightning_modules.data.text.masks import MASK
from lightning_modules.objectives.objective import own_heads
from lightning_modules.system import System
from lightning_modules.tasks.loader import InOrder, TaskData
from lightning_modules.tasks.shapes.shape import Inputs
from lightning_modules.training.module import Pretrain
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


def states(backbone: nn.Module, inputs: Inputs) -> list[np.ndarray]:
    """Of each layer, the output of the embeddings first, one vector per item: the mean of its positions ``[n d]``."""
    order, vectors, training = InOrder(inputs, _BATCH), [], backbone.training
    backbone.eval()
    with torch.no_grad():
        for example in order:
            real = example.inputs.real[:, :, None]
            hidden = (layer.float() for layer in backbone(example).layers)
            vectors.append([((h * real).sum(1) / real.sum(1)).numpy() for h in hidden])
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


def probe_layers(backbone: nn.Module, data: TaskData) -> dict[str, list[float]]:
    """Kind of probe -> accuracy on the dev examples by the states of each layer (`states`).

    Args:
        data: The task, encoded by the tokenizer of pretraining.

    Raises:
        ConfigError: For a task that is not text classification.
    """
    labels = _classes(data)
    train, dev = (states(backbone, inputs) for inputs in (data.train, data.dev))
    layers = [((fit, labels[0]), (test, labels[1])) for fit, test in zip(train, dev, strict=True)]
    return {kind: [probe(*pairs) for pairs in layers] for kind, probe in PROBES.items()}


def _classes(data: TaskData) -> list[np.ndarray]:
    """The class of each training and each dev example."""
    found = [getattr(inputs, "labels", None) for inputs in (data.train, data.dev)]
    labels = [part for part in found if part is not None and part.dtype.kind in "iu" and part.ndim == 1]
    if len(labels) < len(found):
        raise ConfigError(
            [f"'{data.task.name}' cannot be probed: probes need one class per text. Choose a text classification task."]
        )
    return labels
