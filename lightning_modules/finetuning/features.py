"""Feature-based use of a pretrained encoder (Devlin et al. 2019, section 5.3; Peters et al. 2018).

The encoder is frozen. The states of its layers for each example are computed once, without dropout, and cached on disk;
only a mixture of layers, a BiLSTM and the task's head are trained.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_modules import NUMERICS, cached
from lightning_modules.backbones import Backbone, BackboneModule
from lightning_modules.batch import Encoded, Example
from lightning_modules.layers.bilstm import BiLSTM
from lightning_modules.layers.scalar_mix import ScalarMix
from lightning_modules.places import cache
from lightning_modules.tasks import Features
from lightning_modules.tasks.loader import Batches, InOrder, TaskData
from lightning_modules.tasks.shapes.shape import Inputs

_RECIPE = 1  # raise when the same weights and examples would give different features
_BATCH = 64  # items per forward pass of the encoder


class FrozenFeatures(nn.Module):
    """A backbone whose last states are those of a BiLSTM over the layers of a frozen encoder.

    The layers come with the example (`Example.features`); otherwise they are computed on the fly, with the same values
    except for rounding differences of other paddings.

    Args:
        encoder: The backbone to freeze. It is not a submodule: optimisers, checkpoints and parameter counts exclude
            it, and it moves to a device when it is first used there.
        model: Its settings.
        settings: The layers to read and the BiLSTM.

    Attributes:
        hidden_size: Width of the states that a head reads.
        layer_width: Width of each chosen layer; all have the same, since the embeddings are chosen alone.

    Raises:
        ConfigError: When the encoder has too few layers.
    """

    def __init__(self, encoder: BackboneModule, model: Backbone, settings: Features) -> None:
        super().__init__()
        self._frozen, self.model = (
            (encoder.requires_grad_(False).eval(),),
            model,
        )  # in a tuple it is not registered as a submodule
        self.layers = settings.chosen(model.depth)
        self.layer_width = model.layer_width(self.layers[0])
        mixed, self.hidden_size = settings.widths(self.layer_width)
        # one layer, or several concatenated, need no weights
        self.mix = ScalarMix(len(self.layers)) if "weighted" in settings.layers else nn.Flatten(-2)
        size, layers = settings.bilstm_size, settings.bilstm_layers
        self.bilstm = BiLSTM(mixed, size, layers) if layers else None

    @property
    def encoder(self) -> BackboneModule:
        """The frozen backbone, always without dropout."""
        return self._frozen[0]

    def features(self, example: Example) -> Float[Tensor, "b t k d"]:
        """The chosen layers in half precision, as in the cache; computed in full precision even under autocast.

        The last layer is taken after the final normalisation, if there is one.
        """
        device = example.inputs.ids.device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            encoded = self.encoder.to(device)(example)
        layers = [*encoded.layers[:-1], encoded.last]
        return torch.stack([layers[number] for number in self.layers], dim=2).half()

    def forward(self, example: Example) -> Encoded:
        """Mixes the layers and applies the BiLSTM."""
        layers = self.features(example) if example.features is None else example.features
        mixed = self.mix(layers.float())
        states = mixed if self.bilstm is None else self.bilstm(mixed, example.inputs.real)
        return Encoded(layers=[mixed], last=states, table=self.encoder.table)


class Kept:
    """The items of a split with the cached features of their rows.

    A row is identified by its number (``Example.inputs.sample``). The file name is a hash of the weights, of the
    encoder's inputs and of the layers; the first batch writes the file if it does not exist.

    Args:
        inputs: The items.
        frozen: Builds the module that computes the features.
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
        """The features of every row, from the cache or computed now."""
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
        shape = (sum(counts), len(frozen.layers), frozen.layer_width)
        values = cached.kept(
            path,
            lambda file: self._write(frozen, device, file),
            lambda path: np.memmap(path, np.float16, "r", shape=shape),
        )
        return _Rows.of(values, numbers, counts)

    def _write(self, frozen: FrozenFeatures, device: torch.device, file: BinaryIO) -> None:
        for example in InOrder(self.inputs, _BATCH):
            features = frozen.features(example.to(device)).cpu()
            file.write(features[example.inputs.real].numpy().tobytes())


def _origin(frozen: FrozenFeatures, device: torch.device) -> list[Any]:
    """What features depend on besides weights and inputs; rounding differs between device types."""
    return [_RECIPE, NUMERICS["pretrain"], frozen.model.essence(), frozen.layers, device.type]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Features of the positions of all rows, concatenated ``[p k d]``, and the start of each row."""

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
        features = np.zeros((*real.shape, *self.values.shape[1:]), np.float16)
        for row, (number, mask) in enumerate(zip(example.inputs.sample.tolist(), real, strict=True)):
            start = self.starts[number]
            features[row, mask] = self.values[start : start + mask.sum()]
        return torch.from_numpy(features)


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of nested batch dataclasses, with its path."""
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
        frozen: Builds the module that computes them.
    """

    frozen: Callable[[], FrozenFeatures] = field(kw_only=True)

    def setup(self, stage: str) -> None:
        """Encodes the examples and computes features that are not cached."""
        super().setup(stage)
        _ = self.kept_train.rows, self.kept_dev.rows

    @cached_property
    def kept_train(self) -> Kept:
        """The training examples and their features."""
        return Kept(self.shown(self.train), self.frozen)

    @cached_property
    def kept_dev(self) -> Kept:
        """The dev examples and their features."""
        return Kept(self.shown(self.dev), self.frozen)

    def train_dataloader(self) -> Batches:
        """The training batches of all epochs, with features."""
        batches = super().train_dataloader()
        batches.inputs = self.kept_train
        return batches

    def val_dataloader(self) -> InOrder:
        """The dev examples, with features."""
        batches = super().val_dataloader()
        batches.inputs = self.kept_dev
        return batches
