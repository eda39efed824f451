"""The weights of a training on disk: safetensors, in which tensors that modules share are written once."""

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lightning_modules import cached

WEIGHTS = "weights.safetensors"
_ALIASES = "aliases"  # entry of the header: further names of tensors, as JSON


def keep_weights(module: nn.Module, folder: Path) -> None:
    """Writes a module's weights to ``folder`` atomically, with their digest.

    The format holds no two tensors in one memory. A tensor with several names is written under the first, and the
    header says the others; without such tensors there is no header entry.
    """
    tensors, aliases, first, storages = {}, {}, {}, set()
    for name, tensor in module.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in first:
            aliases[name] = first[place]
            continue
        first[place] = name
        compact = tensor.contiguous()
        storage = compact.untyped_storage().data_ptr()
        tensors[name] = compact.clone() if storage in storages else compact  # a part of a tensor above
        storages.add(storage)
    header = {_ALIASES: json.dumps(aliases)} if aliases else None
    cached.write(folder / WEIGHTS, lambda file: file.write(save(tensors, header)))


def load_weights(file: Path) -> dict[str, Tensor]:
    """The weights that `keep_weights` wrote, under all of their names.

    Raises:
        OSError: When the file is missing.
        safetensors.SafetensorError: When it is damaged.
    """
    with safe_open(file, framework="pt") as weights:
        tensors = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118 - it is no mapping
        aliases = json.loads((weights.metadata() or {}).get(_ALIASES, "{}"))
    return tensors | {name: tensors[kept] for name, kept in aliases.items()}
