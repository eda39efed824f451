"""Grid files: where they lie, and reading one with everything that is wrong with it said at once."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from ablations.core import strict_yaml
from ablations.core.strict_yaml import Document
from ablations.planning import asked_claims, search_checks
from ablations.planning.grid_checks import check
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError, Settings, did_you_mean, problems

FOLDER = Path(__file__).parents[1] / "grids"


def available(folders: Sequence[Path] = ()) -> dict[str, Path]:
    """Grid name -> file: the project's grids, then those in the user's folders, which may not hide them.

    Raises:
        ConfigError: If two files have the same name.
    """
    found: dict[str, Path] = {}
    for folder in (FOLDER, *folders):
        for file in sorted(Path(folder).glob("*.yaml")):
            if file.stem in found and not file.samefile(found[file.stem]):
                raise ConfigError([f"two grids are called '{file.stem}': {found[file.stem]} and {file}"])
            found[file.stem] = file
    return found


def locate(grid: str | Path, folders: Sequence[Path] = ()) -> Path:
    """The file of a grid given by its name or by the path of its file.

    Raises:
        ConfigError: With the nearest name, if there is no such grid.
    """
    named = str(grid)
    if named.endswith((".yaml", ".yml")):
        if not Path(named).is_file():
            raise ConfigError([f"{named}: there is no such file"])
        return Path(named)
    known = available(folders)
    if named not in known:
        raise ConfigError([f"there is no grid '{named}'.{did_you_mean(named, known)}"])
    return known[named]


def read(grid: str | Path, folders: Sequence[Path] = ()) -> Grid:
    """Reads and checks a grid, down to building the system of every cell at every scale.

    Raises:
        ConfigError: With every problem as ``file:line: path: what is wrong``.
    """
    file = locate(grid, folders)
    state = file.stat()
    return _read(file.resolve(), (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=128)
def _read(file: Path, state: tuple[int, int]) -> Grid:
    """Reads a file in the ``state`` it is in: every page brings the scoreboard up to date, which asks all grids."""
    document = strict_yaml.load(file)
    if not isinstance(document.data, dict):
        if not document.problems:
            document.complain((), "must be a mapping that starts with 'question:'")
        document.check()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", file.stem):
        document.complain((), "the file's name is the grid's: lower-case letters, digits and _, a letter first")
    found = _shaped(document)
    if found is not None:
        check(found, document)
        search_checks.check(found, document)
    document.check()
    return found


def _shaped(document: Document) -> Grid | None:
    """The grid of a document; after complaints, of what is left of it, so that its knobs are checked as well."""
    data = {"name": "unnamed", **document.data}
    if re.fullmatch(r"[a-z][a-z0-9_]*", document.file.stem):
        data["name"] = document.file.stem
    if "name" in document.data:
        document.complain(("name",), "the name of a grid is that of its file; leave this out")
    if "claims" in data:
        data["claims"] = asked_claims.join(document)
    try:
        return Grid.model_validate(_tuples(data))
    except ValidationError as error:
        rest = _without(data, [item["loc"] for item in _complain(document, error)])
    try:
        return Grid.model_validate(_tuples(rest))
    except ValidationError:
        return None  # something that everything else needs is missing


def _tuples(value: Any) -> Any:
    """Lists as the tuples that settings hold; mappings stay."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _complain(document: Document, error: ValidationError) -> list[dict[str, Any]]:
    items = error.errors(include_url=False)
    for item, problem in zip(items, problems(error, Grid), strict=True):
        loc = item["loc"]
        message = problem.message
        if item["type"] == "missing":
            message = "is required and missing"
        elif item["type"] == "extra_forbidden":
            message = f"there is no such key.{did_you_mean(str(loc[-1]), _settings_at(loc).model_fields)}"
        elif item["type"] == "string_pattern_mismatch":
            message = f"{item['input']!r} does not look like {item['ctx']['pattern']}"
        document.complain(loc, message)
    return items


def _settings_at(loc: tuple[str | int, ...]) -> type[Settings]:
    """The settings class in which the last part of a location was looked up."""
    cls: type[Settings] = Grid
    for part in loc[:-1]:
        info = cls.model_fields.get(str(part))
        cls = (_inner(info.annotation) if info else None) or cls
    return cls


def _inner(annotation: Any) -> type[Settings] | None:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    return next((found for option in get_args(annotation) if (found := _inner(option))), None)


def _without(data: dict[str, Any], locations: list[tuple[str | int, ...]]) -> dict[str, Any]:
    """The data less each bad part: the key itself where it sits in a mapping, else the item or section around it."""
    bad = [loc for loc in locations if loc]

    def pruned(value: Any, here: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {k: pruned(v, (*here, k)) for k, v in value.items() if (*here, k) not in bad}
        if isinstance(value, list):  # an item with anything wrong in it goes as a whole
            return [v for n, v in enumerate(value) if not any(loc[: len(here) + 1] == (*here, n) for loc in bad)]
        return value

    return pruned(data, ())
