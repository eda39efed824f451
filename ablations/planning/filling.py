"""Completes the scales of a grid from their files, and BERT at the size of a scale."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from ablations.planning import trunks
from ablations.planning.cells import has_part, varied
from ablations.planning.checks.scale_checks import TRIED, as_bert
from ablations.planning.scale_files import available, merged
from ablations.planning.scales import lineage
from ablations.schema.grid import AFTERWARDS, FINETUNING, MEASURING, PARENTS, SYSTEM_AXIS, Grid
from ablations.schema.scale import Scale, ScaleFile
from lightning_modules.config import ConfigError, Problem
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS

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
    if start == trunks.NAME or not (isinstance(start, Mapping) and has_trunk):
        return start == trunks.NAME
    try:
        return start == _trunk(knob, grid, taken, files)
    except ConfigError:  # of a base that the scale's trunk does not fit, such as an LSTM
        return False


def _without(knobs: Mapping[str, Any], paths: Set[str]) -> dict[str, Any]:
    return {path: value for path, value in knobs.items() if path not in paths}


def _trunk(knob: str, grid: Grid, entry: Scale, files: Sequence[ScaleFile]) -> dict[str, Any]:
    described = next((file.trunk for file in files if file.trunk), None)
    if described is None:
        able = ", ".join(name for name in available() if any(file.trunk for file in lineage(name))) or "none"
        text = f"the file of '{files[0].name}' has no 'trunk:'. Scales with one: {able}. Or describe it here."
        raise ConfigError([Problem(f"scales.{files[0].name}.set.{knob}", text)])
    system = SYSTEMS.get(grid.base, SYSTEMS[TRIED])
    own = {path: value for path, value in merged(files).items() if not path.startswith(AFTERWARDS)}
    own = {path: value for path, value in own.items() if has_part(system, path)}
    return trunks.description(knob, grid, entry, system.but(**{**own, **described}), described)


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
