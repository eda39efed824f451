"""Reads and checks the files of scales."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document
from ablations.planning.afterwards import finetuning, measuring
from ablations.planning.checks.grid_checks import known_knobs
from ablations.planning.scale_files import available, merged
from ablations.planning.shapes import keyed, shaped
from ablations.schema.grid import AFTERWARDS, FINETUNING, MEASURING
from ablations.schema.scale import ScaleFile
from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.problems import entry_of
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT

TRIED = "bert_base"  # has every part that scales set, so that their values can be checked without a grid
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def as_bert(knobs: Mapping[str, Any]) -> System:
    """BERT with the knobs of a scale."""
    return SYSTEMS[TRIED].but(**{path: value for path, value in knobs.items() if not path.startswith(AFTERWARDS)})


def checked(name: str) -> tuple[ScaleFile, ...]:
    """The file of a scale, of the scale that it is like, and so on."""
    line = [_read(name)]
    while like := line[-1][0].like:
        if like in (names := [file.name for file, _ in line]):
            document = line[-1][1]
            document.complain(("like",), f"is circular: {' -> '.join([*names[names.index(like) :], like])}")
            document.check()
        line.append(_read(like))
    files = tuple(file for file, _ in line)
    _check_values(*line[0], merged(files))
    return files


def _read(name: str) -> tuple[ScaleFile, Document]:
    """The file of a scale, its values unchecked."""
    document = strict_yaml.load(entry_of(available(), name, "scale"))
    if not isinstance(document.data, dict):
        if not document.problems:
            document.complain((), "must be a mapping that starts with 'description:'")
        document.check()
    if not _NAME.fullmatch(name):
        document.complain((), "the file needs another name: lower-case letters, digits, _ and -, with a letter first")
    if "name" in document.data:
        document.complain(("name",), "the file's name is the scale's name. Leave this out.")
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
    for key, other in (("like", file.like), ("instead", file.instead)):
        if other and other not in available():
            document.complain((key,), f"there is no scale '{other}'.{did_you_mean(other, available())}")
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
        knobs: Its knobs, with those of the scales that it is like.
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
        as_bert(knobs)
    except ConfigError as error:
        for problem in error.problems:
            section = next((name for name in sections if problem.path in getattr(file, name)), None)
            place = ("set",) if section is None else (section, problem.path)
            document.complain(place, problem.message if section else str(problem))
        return False
    return True
