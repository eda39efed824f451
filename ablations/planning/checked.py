"""Grids and scales that have passed their checks, kept in the cache as they were read.

A check builds the systems of all cells at all scales, which takes a second of imports and two of work for all grids.
What a check says depends on the files of the grid and of the scales, on the code and data of both packages, and on
the packages that are installed. While none of these changes, the outcome is read from the cache.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import lightning_modules
from ablations.core.strict_yaml import State, state
from lightning_modules import cached, checkpoints, plugins
from lightning_modules.config import Settings, identity
from lightning_modules.places import cache

S = TypeVar("S", bound=Settings)


def kept(
    cls: type[S], name: str, states: tuple[tuple[Path, State], ...], check: Callable[[], tuple[S, ...]]
) -> tuple[S, ...]:
    """What a check of some files gave, if it passed before and nothing that it reads has changed.

    Args:
        name: The name of the grid or scale; each file has one place in the cache.
        states: All files that are read, with their states; a grid's own first.
    """
    place = identity([cls.__name__, *(str(file) for file, _ in states[:1])])[:16]
    path = cache() / "checked" / f"{name}-{place}.json"
    key = identity([[str(file), state] for file, state in states] + [code()])
    if (found := cached.recalled(path, key)) is None:
        found = [each.to_dict() for each in check()]
        cached.remember(path, key, found)
    return tuple(cls.model_validate(_tuples(data)) for data in found)


def code() -> str:
    """Identifies the code and data of both packages, of plugins, Python, what is installed, and named checkpoints."""
    own = [*plugins.files().values(), *filter(Path.exists, checkpoints.files())]
    rows = [[str(file), state(file)] for file in own]
    return identity([cached.code(Path(__file__).parents[1], Path(lightning_modules.__file__).parent), rows])


def _tuples(value: Any) -> Any:
    """Settings hold lists as tuples; mappings stay."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
