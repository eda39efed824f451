"""What follows from the code alone is computed once in a process, however many tests ask for it.

The project's grids are read, the systems that they may have are laid out, and the pages of published sizes are written.
A process of a user does each of these once anyway.
"""

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from ablations.core import store
from ablations.pages import parameters_page, publishing
from ablations.planning import grids, recorded
from ablations.schema.grid import Grid
from lightning_modules.system import System


def remember(patch: pytest.MonkeyPatch) -> None:
    """Has all that is computed once remembered."""
    patch.setattr(grids, "_read", lru_cache(maxsize=None)(grids._read.__wrapped__))
    patch.setattr(recorded, "_possible", _once_a_grid(recorded._possible))
    patch.setattr(publishing, "parameters_page", SimpleNamespace(publish=_published))


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
