"""The shapes of a network's weights, found without allocating memory or drawing numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lightning_modules.backbones.backbone import Backbone
from lightning_modules.config import ConfigError, as_data, flat, once


@contextmanager
def undrawn() -> Iterator[None]:
    """Networks that are made inside have shapes alone: no memory, no random initial weights."""
    with torch.device("meta"), _Undrawn():
        yield


ADDED = "embeddings.tables."  # starts the names of tables that are added to the word embeddings, such as of segments


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


_RANDOM = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)
