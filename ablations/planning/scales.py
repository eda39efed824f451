"""Scale files: a size is defined once for all grids; a grid states only what differs.

Later settings win: the base system, the scale's file, the grid's ``set``, the ``set`` of the grid's entry for the
scale, the cell's own values. Some knobs of the scale's file do not apply: those that the grid varies by axes or
variants, those inside a part that the grid sets, those of parts that a system lacks, and fine-tuning on tasks that the
grid does not have at that scale. Its ``pins`` do not apply where the grid compares whole systems.

A scale may be *like* another. Its file then changes the other file's settings. If a grid has no entry for the new
scale, it uses its entry for the other one, axes and stand-ins included; there the new file's knobs win over the
entry's, but for those that do not apply: sizes that the grid varies are all the entry's.
"""

import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document, State, state
from ablations.planning import trunks
from ablations.planning.afterwards import finetuning, measuring
from ablations.planning.cells import has_part, varied
from ablations.planning.checks.grid_checks import known_knobs
from ablations.planning.shapes import keyed, shaped
from ablations.schema.grid import AFTERWARDS, FINETUNING, MEASURING, START, SYSTEM_AXIS, Grid
from ablations.schema.scale import Scale, ScaleFile
from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.places import own
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT

FOLDER = Path(__file__).parents[1] / "scales"
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_SIZES = ("model.num_layers", "model.hidden_size", "training.batch_size", "training.steps", "format.sequence_length")
_TRIED = "bert_base"  # has every part that scales set, so that their values can be checked without a grid


def available() -> dict[str, Path]:
    """Scale name -> file: the project's scales, then the user's own.

    Raises:
        ConfigError: If two files have the same name.
    """
    return strict_yaml.named("scales", [FOLDER, *own("scales")])


def read(name: str) -> ScaleFile:
    """Reads and checks the file of a scale.

    Raises:
        ConfigError: With the nearest name, if there is no such scale; else with every problem as ``file:line: path:
            problem``.
    """
    return lineage(name)[0]


def caveat(name: str) -> str:
    """What results at a scale cannot show; empty for a scale that only a grid knows."""
    return read(name).caveat if name in available() else ""


def lineage(name: str) -> tuple[ScaleFile, ...]:
    """The file of a scale, of the scale that it is like, and so on, all checked.

    Raises:
        ConfigError: As `read`, and for scales that are like each other.
    """
    return _lineage(name, tuple((file, state(file)) for file in available().values()))


@lru_cache(maxsize=64)
def _lineage(name: str, states: tuple[tuple[Path, State], ...]) -> tuple[ScaleFile, ...]:
    """Those files, cached by the present ``states`` of all: every grid reads them."""
    line = [_read(name)]
    while like := line[-1][0].like:
        if like in (names := [file.name for file, _ in line]):
            document = line[-1][1]
            document.complain(("like",), f"is circular: {' -> '.join([*names[names.index(like) :], like])}")
            document.check()
        line.append(_read(like))
    files = tuple(file for file, _ in line)
    _check_values(*line[0], _merged(files))
    return files


def bert(name: str) -> System:
    """BERT at the size of a scale.

    Raises:
        ConfigError: As `lineage`.
    """
    return _bert(_merged(lineage(name)))


def _bert(knobs: Mapping[str, Any]) -> System:
    return SYSTEMS[_TRIED].but(**{path: value for path, value in knobs.items() if not path.startswith(AFTERWARDS)})


def checkpoints(name: str) -> dict[str, Any]:
    """What a scale changes about the published fine-tuning of checkpoints.

    Raises:
        ConfigError: For problems of its file, and if neither it nor a scale that it is like has ``checkpoints:``.
    """
    sections = (file.checkpoints for file in lineage(name))
    section = next((knobs for knobs in sections if knobs is not None), None)
    if section is None:
        able = ", ".join(other for other in available() if any(file.checkpoints is not None for file in lineage(other)))
        text = f"the file of '{name}' has no 'checkpoints:' section. Allowed: {able}."
        raise ConfigError([Problem("--scale", text)])
    return section


def _merged(files: Sequence[ScaleFile], pinned: bool = True) -> dict[str, Any]:
    """The knobs that some files set and pin; earlier files win, and within all of them ``set`` over ``pins``."""
    pins = {path: value for file in reversed(files) for path, value in file.pins.items()} if pinned else {}
    return pins | {path: value for file in reversed(files) for path, value in file.set.items()}


def _read(name: str) -> tuple[ScaleFile, Document]:
    """The file of a scale, its values unchecked."""
    files = available()
    if name not in files:
        raise ConfigError([f"there is no scale '{name}'.{did_you_mean(name, files)}"])
    document = strict_yaml.load(files[name])
    if not isinstance(document.data, dict):
        if not document.problems:
            document.complain((), "must be a mapping that starts with 'description:'")
        document.check()
    if not _NAME.fullmatch(name):
        document.complain((), "the file needs another name: lower-case letters, digits, _ and -, with a letter first")
    if "name" in document.data:
        document.complain(("name",), "the file's name is the scale's name; leave this out")
    document.data["name"] = name if _NAME.fullmatch(name) else "unnamed"
    keyed(document, ScaleFile)
    file = shaped(document, ScaleFile, {"description": "-"})
    if file is not None:
        _check_names(file, document)
    document.check()
    assert file is not None  # a missing key has raised an error
    return file, document


