"""The trunk of a scale: one pretraining a seed from which cells of many grids continue.

A scale's file describes it (``trunk:``), and a grid's entry for the scale names it: ``training.start: trunk``, or as a
teacher. It is
the grid's base system at that scale with the knobs of ``trunk:``, whatever else the grid sets or varies, so that all
grids of one base share it. Only text, tokenizer and the knobs that shape the weights are as the grid sets them, since
its cells must fit.
"""

from collections.abc import Mapping
from typing import Any

from ablations.planning.cells import has_part, part_lacking, varied
from ablations.schema.grid import AFTERWARDS, PARENTS, START, Grid
from ablations.schema.scale import Scale
from lightning_modules.backbones.shapes import shaping
from lightning_modules.config import as_data
from lightning_modules.system import System

NAME = "trunk"  # the value of a knob of `PARENTS` that represents the scale's trunk
_DATA, _MODEL = "data.", "model."


def description(knob: str, grid: Grid, entry: Scale, trunk: System, described: Mapping[str, Any]) -> dict[str, Any]:
    """What describes a scale's trunk to any cell of a grid.

    Args:
        knob: Where it is. A start has the shapes of its cells, but for the number of layers where some are chosen.
            A teacher has its own.
        entry: The entry of the grid for the scale.
        trunk: The base system at the scale, with the knobs of the trunk.
        described: These knobs.

    Raises:
        ConfigError: For values of the grid that no model can have.
    """
    common = {**grid.set, **entry.set}
    touched = {path for path in varied(grid) | common.keys() if "." in path and path not in PARENTS}
    own = {part_lacking(path, trunk) for path in touched if not path.startswith((*AFTERWARDS, _DATA))}
    shared = {path: value for path, value in common.items() if path.startswith(_MODEL)}
    if "training.start_layers" in touched:
        shared.pop("model.num_layers", None)
    fixed = own if knob != START else own - _shaping(trunk, shared)
    return {path: as_data(trunk.get(path)) for path in sorted(fixed) if has_part(trunk, path)} | dict(described)


def _shaping(trunk: System, knobs: Mapping[str, Any]) -> set[str]:
    """Those of some knobs of a model with which the trunk's weights would not fit."""
    model = trunk.but(**knobs).model
    return {_MODEL + path for path in shaping(model, trunk.model, trunk.data.tokenizer.vocab_size)}
