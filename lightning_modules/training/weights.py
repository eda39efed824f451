"""The weights of a training on disk, and those that a training starts from.

On disk they are safetensors, in which tensors that modules share are written once.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lightning_modules import cached
from lightning_modules.config import ConfigError, Problem
from lightning_modules.files import open_plain
from lightning_modules.model import Backbone, Transformer
from lightning_modules.model.settings import only
from lightning_modules.model.weights import ADDED

WEIGHTS = "weights.safetensors"
_ALIASES = "aliases"  # entry of the header: further names of tensors, as JSON
_MOST_NAMED = 3  # tensors that do not fit; of more only how many there are
_SUB_LAYER = re.compile(r"(?P<start>backbone\.blocks\.)(?P<layer>\d+)\.(?P<kind>\w+)(?P<rest>\..*)")


def round_weights(module: nn.Module) -> None:
    """Rounds a module's weights to bfloat16, in place and in the type that they have."""
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(tensor.bfloat16())


def keep_weights(module: nn.Module, folder: Path, kept_as: Literal["fp32", "bf16"] = "fp32") -> None:
    """Writes a module's weights to ``folder`` atomically, with their digest, which names folder and file as the place.

    The format holds no two tensors in one memory. A tensor with several names is written under the first, and the
    header says the others. In the file weights are as they are, or bf16 if `round_weights` has rounded them.
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
        tensors = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118 - no mapping
        tensors = {name: one.float() if one.dtype is torch.bfloat16 else one for name, one in tensors.items()}
        tensors |= {name: tensors[kept] for name, kept in aliases.items()}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ConfigError(
                [f"{file}: {name} has values that are not finite. Restore the file, or train the run again."]
            )
    return tensors


def load_into(module: nn.Module, file: Path) -> None:
    """Gives a module the weights that `keep_weights` wrote of one like it; raises as `check_weights` does."""
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


def taken_over(weights: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The initial weights of a training that continues another one of the same backbone.

    The backbone and the heads that both have are the ancestor's. Heads that only the ancestor has are left out; those
    that are new keep the random weights in ``fresh``, and so do new tables that are added to the word embeddings.

    Raises:
        ConfigError: With every parameter that is missing, superfluous or of another shape.
    """
    heads = {name.split(".")[1] for name in weights if name.startswith("heads.")}

    def is_new(name: str) -> bool:
        added = name.startswith(f"backbone.{ADDED}") and name not in weights
        return added or (name.startswith("heads.") and name.split(".")[1] not in heads)

    extra = [name for name in weights if name not in fresh and not name.startswith("heads.")]
    text = "is in the weights that the training starts from, and not in this backbone"
    sources = {name: name for name in fresh if not is_new(name)}
    return filled(fresh, weights, sources, [Problem(name, text) for name in extra])


def filled(
    fresh: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    sources: Mapping[str, str],
    wrong: Iterable[Problem] = (),
) -> dict[str, Tensor]:
    """The weights of a new module, some of them those of another one: ``sources`` maps their names to those there.

    Raises:
        ConfigError: With what is ``wrong`` already, and with every weight that is missing or of another shape.
    """
    problems = []
    for name, source in sources.items():
        if source not in weights:
            problems.append(Problem(name, "the weights that the training starts from lack it"))
        elif weights[source].shape != fresh[name].shape:
            both = fresh[name].shape, weights[source].shape
            ours, theirs = (" x ".join(map(str, shape)) or "a single number" for shape in both)
            problems.append(Problem(name, f"has shape {ours}, but {theirs} where it starts from"))
    if problems := [*problems, *wrong]:
        raise ConfigError(problems)
    return {name: weights[sources[name]] if name in sources else tensor for name, tensor in fresh.items()}


def remapped(
    weights: Mapping[str, Tensor], of_words: Iterable[str], before: Sequence[str], after: Sequence[str]
) -> dict[str, Tensor]:
    """Weights for another vocabulary: rows of pieces that both have, and for new ones the mean over all rows.

    As in the released code of ULMFiT (Howard and Ruder 2018), which takes the mean of biases as well.

    Args:
        of_words: The names of those that have a row, or a number, for each piece.
        before: The pieces that they are for; ``after`` has those of the other vocabulary.
    """
    known = {piece: number for number, piece in enumerate(before)}
    places = torch.tensor([known.get(piece, -1) for piece in after])
    moved = dict(weights)
    for name in set(of_words) & weights.keys():
        rows = weights[name]
        mean = rows.float().mean(0, keepdim=True).to(rows.dtype)
        moved[name] = torch.cat([rows, mean])[places]  # the last one for what is new
    return moved


def stacked(
    weights: Mapping[str, Tensor], shallower: Backbone, deeper: Backbone, names: Iterable[str]
) -> dict[str, Tensor]:
    """The initial weights of a deeper network: the layers of a shallower one, repeated.

    Layer i starts from layer i modulo the shallower depth (Gong et al. 2019, section 3.3, who double the depth).
    Sub-layers shared by a group start from those of the same group; with one group this is plain copying, as for
    ALBERT's depths (Lan et al. 2020, section 4.8). Settings of both are equal except for the depth, and say which
    layers own shared sub-layers; ``names`` are those of the deeper network's parameters.

    Raises:
        ConfigError: For networks that are no transformers.
        KeyError: When the deeper network has parts that the shallower one lacks.
    """
    ours, theirs = (only(model, Transformer, "training.warm_start") for model in (deeper, shallower))
    initial = {}
    for name in names:
        source = name
        if layer := _SUB_LAYER.match(name):
            blocks, from_blocks = (
                sorted({model.owners(i)[layer["kind"]] for i in range(model.num_layers)}) for model in (ours, theirs)
            )
            place = from_blocks[blocks.index(int(layer["layer"])) % len(from_blocks)]  # blocks repeat in order
            source = f"{layer['start']}{place}.{layer['kind']}{layer['rest']}"
        initial[name] = weights[source]
    return initial
