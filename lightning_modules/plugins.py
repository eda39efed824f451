"""Parts of one's own: what modules list that ``ablations.toml`` or the entry points ``ablations`` name.

A module lists tasks as ``ROWS``, and classes by name as ``OBJECTIVES``, ``POSITIONS`` or ``MODELS``. Each table imports
the modules whose text has its name, so one of objectives may import objectives while their table is made.
"""

import functools
import hashlib
import re
import sys
import tomllib
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from lightning_modules.places import STUDY, study
from lightning_modules.problems import ConfigError, Problem, did_you_mean

TABLES = ("MODELS", "OBJECTIVES", "POSITIONS", "ROWS")
_Part = TypeVar("_Part")
_code: dict[type | None, dict[str, str]] = {}  # class of a plugin -> its module, with the SHA-256 of the file


@functools.cache
def modules() -> tuple[str, ...]:
    """The modules that ``ablations.toml`` names, which lie in the study, and those of the entry points ``ablations``.

    Raises:
        ConfigError: If the file is no TOML, or says anything else.
    """
    installed, inside = [point.value for point in entry_points(group="ablations")], study()
    if inside is None:
        return tuple(installed)
    try:
        settings = tomllib.loads((inside / STUDY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([Problem(STUDY, f"cannot be read: {error}")]) from None
    named = settings.pop("plugins", [])
    if settings or not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        text = f'may hold plugins = ["my_module"] alone{f", no {next(iter(settings))}" if settings else ""}'
        raise ConfigError([Problem(STUDY, text)])
    if str(inside) not in sys.path:
        sys.path.append(str(inside))
    return (*installed, *named)


def imported(name: str) -> ModuleType:
    """A module that has been imported to its end.

    Raises:
        ConfigError: With file and line.
    """
    if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
        text = "is still being imported: import ablations before it, and list parts of one table in a file"
        raise ConfigError([Problem(name, text)])
    try:
        return import_module(name)
    except Exception as error:  # whatever the file does when it is imported
        text = f"cannot be imported: {_place(name, error)}: {type(error).__name__}: {error}"
        raise ConfigError([Problem(name, text)]) from error


def _place(name: str, error: Exception) -> str:
    """File and line of an error: the last line of the module itself that it passed through."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    spec = find_spec(name)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if spec and frame.filename == spec.origin]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "for a reason outside it"


def files() -> dict[str, Path]:
    """The file of each of `modules`.

    Raises:
        ConfigError: For one that is not there.
    """
    found = {}
    for name in modules():
        try:
            spec = find_spec(name)
        except ImportError:  # of the package that it is in
            spec = None
        if spec is None or spec.origin is None:
            near = did_you_mean(name, [file.stem for file in (study() or Path()).glob("*.py")])
            raise ConfigError([Problem(name, f"there is no such module.{near}")])
        found[name] = Path(spec.origin)
    return found


def listing(table: str) -> list[str]:
    """The modules of `modules` that list parts in some table.

    Raises:
        ConfigError: For one that is not there or lists none in any table.
    """
    words = {name: set(re.findall(r"\w+", file.read_text(encoding="utf-8"))) for name, file in files().items()}
    if idle := [name for name in words if words[name].isdisjoint(TABLES)]:
        raise ConfigError(Problem(name, f"lists no {', '.join(TABLES)}: name one") for name in idle)
    return [name for name in words if table in words[name]]


def parts(table: str, ours: dict[str, type[_Part]], base: type[_Part]) -> dict[str, type[_Part]]:
    """Our classes of a table by name, and those that plugins list: ``OBJECTIVES = {"rtd": ReplacedToken}``.

    Raises:
        ConfigError: For a module that cannot be imported, for what is no subclass of ``base``, and for a name twice.
    """
    every = dict(ours)
    for module in listing(table):
        listed = getattr(imported(module), table, {})
        if not isinstance(listed, dict) or not all(
            isinstance(part, type) and issubclass(part, base) for part in listed.values()
        ):
            text = f'{table} must hold subclasses of {base.__name__} by name: {table} = {{"my_name": MyClass}}'
            raise ConfigError([Problem(module, text)])
        if twice := listed.keys() & every.keys():
            raise ConfigError([Problem(module, f"'{min(twice)}' of {table} is there already: rename it")])
        every |= listed
        for part in listed.values():
            source = Path(str(sys.modules[part.__module__].__file__)).read_bytes()
            _code[part] = {f"plugin {part.__module__}": hashlib.sha256(source).hexdigest()}
    return every


def code(classes: Iterable[type | None]) -> dict[str, str]:
    """The modules of those classes that are of plugins, each with the SHA-256 of its file when it was imported."""
    return {name: digest for part in classes for name, digest in _code.get(part, {}).items()}
