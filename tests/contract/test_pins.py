"""Laptop runs last: no correction of a published system changes them, because their scale states every knob."""

import pytest

from ablations.planning import grids, scales
from ablations.planning.cells import varied
from ablations.planning.checks.grid_checks import known_knobs
from ablations.schema.grid import AFTERWARDS, SYSTEM_AXIS
from lightning_modules.config import has_knob, is_kind
from lightning_modules.system import System
from tests.contract.test_cell_identities import identities

LAPTOP = [name for name in scales.available() if "laptop" in (file.name for file in scales.lineage(name))]
CASES = [
    (name, scale)
    for name in grids.available()
    for scale in grids.read(name).scales
    if scale in LAPTOP and SYSTEM_AXIS not in grids.read(name).axes
]
LABELS = {"name", "paper"}


def test_there_are_cases():
    assert {"laptop", "laptop-long"} <= {scale for _, scale in CASES}


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_every_knob_of_a_system_is_stated(name, scale):
    grid = grids.read(name)
    entry = grid.scales[scale]
    stated = {*entry.base, *entry.set, *grid.set, *varied(grid)}
    known = [path for path in known_knobs() if not path.startswith(AFTERWARDS) and path not in LABELS]
    parts = {path.rpartition(".")[0] for path in known}
    kinds = {path: entry.base[path] for path in entry.base if is_kind(System, path)}
    own = {*entry.set, *grid.set, *varied(grid)}
    stated |= {path.removesuffix(".kind") for path in own if is_kind(System, path)}  # starts from its defaults
    silent = [
        path
        for path in known
        if path not in parts
        and all(has_knob(System, path, part, kind) for part, kind in kinds.items())
        and not any(path == given or path.startswith(f"{given}.") for given in stated)
    ]
    assert not silent, "pin them in the scale's file, at the value that has no effect where the knob is new"


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_another_base_system_gives_the_same_runs(name, scale):
    grid = grids.read(name)
    base = "roberta_base" if grid.base != "roberta_base" else "bert_base"
    assert identities(grid.model_copy(update={"base": base}), scale) == identities(grid, scale)
