"""Cells of the project's grids keep their identities: records and pages of what has run are found by them.

A scale's file speaks for all grids, so a line of it can change cells of any. If this test fails without a grid having
been changed on purpose, give the grids that are named their former values in their entries for the scale. Where cells
are to change, their runs are made again; say so in the CHANGELOG, and write the new identities by::

    python -m tests.contract.test_cell_identities
"""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest

from ablations.planning import grids
from ablations.planning.cells import layout
from ablations.planning.resolve import Resolver
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid
from lightning_modules.config import identity
from lightning_modules.places import project
from tests import once

pytestmark = pytest.mark.slow

STORED = Path(__file__).with_name("cell_identities.json")
_NO_TEXT = "0" * 64  # in the place of every fingerprint: settings are compared here, not data


def cells(grid: Grid, scale: str) -> tuple[Cell, ...]:
    """The cells of a grid as they are whatever the data and the generations of the numbers."""
    plan = layout(grid, scale)
    with (
        mock.patch("ablations.planning.resolve.fingerprint", return_value=_NO_TEXT),
        mock.patch("ablations.planning.resolve.examples_of", return_value=_NO_TEXT),
        mock.patch("ablations.planning.resolve.fingerprint_of", return_value=_NO_TEXT),
        mock.patch("ablations.schema.run.fingerprint", return_value=_NO_TEXT),
        mock.patch("ablations.schema.run.of_texts", return_value=_NO_TEXT),
        mock.patch("ablations.schema.run.current_numerics", return_value={}),
        mock.patch("ablations.schema.run.numerics_of", return_value=()),
    ):
        found = Resolver(grid, scale, plan.baseline, None, {}).cells(plan.kept)
        for cell in found:
            assert all(run.id for run in _runs(cell))  # worked out while the data are hidden, and kept
    return found


@functools.cache
def cells_of(name: str) -> dict[str, tuple[Cell, ...]]:
    """Scale -> the cells of a grid of the project, laid out once in a test run: several contracts are about them."""
    return once.of_a_run(
        f"cells-{name}", lambda: {scale: cells(grids.read(name), scale) for scale in grids.read(name).scales}
    )


def _runs(cell: Cell):
    return (*cell.work, *cell.awaited, *(run for trial in cell.search for run in trial.work))


def identities(found: Iterable[Cell]) -> list[str]:
    """Eight digits a cell: what it is called, what it stands for, and all its runs in their order."""
    return [identity([cell.label, cell.printed, [run.id for run in _runs(cell)]])[:8] for cell in found]


def _now(name: str) -> dict[str, str]:
    return {f"{name}/{scale}": " ".join(identities(found)) for scale, found in cells_of(name).items()}


def _stored() -> dict[str, str]:
    return json.loads(STORED.read_text(encoding="utf-8"))


def test_cells_keep_their_identities():
    stored = _stored()
    now = {place: ids for name in {place.partition("/")[0] for place in stored} for place, ids in _now(name).items()}
    changed = {place for place in {*now, *stored} if now.get(place) != stored.get(place)}
    assert not changed, f"cells of {', '.join(sorted(changed))} have changed; what to do is at the top of this file"


def test_grids_with_a_page_are_kept_and_those_that_are_gone_have_left():
    kept = {place.partition("/")[0] for place in _stored()}
    published = {page.parent.parent.name for page in (project() / "results").glob("*/*/page.json")}
    assert published <= kept <= set(grids.available())


if __name__ == "__main__":
    rows = {place: ids for name in grids.available() for place, ids in _now(name).items()}
    STORED.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n", encoding="utf-8")
