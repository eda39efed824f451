"""A model that starts from some layers of a deeper one of the same width (Sanh et al. 2019, section 3)."""

import re
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from lightning_modules.backbones.backbone import Backbone, only
from lightning_modules.backbones.shapes import ADDED
from lightning_modules.backbones.transformer import Transformer
from lightning_modules.config import ConfigError, Problem

_KNOB = "training.start_layers"
_SUB_LAYER = re.compile(r"backbone\.blocks\.(?P<layer>\d+)\.(?P<kind>\w+)(?P<rest>\..*)")


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
    weights: Mapping[str, Tensor],
    chosen: Sequence[int],
    start: Transformer,
    names: Iterable[str],
) -> dict[str, Tensor]:
    """The weights of a deeper model as those of one that has some of its layers.

    A table that is added to the word embeddings, such as one of segments, is left out where the model has none, as in
    DistilBERT.

    Args:
        names: Names of the weights of the model that has these alone.
    """
    kept = {name: tensor for name, tensor in weights.items() if not _SUB_LAYER.match(name)}
    own = set(names)
    kept = {name: tensor for name, tensor in kept.items() if name in own or not name.startswith(f"backbone.{ADDED}")}
    for name in own:
        if layer := _SUB_LAYER.match(name):
            owner = start.owners(chosen[int(layer["layer"])])[layer["kind"]]
            kept[name] = weights[f"backbone.blocks.{owner}.{layer['kind']}{layer['rest']}"]
    return kept
