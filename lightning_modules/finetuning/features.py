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
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lightning_modules import NUMERICS, cached
from lightning_modules.batch import Encoded, Example
from lightning_modules.model import Backbone, BackboneModule
from lightning_modules.model.layers import Dropout, ScalarMix
from lightning_modules.model.recurrent import BiLSTM, RecurrentEncoder
from lightning_modules.places import cache
from lightning_modules.tasks import Features
from lightning_modules.tasks.loader import Batches, Changed, InOrder, TaskData
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
        settings: The layers to read and the BiLSTM.

    Attributes:
        hidden_size: Width of the states that a head reads.
        layer_width: Width of each chosen layer; all have the same.
        vectors: Static vectors of pieces ``[v e]``, if it reads them.

    Raises:
        ConfigError: When the encoder has too few layers.
    """

    def __init__(self, encoder: BackboneModule, model: Backbone, settings: Features) -> None:
        super().__init__()
        self._frozen, self.model = (
            (encoder.requires_grad_(False).eval(),),
            model,
        )  # in a tuple it is not registered as a submodule
        self.layers, self.settings = settings.chosen(model.depth), settings
        self.layer_width = model.layer_width(self.layers[0]) if self.layers else 0
        read, self.hidden_size = settings.widths(self.layer_width, model.table_width)
        self.mix, self.mix_above = (self._mixture() if at != settings.place else None for at in ("output", "input"))
        self.dropout = Dropout(settings.mix_dropout)
        size, layers = settings.bilstm_size, settings.bilstm_layers
        self.bilstm = BiLSTM(read, size, layers) if layers else None
        self.vectors: Tensor | None
        self.register_buffer("vectors", None, persistent=False)

    def _mixture(self) -> ScalarMix | None:
        """A mixture with weights; None for one layer, or several concatenated, which need none, or nothing."""
        is_weighed = "weighted" in self.settings.layers
        return ScalarMix(len(self.layers), self.settings.mix_norm) if is_weighed else None

    def penalty(self) -> Tensor | None:
        """The penalty on the weights of mixtures; None without one."""
        mixes = [mix for mix in (self.mix, self.mix_above) if mix is not None]
        if not (self.settings.mix_decay and mixes):
            return None
        return self.settings.mix_decay * torch.stack([mix.weights.square().sum() for mix in mixes]).sum()

    def shares(self) -> dict[str, float]:
        """The share of each layer in each mixture with weights, by name."""
        named = {"mix": self.mix, "mix_above": self.mix_above}
        return {
            f"{name}_{layer}": share
            for name, mix in named.items()
            if mix is not None
            for layer, share in zip(self.layers, mix.weights.detach().softmax(0).tolist(), strict=True)
        }

    @property
    def encoder(self) -> BackboneModule:
        """The frozen backbone, always without dropout."""
        return self._frozen[0]

    def features(self, example: Example) -> Float[Tensor, "b t k d"]:
        """The chosen layers in half precision, as in the cache; computed in full precision even under autocast.

        The last layer is taken after the final normalisation, if there is one.
        """
        return self.read(example)[0]

    def read(self, example: Example, carry: Any = None) -> tuple[Float[Tensor, "b t k d"], Any]:
        """The features of a batch, by itself or from the states after the batch before, and the states after it."""
        device = example.inputs.ids.device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            encoded = self.encoder.to(device)(example, carry)
        layers = [*encoded.layers[:-1], encoded.last]
        return torch.stack([layers[number] for number in self.layers], dim=2).half(), encoded.carry

    def forward(self, example: Example) -> Encoded:
        """Mixes the layers and applies the BiLSTM."""
        settings, real, layers = self.settings, example.inputs.real, None
        if self.layers:
            layers = (self.features(example) if example.features is None else example.features).float()
        below = [self._mixed(self.mix, layers, real)] if layers is not None and settings.place != "output" else []
        if settings.vectors is not None:
            assert self.vectors is not None, "`FinetuningRun.build` places them"
            below.append(self.vectors[example.inputs.ids])
        read = torch.cat(below, -1)
        states = read if self.bilstm is None else self.bilstm(read, real)
        if layers is not None and settings.place != "input":
            states = torch.cat([states, self._mixed(self.mix_above, layers, real)], -1)
        return Encoded(layers=[read], last=states, table=self.encoder.table)

    def _mixed(
        self, mix: ScalarMix | None, layers: Float[Tensor, "b t k d"], real: Bool[Tensor, "b t"]
    ) -> Float[Tensor, "b t e"]:
        return self.dropout(layers.flatten(-2) if mix is None else mix(layers, real))


class Kept(Changed):
    """The items of a split with the cached features of their rows.

    A row is identified by its number (``Example.inputs.sample``). The file name is a hash of the weights, of the
    encoder's inputs and of the layers; the first batch writes the file if it does not exist.

    Args:
        frozen: Builds the module that computes the features.
    """

    def __init__(self, inputs: Inputs, frozen: Callable[[], FrozenFeatures]) -> None:
        super().__init__(inputs, lambda example: replace(example, features=self.rows.read(example)))
        self.frozen = frozen

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
        carry = None
        for example in InOrder(self.inputs, _BATCH):
            if frozen.settings.carried:
                assert isinstance(frozen.encoder, RecurrentEncoder), "`tasks.fitting` refuses others"
                carry = frozen.encoder.states_after(carry, len(example.inputs.ids), device)
            features, carry = frozen.read(example.to(device), carry)
            features = features.cpu()
            file.write(features[example.inputs.real].numpy().tobytes())


def _origin(frozen: FrozenFeatures, device: torch.device) -> list[Any]:
    """What features depend on besides weights and inputs; rounding differs between device types."""
    own = ["carried"] if frozen.settings.carried else []
    return [_RECIPE, NUMERICS["pretrain"], frozen.model.essence(), frozen.layers, device.type, *own]


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
        return Kept(self.shown("train"), self.frozen)

    @cached_property
    def kept_dev(self) -> Kept:
        """The dev examples and their features."""
        return Kept(self.shown("dev"), self.frozen)

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
