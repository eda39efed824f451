"""Weights of one network for another: which knobs shape them, and layers of a deeper one."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lightning_modules.config import ConfigError, Problem, as_data, flat, once
from lightning_modules.model.settings import Backbone, only
from lightning_modules.model.transformer import Transformer

ADDED = "embeddings.tables."  # starts the names of tables that are added to the word embeddings, such as of segments
_KNOB = "training.start_layers"
_SUB_LAYER = re.compile(r"backbone\.blocks\.(?P<layer>\d+)\.(?P<kind>\w+)(?P<rest>\..*)")
_RANDOM = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


@contextmanager
def undrawn() -> Iterator[None]:
    """Networks that are made inside have shapes alone: no memory, no random initial weights."""
    with torch.device("meta"), _Undrawn():
        yield


def shaping(here: Backbone, there: Backbone, vocab_size: int) -> list[str]:
    """The knobs in which a backbone differs from another so that the other's weights do not fit.

    A table that is added to the word embeddings may be new: it starts near 0, and the others fit as they are.
    """
    if here.essence() == there.essence():
        return []
    if type(here) is not type(there):
        return ["kind"]
    shapes, given = _shapes(here, vocab_size), _shapes(there, vocab_size)
    if given == {name: shape for name, shape in shapes.items() if name in given or not name.startswith(ADDED)}:
        return []
    ours, theirs = flat(here), flat(there)
    differing = [path for path, value in ours.items() if value != theirs.get(path)]

    def shapes_it(path: str) -> bool:
        try:
            return _shapes(here.but(**{path: as_data(theirs.get(path))}), vocab_size) != shapes
        except ConfigError:
            return True  # it goes with others that differ

    return [path for path in differing if shapes_it(path)] or differing


@once
def _shapes(model: Backbone, vocab_size: int) -> dict[str, torch.Size]:
    """The shapes of a backbone's weights, found without allocating memory."""
    with undrawn():
        return {name: tensor.shape for name, tensor in model.build(vocab_size).state_dict().items()}


class _Undrawn(TorchFunctionMode):
    """Skips the random initialisation of new weights when only their shapes are needed."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return kwargs.get("tensor", *args[:1]) if func in _RANDOM else func(*args, **kwargs)


def check_layers(chosen: Sequence[int], model: Backbone, start: Backbone) -> None:
    """Checks that each layer of a model has one that it starts from.

    Raises:
        ConfigError: For a model that is no transformer, another number of layers, and one that is not there.
    """
    ours, theirs = only(model, Transformer, _KNOB), only(start, Transformer, _KNOB)
    wrong = []
    if len(chosen) != ours.num_layers:
        some = [n * (theirs.num_layers - 1) // max(1, ours.num_layers - 1) for n in range(ours.num_layers)]
        each = f"name one for each layer, such as {some}. For random weights set training.start to {{}} and this to []"
        wrong.append(f"names {len(chosen)} layers, and model.num_layers is {ours.num_layers}: {each}")
    if absent := [layer for layer in chosen if not 0 <= layer < theirs.num_layers]:
        wrong.append(
            f"has {', '.join(map(str, absent))}, and the model in training.start has the layers 0 to "
            f"{theirs.num_layers - 1}"
        )
    if wrong:
        raise ConfigError(Problem(_KNOB, message) for message in wrong)


def with_layers(start: Backbone, chosen: Sequence[int], model: Backbone) -> Backbone:
    """The start with so many of its layers and the segments of a model; as it is where none are chosen."""
    return start.but(num_layers=len(chosen), segment_types=model.get("segment_types")) if chosen else start


def chosen_layers(
    weights: Mapping[str, Tensor], chosen: Sequence[int], start: Transformer, names: Iterable[str]
) -> dict[str, Tensor]:
    """The weights of a deeper model as those of one that has some of its layers.

    A table that is added to the word embeddings, such as one of segments, is left out where the model has none, as in
    DistilBERT. ``names`` are those of the weights of the model that has these layers alone.
    """
    own, added = set(names), f"backbone.{ADDED}"
    kept = {
        name: tensor
        for name, tensor in weights.items()
        if not _SUB_LAYER.match(name) and (name in own or not name.startswith(added))
    }
    for name in own:
        if layer := _SUB_LAYER.match(name):
            owner = start.owners(chosen[int(layer["layer"])])[layer["kind"]]
            kept[name] = weights[f"backbone.blocks.{owner}.{layer['kind']}{layer['rest']}"]
    return kept
