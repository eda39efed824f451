"""Grids and scales that have passed their checks, kept in the cache as they were read.

A check builds the systems of all cells at all scales, which takes a second of imports and two of work for all grids.
What a check says depends on the files of the grid and of the scales, on the code and data of both packages, and on
the packages that are installed. While none of these changes, the outcome is read from the cache.
"""

import contextlib
import functools
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import lightning_modules
from ablations.core.strict_yaml import State
from lightning_modules import cached
from lightning_modules.config import Settings, identity
from lightning_modules.files import version
from lightning_modules.places import cache

S = TypeVar("S", bound=Settings)
_READ = {".py", ".yaml", ".csv", ".json"}


def kept(
    cls: type[S], name: str, states: tuple[tuple[Path, State], ...], check: Callable[[], tuple[S, ...]]
) -> tuple[S, ...]:
    """What a check of some files gave, if it passed before and nothing that it reads has changed.

    Args:
        cls: The class of what the files say.
        name: The name of the grid or scale; each file has one place in the cache.
        states: All files that are read, with their states; a grid's own first.
        check: Reads and checks them.

    Raises:
        ConfigError: From the check.
    """
    place = identity([cls.__name__, *(str(file) for file, _ in states[:1])])[:16]
    path = cache() / "checked" / f"{name}-{place}.json"
    key = identity([[str(file), state] for file, state in states] + [_code()])
    if cached.is_sound(path) and (found := cached.get_json(path))["key"] == key:
        return tuple(cls.model_validate(_tuples(data)) for data in found["settings"])
    settings = check()
    content = {"key": key, "settings": [each.to_dict() for each in settings]}
    with contextlib.suppress(cached.CacheError), cached.locked(path):  # else it is checked again next time
        cached.write(path, lambda file: cached.put_json(file, content))
    return settings


@functools.cache
def _code() -> str:
    """Identifies both packages, Python and what is installed, by the versions of their files and folders."""
    packages = Path(__file__).parents[1], Path(lightning_modules.__file__).parent
    files = [path for package in packages for path in package.rglob("*") if path.suffix in _READ]
    places = [*sorted(files), Path(sysconfig.get_path("purelib"))]
    return identity([sys.version, *([str(path), *version(path)] for path in places)])


def _tuples(value: Any) -> Any:
    """Settings hold lists as tuples; mappings stay."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
