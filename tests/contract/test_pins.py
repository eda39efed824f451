"""Laptop runs last: no correction of a published system changes them, because their scale states every knob."""

import pytest

from ablations.planning import grids, scales
from ablations.planning.cells import varied
from ablations.planning.checks.grid_checks import known_knobs
from ablations.schema.grid import AFTERWARDS, SYSTEM_AXIS
from lightning_modules.config import has_knob, is_kind
from lightning_modules.system import System
from tests.contract.test_cell_identities import cells, cells_of, identities
from tests.every import every

LAPTOP = [name for name in scales.available() if "laptop" in (file.name for file in scales.lineage(name))]
LABELS = {"name", "paper"}


def found(name):
    """A grid, and its scales that have to state every knob."""
    grid = grids.read(name)
    return grid, [scale for scale in grid.scales if scale in LAPTOP and SYSTEM_AXIS not in grid.axes]


def test_there_are_cases():
    assert {"laptop", "laptop-long"} <= {scale for name in grids.available() for scale in found(name)[1]}


@every("name", grids.available())
def test_every_knob_of_a_system_is_stated(name):
    grid, stating = found(name)
    for scale in stating:
        assert not silent(grid, scale), f"{scale}: pin them in its file, at the value that has no effect if it is new"


def silent(grid, scale):
    """The knobs that a scale says nothing about."""
    entry = grid.scales[scale]
    stated = {*entry.base, *entry.set, *grid.set, *varied(grid)}
    known = [path for path in known_knobs() if not path.startswith(AFTERWARDS) and path not in LABELS]
    parts = {path.rpartition(".")[0] for path in known}
    kinds = {path: entry.base[path] for path in entry.base if is_kind(System, path)}
    own = {*entry.set, *grid.set, *varied(grid)}
    stated |= {path.removesuffix(".kind") for path in own if is_kind(System, path)}  # starts from its defaults
    return [
        path
        for path in known
        if path not in parts
        and all(has_knob(System, path, part, kind) for part, kind in kinds.items())
        and not any(path == given or path.startswith(f"{given}.") for given in stated)
    ]


@pytest.mark.nightly
@every("name", grids.available())
def test_another_base_system_gives_the_same_runs(name):
    grid, stating = found(name)
    base = "roberta_base" if grid.base != "roberta_base" else "bert_base"
    for scale in stating:
        others = cells(grid.model_copy(update={"base": base}), scale)
        assert identities(others) == identities(cells_of(name)[scale]), scale
