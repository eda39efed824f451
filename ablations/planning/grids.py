"""Finds and reads grid files, and reports all problems of a file at once."""

import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document, State
from ablations.planning import asked_claims, ladder, scales
from ablations.planning.checks import conclusion_checks, grid_checks, search_checks, variant_checks
from ablations.planning.shapes import keyed, shaped
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.places import own

FOLDER = Path(__file__).parents[1] / "grids"
ENDINGS = (".yaml", ".yml")  # of a path; a name has none


def home() -> Path:
    """The folder for new grids: the user's own, or the project's in a checkout."""
    return [FOLDER, *own("grids")][-1]


def available() -> dict[str, Path]:
    """Grid name -> file: the project's grids, then the user's own.

    Raises:
        ConfigError: If two files have the same name.
    """
    return strict_yaml.named("grids", [FOLDER, *own("grids")])


def locate(grid: str | Path) -> Path:
    """The file of a grid, by name or path.

    Raises:
        ConfigError: With the nearest name, if there is no such grid.
    """
    named = str(grid)
    if named.endswith(ENDINGS):
        if not Path(named).exists() or Path(named).is_dir():
            raise ConfigError([f"{named}: {'is a folder' if Path(named).is_dir() else 'there is no such file'}"])
        ours = available().get(Path(named).stem)
        if ours is not None and not ours.samefile(named):
            raise ConfigError(
                [f"{named}: there is a grid '{ours.stem}' already ({ours}), with its page; rename the file"]
            )
        return Path(named)
    known = available()
    if named not in known:
        raise ConfigError([f"there is no grid '{named}'.{did_you_mean(named, known)}"])
    return known[named]


def read(grid: str | Path) -> Grid:
    """Reads and checks a grid, and builds the systems of its cells at every scale.

    Raises:
        ConfigError: With every problem as ``file:line: path: what is wrong``.
    """
    file = locate(grid)
    files = (file, *scales.available().values())
    return _read(file.resolve(), tuple((one, strict_yaml.state(one)) for one in files))


def readable() -> tuple[dict[str, Grid], list[Problem]]:
    """The project's grids by name without those that cannot be read, and the problems of these."""
    found: dict[str, Grid] = {}
    problems: list[Problem] = []
    for name in available():
        try:
            found[name] = read(name)
        except ConfigError as error:
            problems += error.problems
    return found, problems


@lru_cache(maxsize=128)
def _read(file: Path, states: tuple[tuple[Path, State], ...]) -> Grid:
    """Reads a file, cached by its state and the scales': every page reads all grids for the scoreboard."""
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
    variant_checks.axes,
    variant_checks.stand_ins,
    grid_checks.names,
    search_checks.names,
    grid_checks.references,
    grid_checks.baseline,
    grid_checks.values,
    search_checks.values,
    conclusion_checks.check,
)
_STAND_IN = {"question": "-"}


def _shaped(document: Document) -> Grid | None:
    """The grid of a document; after complaints, the grid of the mended document."""
    for place in ((), *(("scales", name) for name in _scale_names(document))):
        document.rename(place, "tune", "search")  # its earlier name
    if "name" in document.data:
        document.complain(("name",), "the file's name is the grid's name; leave this out")
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
        return scales.filled(grid)
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
        document.complain(("scales", name, "base"), "comes from the scale's own file; change it with 'set'")
        return {key: value for key, value in entry.items() if key != "base"}
    if entry is None and name not in scales.available():
        hint = did_you_mean(name, scales.available())
        document.complain(("scales", name), f"there is no such scale, and the entry is empty.{hint}")
    return {} if entry is None else entry
