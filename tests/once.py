"""What follows from the code alone is computed once in a process, however many tests ask for it.

The project's grids are read, the systems that they may have are laid out, and the pages of published sizes are written.
A process of a user does each of these once anyway. What takes longest is made by one worker for all of a run.
"""

import hashlib
import pickle
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TypeVar

import pytest
from filelock import FileLock

from ablations.core import store
from ablations.pages import parameters_page, publishing
from ablations.planning import grids, recorded
from ablations.schema.grid import Grid
from lightning_modules.system import System

T = TypeVar("T")
_shared: list[Path] = []  # the folder of this test run, while there is one


def remember(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Has all that is computed once remembered, part of it in a folder that all workers share."""
    folder.mkdir(exist_ok=True)
    patch.setattr(f"{__name__}._shared", [folder])
    patch.setattr(grids, "_read", lru_cache(maxsize=None)(_read_once(grids._read.__wrapped__)))
    patch.setattr(recorded, "_possible", _once_a_grid(recorded._possible))
    patch.setattr(publishing, "parameters_page", SimpleNamespace(publish=_published))


def of_a_run(name: str, make: Callable[[], T]) -> T:
    """What one worker has made under this name for all workers of a test run; outside a test it is made."""
    if not _shared:
        return make()
    path = _shared[0] / f"{name}.pickle"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            path.write_bytes(pickle.dumps(make()))
        return pickle.loads(path.read_bytes())


def _read_once(read):
    """The grids of the project; those that tests write are read where they are written."""

    def found(file: Path, states: tuple[tuple[Path, str], ...]) -> Grid:
        if not file.is_relative_to(grids.FOLDER):
            return read(file, states)
        state = hashlib.sha256(repr(states).encode()).hexdigest()[:16]
        return of_a_run(f"grid-{file.stem}-{state}", lambda: read(file, states))

    vars(found)["__wrapped__"] = read
    return found


def _once_a_grid(possible):
    """A grid that is read once is one object as long as neither its file nor one of a scale changes."""
    known: dict[tuple[int, str], tuple[Grid, list[System]]] = {}

    def found(grid: Grid, scale: str) -> Iterator[System]:
        if (id(grid), scale) not in known:
            known[id(grid), scale] = grid, list(possible(grid, scale))
        return iter(known[id(grid), scale][1])

    return found


@cache
def _pages() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in parameters_page.publish(Path(folder))}


def _published(results_dir: Path) -> list[Path]:
    """Writes what `parameters_page.publish` has written before."""
    folder = results_dir / parameters_page.FOLDER
    store.check_inside(folder, results_dir)
    for name, content in _pages().items():
        store.write(folder / name, content)
    return [folder / name for name in _pages()]