def _check_names(file: ScaleFile, document: Document) -> None:
    """Names of scales and knobs."""
    if file.like and file.like not in available():
        document.complain(("like",), f"there is no scale '{file.like}'.{did_you_mean(file.like, available())}")
    known = known_knobs()
    sections = {"set": file.set, "pins": file.pins, "trunk": file.trunk, "checkpoints": file.checkpoints or {}}
    for section, knobs in sections.items():
        for path in knobs:
            if path not in known:
                document.complain((section, path), f"there is no such knob.{did_you_mean(path, known)}")
            elif section == "checkpoints" and not path.startswith(FINETUNING):
                document.complain((section, path), f"only knobs that start with '{FINETUNING}' can be set")


def _check_values(file: ScaleFile, document: Document, knobs: Mapping[str, Any]) -> None:
    """Values that are invalid for every grid, each at its own line.

    Args:
        file: The scale.
        document: Gets the complaints.
        knobs: Its knobs, with those of the scales that it is like.

    Raises:
        ConfigError: If there are any problems.
    """
    if _check_system(file, document, knobs, ("set", "pins")):
        _check_system(file, document, {**knobs, **file.trunk}, ("trunk", "set", "pins"))
    for section, every in (("set", knobs), ("checkpoints", file.checkpoints or {})):
        own = {path: value for path, value in every.items() if path.startswith(FINETUNING)}
        tasks = {path.split(".")[1] for path in own} & TASKS.keys()
        wrong: dict[str, str] = {}
        for task in ("", *sorted(tasks)):
            try:
                finetuning(own, task)
            except ConfigError as error:
                wrong |= {problem.path: problem.message for problem in error.problems}
        for path, message in wrong.items():
            document.complain((section, path), message)
    asked = {path: value for path, value in knobs.items() if path.startswith(MEASURING)}
    for task in dict.fromkeys(("", *(name for path in asked if (name := path.split(".")[1]) in ZERO_SHOT))):
        try:
            measuring(asked, task)
        except ConfigError as error:
            for problem in error.problems:
                document.complain(("set", problem.path), problem.message)
    document.check()


def _check_system(file: ScaleFile, document: Document, knobs: Mapping[str, Any], sections: Sequence[str]) -> bool:
    """Complains of values of some sections with which there is no system; returns whether there is one."""
    try:
        _bert(knobs)
    except ConfigError as error:
        for problem in error.problems:
            section = next((name for name in sections if problem.path in getattr(file, name)), None)
            place = ("set",) if section is None else (section, problem.path)
            document.complain(place, problem.message if section else str(problem))
        return False
    return True


def filled(grid: Grid) -> Grid:
    """A grid whose scales are completed from their files.

    Raises:
        ConfigError: For problems of the scales' files.
    """
    known = available()
    entries = {name: _entry(grid, lineage(name)) if name in known else entry for name, entry in grid.scales.items()}
    return grid.model_copy(update={"scales": entries})


def added(grid: Grid, name: str) -> Grid:
    """A grid with one more scale, if the grid does not list it and it has a file.

    Raises:
        ConfigError: For problems of that file, and if the grid varies a size of models or trainings that the file sets:
            the values of its axes are for the scales that it lists.
    """
    if name in grid.scales or name not in available():
        return grid
    files = lineage(name)
    sizes = sorted({path for file in files for path in file.set if path in _SIZES} & varied(grid))
    if sizes and not any(file.name in grid.scales for file in files):
        text = (
            f"grid '{grid.name}' says nothing of it and varies {' and '.join(sizes)}, so runs would not have its "
            f"size. Allowed: {', '.join(grid.scales)}. Or add '{name}:' with axes of its size under the grid's scales."
        )
        raise ConfigError([Problem(f"scale {name}", text)])
    return grid.model_copy(update={"scales": {**grid.scales, name: _entry(grid, files)}})


def _entry(grid: Grid, files: Sequence[ScaleFile]) -> Scale:
    """A grid's entry for a scale, or for the nearest scale in the line, completed from the files."""
    place = next((n for n, file in enumerate(files) if file.name in grid.scales), len(files))
    taken = grid.scales[files[place].name] if place < len(files) else Scale()
    newer = {path for file in files[:place] for path in (*file.set, *file.pins)}
    described = taken.description if place == 0 else ""
    own = taken.model_copy(update={"description": described or files[0].description, "set": _without(taken.set, newer)})
    base = _base(grid, own, _merged(files, pinned=SYSTEM_AXIS not in grid.axes))
    knobs = _without(taken.set, newer & base.keys())
    own = own.model_copy(update={"set": knobs, "base": base})
    if knobs.get(START) == trunks.NAME:
        own = own.model_copy(update={"set": {**knobs, START: _start(grid, own, files)}})
    return own


def _without(knobs: Mapping[str, Any], paths: Set[str]) -> dict[str, Any]:
    return {path: value for path, value in knobs.items() if path not in paths}


def _start(grid: Grid, entry: Scale, files: Sequence[ScaleFile]) -> dict[str, Any]:
    """What describes the trunk of a scale to the cells of a grid.

    Raises:
        ConfigError: If no file of the line has one.
    """
    described = next((file.trunk for file in files if file.trunk), None)
    if described is None:
        able = ", ".join(name for name in available() if any(file.trunk for file in lineage(name)))
        text = f"the file of '{files[0].name}' has no 'trunk:'; scales with one: {able}. Or describe it here."
        raise ConfigError([Problem(f"scales.{files[0].name}.set.{START}", text)])
    system = SYSTEMS.get(grid.base, SYSTEMS[_TRIED])
    own = {path: value for path, value in _merged(files).items() if not path.startswith(AFTERWARDS)}
    own = {path: value for path, value in own.items() if has_part(system, path)}
    return trunks.start(grid, entry, system.but(**{**own, **described}), described)


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
