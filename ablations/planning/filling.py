"""Completes the scales of a grid from their files, and BERT at the size of a scale."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from ablations.planning.cells import has_part, part_lacking, varied
from ablations.planning.checks.scale_checks import TRIED, as_bert
from ablations.planning.scale_files import available, merged
from ablations.planning.scales import lineage
from ablations.schema.grid import AFTERWARDS, FINETUNING, MEASURING, PARENTS, START, SYSTEM_AXIS, Grid
from ablations.schema.scale import Scale, ScaleFile
from lightning_modules.config import ConfigError, Problem, as_data
from lightning_modules.model.weights import shaping
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS

_TRUNK = "trunk"  # the value of a knob of `PARENTS` that represents the scale's trunk
_DATA, _MODEL = "data.", "model."
_SIZES = ("model.num_layers", "model.hidden_size", "training.batch_size", "training.steps", "format.sequence_length")


def bert(name: str) -> System:
    """BERT at the size of a scale."""
    return as_bert(merged(lineage(name)))


def filled(grid: Grid) -> Grid:
    """A grid whose scales are completed from their files.

    Raises:
        ConfigError: For problems of the scales' files.
    """
    known = available()
    entries = {name: _entry(grid, lineage(name)) if name in known else entry for name, entry in grid.scales.items()}
    return grid.model_copy(update={"scales": entries})


def at(grid: Grid, name: str) -> Grid:
    """A grid as a scale has it: with the claims that are judged there, and with that scale if only a file has it.

    Raises:
        ConfigError: For problems of that file; if it has an ``instead``; and if the grid varies a size of models or
            trainings that the file sets: the values of its axes are for the scales that it lists.
    """
    if name not in grid.scales and name in available():
        grid = _with_scale(grid, name)
    judged = grid.scales[name].claims if name in grid.scales else ()
    if not judged:
        return grid
    return grid.model_copy(update={"claims": tuple(claim for claim in grid.claims if claim.id in judged)})


def _with_scale(grid: Grid, name: str) -> Grid:
    files = lineage(name)
    if other := files[0].instead:
        text = f"grid '{grid.name}' has no entry for it, which would say what continues its trunks. Use '{other}'."
        raise ConfigError([Problem(f"scale {name}", text)])
    sizes = sorted({path for file in files for path in file.set if path in _SIZES} & varied(grid))
    if sizes and not any(file.name in grid.scales for file in files):
        text = (
            f"grid '{grid.name}' says nothing of it and varies {' and '.join(sizes)}, so runs would not have its "
            f"size. Allowed: {', '.join(grid.scales)}. Or add '{name}:' with axes of its size under the grid's scales."
        )
        raise ConfigError([Problem(f"scale {name}", text)])
    return grid.model_copy(update={"scales": {**grid.scales, name: _entry(grid, files)}})


def _entry(grid: Grid, files: Sequence[ScaleFile]) -> Scale:
    """A grid's entry for a scale, or for the nearest scale in the line, completed from the files.

    How long trials are, and how far a search goes, an entry says of its own scale alone.
    """
    place = next((n for n, file in enumerate(files) if file.name in grid.scales), len(files))
    taken = grid.scales[files[place].name] if place < len(files) else Scale()
    newer = {path for file in files[:place] for path in (*file.set, *file.pins)}
    described = taken.description if place == 0 else ""
    if place and taken.search:  # as one scale was run
        taken = taken.model_copy(update={"search": taken.search.model_copy(update={"length": None, "extend": None})})
    own = taken.model_copy(update={"description": described or files[0].description, "set": _without(taken.set, newer)})
    base = _base(grid, own, merged(files, pinned=SYSTEM_AXIS not in grid.axes))
    knobs = _without(taken.set, newer & base.keys())
    own = own.model_copy(update={"set": knobs, "base": base})
    named = {knob: _trunk(knob, grid, own, files) for knob in PARENTS if _is_trunk(knob, grid, taken, files[place:])}
    return own.model_copy(update={"set": {**knobs, **named}}) if named else own


def _is_trunk(knob: str, grid: Grid, taken: Scale, files: Sequence[ScaleFile]) -> bool:
    """Whether a knob of a grid's entry means its scale's trunk, by name or as the name was described before."""
    start, has_trunk = taken.set.get(knob), any(file.trunk for file in files)
    if start == _TRUNK or not (isinstance(start, Mapping) and has_trunk):
        return start == _TRUNK
    try:
        return start == _trunk(knob, grid, taken, files)
    except ConfigError:  # of a base that the scale's trunk does not fit, such as an LSTM
        return False


def _without(knobs: Mapping[str, Any], paths: Set[str]) -> dict[str, Any]:
    return {path: value for path, value in knobs.items() if path not in paths}


def _trunk(knob: str, grid: Grid, entry: Scale, files: Sequence[ScaleFile]) -> dict[str, Any]:
    """What describes the trunk of a scale: one pretraining a seed from which cells of many grids continue.

    A scale's file describes it (``trunk:``), and a grid's entry for the scale names it: ``training.start: trunk``, or
    as a teacher. It is the grid's base system at that scale with the knobs of ``trunk:``, whatever else the grid sets
    or varies, so that all grids of one base share it. Only text, tokenizer and the knobs that shape the weights are as
    the grid sets them, since its cells must fit. A start has the shapes of its cells, but for the number of layers
    where some are chosen. A teacher has its own.
    """
    described = next((file.trunk for file in files if file.trunk), None)
    if described is None:
        able = ", ".join(name for name in available() if any(file.trunk for file in lineage(name))) or "none"
        text = f"the file of '{files[0].name}' has no 'trunk:'. Scales with one: {able}. Or describe it here."
        raise ConfigError([Problem(f"scales.{files[0].name}.set.{knob}", text)])
    system = SYSTEMS.get(grid.base, SYSTEMS[TRIED])
    own = {path: value for path, value in merged(files).items() if not path.startswith(AFTERWARDS)}
    own = {path: value for path, value in own.items() if has_part(system, path)}
    trunk, common = system.but(**{**own, **described}), {**grid.set, **entry.set}
    touched = {path for path in varied(grid) | common.keys() if "." in path and path not in PARENTS}
    fixed = {part_lacking(path, trunk) for path in touched if not path.startswith((*AFTERWARDS, _DATA))}
    if knob == START:  # without the knobs of a model with which the trunk's weights would not fit
        shared = {path: value for path, value in common.items() if path.startswith(_MODEL)}
        if "training.start_layers" in touched:
            shared.pop("model.num_layers", None)
        model = trunk.but(**shared).model
        fixed -= {_MODEL + path for path in shaping(model, trunk.model, trunk.data.tokenizer.vocab_size)}
    return {path: as_data(trunk.get(path)) for path in sorted(fixed) if has_part(trunk, path)} | dict(described)


def _base(grid: Grid, entry: Scale, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of a scale that affect a grid and that the grid neither sets nor varies."""
    tasks = grid.tasks if entry.tasks is None else entry.tasks
    names = entry.axes.get(SYSTEM_AXIS, grid.axes.get(SYSTEM_AXIS, (grid.base,)))
    systems = [SYSTEMS[name] for name in names if isinstance(name, str) and name in SYSTEMS]
    taken = varied(grid) | grid.set.keys()
    kept = {}
    for path, value in knobs.items():
        task, _, knob = path.removeprefix(FINETUNING).partition(".")
        if path in taken or any(path.startswith(f"{own}.") for own in grid.set):
            continue
        if path.startswith(MEASURING):
            acts = bool(grid.measure if entry.measure is None else entry.measure)
        elif not path.startswith(FINETUNING):
            acts = any(has_part(system, path) for system in systems)
        elif task in TASKS:  # would win over a knob for all tasks
            acts = task in tasks and FINETUNING + knob not in taken | entry.set.keys()
        else:
            acts = bool(tasks)
        if acts:
            kept[path] = value
    return kept
