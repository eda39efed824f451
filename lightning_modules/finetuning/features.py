"""Feature-based use of a pretrained encoder (Devlin et al. 2019, section 5.3; Peters et al. 2018).

The encoder is frozen. What its layers say of each example is computed once, without dropout, kept on disk, and read by
a mixture, a BiLSTM and the task's head, which alone are trained.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules import NUMERICS
from lightning_modules.backbones import Transformer
from lightning_modules.batch import Encoded, Example
from lightning_modules.layers.bilstm import BiLSTM
from lightning_modules.layers.scalar_mix import ScalarMix
from lightning_modules.places import cache
from lightning_modules.tasks import Features
from lightning_modules.tasks.loader import Batches, InOrder, TaskData
from lightning_modules.tasks.shapes.shape import Inputs

_RECIPE = 1  # bumped when the same weights and examples would give other features
_BATCH = 64  # items that the encoder sees at once


class FrozenFeatures(nn.Module):
    """A backbone whose last states are those of a BiLSTM over the layers of a frozen encoder.

    Layers come with the example (`Example.features`); where they do not, they are computed on the fly and are the
    same but for the rounding of other paddings.

    Args:
        encoder: The backbone that is frozen. It is no part of this module: no optimiser, checkpoint or count of
            parameters has it, and it goes to a device when it is first needed there.
        model: Its settings.
        settings: Which layers are read, and by what.

    Attributes:
        hidden_size: Width of the states that a head reads.

    Raises:
        ConfigError: When the encoder has too few layers.
    """

    def __init__(self, encoder: nn.Module, model: Transformer, settings: Features) -> None:
        super().__init__()
        self._frozen, self.model = (encoder.requires_grad_(False).eval(),), model  # a tuple hides it from torch
        self.layers = settings.chosen(model.depth)
        mixed, self.hidden_size = settings.widths(model.width)
        # one layer, or several side by side, need no weights
        self.mix = ScalarMix(len(self.layers)) if "weighted" in settings.layers else nn.Flatten(-2)
        size, layers = settings.bilstm_size, settings.bilstm_layers
        self.bilstm = BiLSTM(mixed, size, layers) if layers else None

    @property
    def encoder(self) -> nn.Module:
        """The frozen backbone, always without dropout."""
        return self._frozen[0]

    def features(self, example: Example) -> Float[Tensor, "b t k d"]:
        """The layers that are read, in half precision as they are kept; computed in full whatever autocast says.

        The last layer is as the model uses it: after the final normalisation, where there is one.
        """
        device = example.inputs.ids.device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            encoded = self.encoder.to(device)(example)
        layers = [*encoded.layers[:-1], encoded.last]
        return torch.stack([layers[number] for number in self.layers], dim=2).half()

    def forward(self, example: Example) -> Encoded:
        """Mixes and reads."""
        found = self.features(example) if example.features is None else example.features
        mixed = self.mix(found.float())
        states = mixed if self.bilstm is None else self.bilstm(mixed, example.inputs.real)
        return Encoded(layers=[mixed], last=states, unembed=self.encoder.unembed)


class Kept:
    """The items of a split with the features of each of their rows, read from a file of the cache.

    A row is known by its number (``Example.inputs.sample``). Files are named by the weights, by what the encoder sees
    of every row, and by the layers; the first batch that is asked for writes the file where there is none.

    Args:
        inputs: The items.
        frozen: Makes the module that computes them; called only when it must.
    """

    def __init__(self, inputs: Inputs, frozen: Callable[[], FrozenFeatures]) -> None:
        self.inputs, self.frozen = inputs, frozen
        self.examples, self.sizes = inputs.examples, inputs.sizes

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: np.ndarray) -> Example:
        """The items with these numbers, and their features."""
        example = self.inputs.batch(indices)
        return replace(example, features=self.rows.read(example))

    @cached_property
    def rows(self) -> "_Rows":
        """The features of every row, computed if they are not in the cache."""
        frozen, content = self.frozen(), hashlib.sha256()
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        content.update(repr(_origin(frozen, device)).encode())
        numbers, counts = [], []
        for name, tensor in frozen.encoder.state_dict().items():
            _put(content, name, tensor)
        for example in InOrder(self.inputs, _BATCH):
            for name, tensor in _tensors((example.inputs, example.visible)):
                _put(content, name, tensor)
            numbers += example.inputs.sample.tolist()
            counts += example.inputs.real.sum(1).tolist()
        path = cache() / "features" / f"{content.hexdigest()[:24]}.f16"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.is_file():
                self._write(frozen, device, path)
        shape = (sum(counts), len(frozen.layers), frozen.model.width)
        return _Rows.of(np.memmap(path, np.float16, "r", shape=shape), numbers, counts)

    def _write(self, frozen: FrozenFeatures, device: torch.device, path: Path) -> None:
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            with open(temporary, "wb") as file:
                for example in InOrder(self.inputs, _BATCH):
                    found = frozen.features(example.to(device)).cpu()
                    file.write(found[example.inputs.real].numpy().tobytes())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _origin(frozen: FrozenFeatures, device: torch.device) -> list[Any]:
    """What features depend on beside weights and inputs; processors of another kind round otherwise."""
    return [_RECIPE, NUMERICS["pretrain"], frozen.model.essence(), frozen.layers, device.type]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Features of rows of positions, one row after the other ``[p k d]``, and where each begins."""

    values: np.ndarray
    starts: dict[int, int]

    @classmethod
    def of(cls, values: np.ndarray, numbers: list[int], counts: list[int]) -> Self:
        starts = dict(zip(numbers, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
        if len(starts) < len(numbers):
            raise ValueError("two rows of these inputs have the same number (Example.inputs.sample)")
        return cls(values, starts)

    def read(self, example: Example) -> Tensor:
        real = example.inputs.real.numpy()
        found = np.zeros((*real.shape, *self.values.shape[1:]), np.float16)
        for row, (number, there) in enumerate(zip(example.inputs.sample.tolist(), real, strict=True)):
            start = self.starts[number]
            found[row, there] = self.values[start : start + there.sum()]
        return torch.from_numpy(found)


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a record, with where it stands."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, f"{name}.{key}")
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _tensors(item, f"{name}.{number}")
    elif is_dataclass(value):
        for part in fields(value):
            yield from _tensors(getattr(value, part.name), f"{name}.{part.name}")


def _put(content: Any, name: str, tensor: Tensor) -> None:
    content.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
    content.update(tensor.contiguous().numpy().data)


@dataclass(eq=False, repr=False)
class FeatureData(TaskData):
    """The examples of a task with the features of a frozen encoder.

    Attributes:
        frozen: Makes the module that computes them.
    """

    frozen: Callable[[], FrozenFeatures] = field(kw_only=True)

    def setup(self, stage: str) -> None:
        """Encodes the examples, and computes the features that the cache does not hold."""
        super().setup(stage)
        _ = self.kept_train.rows, self.kept_dev.rows

    @cached_property
    def kept_train(self) -> Kept:
        """The training examples and their features."""
        return Kept(self.train, self.frozen)

    @cached_property
    def kept_dev(self) -> Kept:
        """The dev examples and theirs."""
        return Kept(self.dev, self.frozen)

    def train_dataloader(self) -> Batches:
        """See `TaskData.train_dataloader`."""
        batches = super().train_dataloader()
        batches.inputs = self.kept_train
        return batches

    def val_dataloader(self) -> InOrder:
        """See `TaskData.val_dataloader`."""
        batches = super().val_dataloader()
        batches.inputs = self.kept_dev
        return batches
