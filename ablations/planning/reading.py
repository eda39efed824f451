"""Reads and checks the file of a grid, and reports all of its problems at once."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document
from ablations.literature.published_values import same
from ablations.planning import asked_claims, filling, ladder, scales
from ablations.planning.checks import conclusion_checks, grid_checks, search_checks
from ablations.planning.shapes import keyed, shaped
from ablations.schema.grid import SYSTEM_AXIS, Grid
from lightning_modules.config import ConfigError, did_you_mean


def axes(grid: Grid, document: Document) -> None:
    """Adds the problems with names of axes of variants, which need not be knobs."""
    for axis in grid.variants:
        if "." in axis or axis == SYSTEM_AXIS:
            document.slip(("variants", axis), "an axis of variants needs a name without a dot other than 'system'", ())
        elif axis not in grid.axes:
            document.slip(("variants", axis), "is not an axis of this grid.", grid.axes)


def stand_ins(grid: Grid, document: Document) -> None:
    """Adds the problems with values that replace those of variants at a scale."""
    values: dict[str, list[Any]] = {}
    for knobs in itertools.chain(*(named.values() for named in grid.variants.values())):
        for path, value in knobs.items():
            values.setdefault(path, []).append(value)
    for name, scale in (grid.scales if values else {}).items():  # a ladder that is wrong has given no variants
        for path, pairs in scale.variants.items():
            where = ("scales", name, "variants", path)
            if path not in values:
                document.slip(where, "is a knob of no variant.", values)
            for n, (value, _) in enumerate(pairs if path in values else ()):
                if not any(same(value, one) for one in values[path]):
                    some = ", ".join(dict.fromkeys(map(str, values[path])))
                    document.complain((*where, n), f"no variant has the value {value}. They have {some}.")


def checked(file: Path) -> Grid:
    """The grid of a file, its scales completed, the systems of its cells built at every scale."""
    document = strict_yaml.load(file)
    if not isinstance(document.data, dict):
        if not document.problems:
            document.complain((), "must be a mapping that starts with 'question:'")
        document.check()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", file.stem):
        document.complain((), "the file needs another name: lower-case letters, digits and _, with a letter first")
    grid = _shaped(document)
    for check in _CHECKS:
        if grid is None:
            break
        check(grid, document)
        if document.mend():  # wrong names are read as the nearest ones, so that their values are checked as well
            mended = shaped(document, Grid, _STAND_IN, quiet=True)
            grid = _filled(mended, document) if mended is not None else None
    document.check()
    assert grid is not None  # what it lacks has raised an error
    return grid


_CHECKS = (
    axes, stand_ins, grid_checks.names, search_checks.names, grid_checks.references, grid_checks.baseline,
    grid_checks.values, search_checks.values, conclusion_checks.check,
)  # fmt: skip
_STAND_IN = {"question": "-"}


def _shaped(document: Document) -> Grid | None:
    """The grid of a document; after complaints, the grid of the mended document."""
    for place in ((), *(("scales", name) for name in _scale_names(document))):
        document.rename(place, "tune", "search")  # its earlier name
    if "name" in document.data:
        document.complain(("name",), "the file's name is the grid's name. Leave this out.")
    document.data["name"] = document.file.stem if re.fullmatch(r"[a-z][a-z0-9_]*", document.file.stem) else "unnamed"
    keyed(document, Grid)
    if "ladder" in document.data:
        ladder.expand(document)
    if "claims" in document.data:
        document.data["claims"] = asked_claims.join(document)
    if isinstance(document.data.get("scales"), dict):
        entries = document.data["scales"].items()
        document.data["scales"] = {name: _entry(document, name, entry) for name, entry in entries}
    grid = shaped(document, Grid, _STAND_IN)
    return grid and _filled(grid, document)


def _filled(grid: Grid, document: Document) -> Grid:
    """The grid with its scales completed from their files; adds the problems of these files."""
    try:
        return filling.filled(grid)
    except ConfigError as error:
        others = [problem for _, problem in document.problems]
        document.problems += [(math.inf, problem) for problem in error.problems if problem not in others]
        return grid


def _scale_names(document: Document) -> list[str]:
    scales = document.data.get("scales")
    return list(scales) if isinstance(scales, dict) else []


def _entry(document: Document, name: str, entry: Any) -> Any:
    """A grid's entry for a scale; an empty one takes the scale's file unchanged."""
    if isinstance(entry, dict) and "base" in entry:
        document.complain(("scales", name, "base"), "comes from the scale's own file. Change it with 'set'.")
        return {key: value for key, value in entry.items() if key != "base"}
    if entry is None and name not in scales.available():
        hint = did_you_mean(name, scales.available())
        document.complain(("scales", name), f"there is no such scale, and the entry is empty.{hint}")
    return {} if entry is None else entry
