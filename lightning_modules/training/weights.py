"""The weights of a training on disk: safetensors, in which tensors that modules share are written once."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lightning_modules import cached
from lightning_modules.config import ConfigError
from lightning_modules.files import open_plain

WEIGHTS = "weights.safetensors"
_ALIASES = "aliases"  # entry of the header: further names of tensors, as JSON
_MOST_NAMED = 3  # tensors that do not fit; of more only how many there are


def round_weights(module: nn.Module) -> None:
    """Rounds a module's weights to bfloat16, in place and in the type that they have."""
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(tensor.bfloat16())


def keep_weights(module: nn.Module, folder: Path, kept_as: Literal["fp32", "bf16"] = "fp32") -> None:
    """Writes a module's weights to ``folder`` atomically, with their digest, which names folder and file as the place.

    The format holds no two tensors in one memory. A tensor with several names is written under the first, and the
    header says the others; without such tensors there is no header entry.

    Args:
        kept_as: The type in the file: fp32 for weights as they are, bf16 for those that `round_weights` has rounded.
    """
    tensors, aliases, first, storages = {}, {}, {}, set()
    for name, tensor in module.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in first:
            aliases[name] = first[place]
            continue
        first[place] = name
        compact = tensor.contiguous()
        if kept_as == "bf16" and tensor.is_floating_point():
            compact = compact.bfloat16()
        storage = compact.untyped_storage().data_ptr()
        tensors[name] = compact.clone() if storage in storages else compact  # a part of a tensor above
        storages.add(storage)
    header = {_ALIASES: json.dumps(aliases)} if aliases else None
    cached.write(folder / WEIGHTS, lambda file: file.write(save(tensors, header)), folder.parent)


def load_weights(file: Path) -> dict[str, Tensor]:
    """The weights that `keep_weights` wrote, under all of their names; those kept as bf16 in fp32, the same numbers.

    Raises:
        OSError: When the file is missing, or no plain file.
        ConfigError: When it is damaged, or has values that are not finite.
    """
    with _opened(file) as (weights, aliases):
        tensors = {name: _in_fp32(weights.get_tensor(name)) for name in weights.keys()}  # noqa: SIM118 - no mapping
        tensors |= {name: tensors[kept] for name, kept in aliases.items()}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ConfigError(
                [f"{file}: {name} has values that are not finite. Restore the file, or train the run again."]
            )
    return tensors


def _in_fp32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype is torch.bfloat16 else tensor


def load_into(module: nn.Module, file: Path) -> None:
    """Gives a module the weights that `keep_weights` wrote of one like it.

    Raises:
        OSError: When the file is missing.
        ConfigError: When it is damaged, or has tensors of other names or shapes.
    """
    weights = load_weights(file)
    _compare(file, {name: tuple(tensor.shape) for name, tensor in weights.items()}, module)
    module.load_state_dict(weights)


def check_weights(module: nn.Module, file: Path) -> None:
    """Compares names and shapes in the header of a file of weights with those of a module; reads no tensor.

    Raises:
        OSError: When the file is missing.
        ConfigError: When it is damaged, or has tensors of other names or shapes.
    """
    with _opened(file) as (weights, aliases):
        shapes = {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
        shapes |= {name: shapes[kept] for name, kept in aliases.items()}
    _compare(file, shapes, module)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """The tensors of a file, and further names of some."""
    open_plain(file).close()
    try:
        with safe_open(file, framework="pt") as weights:
            yield weights, json.loads((weights.metadata() or {}).get(_ALIASES, "{}"))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError([f"{file} holds no weights that can be read ({reason[:200]}). Remove it."]) from None


def _compare(file: Path, found: Mapping[str, tuple[int, ...]], module: nn.Module) -> None:
    right = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    names = sorted(name for name in {*found, *right} if found.get(name) != right.get(name))
    if names:
        named = (f"{name} is {found.get(name, 'absent')}, not {right.get(name, 'absent')}" for name in names)
        more = f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED)
        raise ConfigError([f"{file} holds weights of another model: {'; '.join(islice(named, _MOST_NAMED))}{more}"])
