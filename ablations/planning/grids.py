"""Finds and reads grid files, and reports all problems of a file at once."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document
from ablations.planning import asked_claims, scales, search_checks
from ablations.planning.grid_checks import check
from ablations.planning.shapes import shaped
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError, Problem, did_you_mean
from lightning_modules.places import own

FOLDER = Path(__file__).parents[1] / "grids"


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
    if named.endswith((".yaml", ".yml")):
        if not Path(named).is_file():
            raise ConfigError([f"{named}: there is no such file"])
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
    return _read(file.resolve(), tuple(map(_state, (file, *scales.available().values()))))


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


def _state(file: Path) -> tuple[Path, int, int]:
    """Identifies a file in its present state."""
    status = file.stat()
    return file, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=128)
def _read(file: Path, state: tuple[tuple[Path, int, int], ...]) -> Grid:
    """Reads a file, cached by its ``state`` and the scales': every page reads all grids for the scoreboard."""
    document = strict_yaml.load(file)
    if not isinstance(document.data, dict):
        if not document.problems:
            document.complain((), "must be a mapping that starts with 'question:'")
        document.check()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", file.stem):
        document.complain((), "the file needs another name: lower-case letters, digits and _, with a letter first")
    grid = _shaped(document)
    if grid is not None:
        grid = scales.filled(grid)
        check(grid, document)
        search_checks.check(grid, document)
    document.check()
    return grid


def _shaped(document: Document) -> Grid | None:
    """The grid of a document; after complaints, the grid of its valid part."""
    for place in ((), *(("scales", name) for name in _scale_names(document))):
        document.rename(place, "tune", "search")  # its earlier name
    data = {"name": "unnamed", **document.data}
    if re.fullmatch(r"[a-z][a-z0-9_]*", document.file.stem):
        data["name"] = document.file.stem
    if "name" in document.data:
        document.complain(("name",), "the file's name is the grid's name; leave this out")
    if "claims" in data:
        data["claims"] = asked_claims.join(document)
    if isinstance(data.get("scales"), dict):
        data["scales"] = {name: _entry(document, name, entry) for name, entry in data["scales"].items()}
    return shaped(document, data, Grid)


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
