"""``ablations new``: a grid of every system reads and is planned at every scale that it lists."""

import pytest

from ablations.planning import grids, new_grid
from ablations.planning.plan import plan
from lightning_modules.systems import SYSTEMS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of new grids."""
    monkeypatch.setattr(grids, "home", lambda: tmp_path)
    known = grids.available()
    monkeypatch.setattr(grids, "available", lambda: {**known, **{path.stem: path for path in tmp_path.glob("*.yaml")}})


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_grid_of_every_system_trains_its_objective_and_measures_it(name, folder):
    base = SYSTEMS[name]
    new_grid.write("mine", ["optimizer.peak_lr=1e-3,2e-3"], base)
    grid = grids.read("mine")
    (claim,) = grid.claims
    is_lm = base.objectives.lm is not None
    assert claim.metric == grid.figure.y == grid.metrics[0].name == ("heldout.next_loss" if is_lm else "heldout.loss")
    for scale in grid.scales:
        cells = plan(grid, scale).cells
        assert len(cells) == 2
        for cell in cells:
            trained = cell.system.objectives
            assert (trained.lm, trained.plm) == (base.objectives.lm, base.objectives.plm)
            assert (trained.mlm is None) == (base.objectives.mlm is None)
            assert base.objectives.mlm or cell.system.format.kind == base.format.kind


def test_what_is_set_by_hand_wins(folder):
    asked = {"format.frame": "none", "objectives.lm.bias": True}
    new_grid.write("mine", ["model.num_layers=1,2"], SYSTEMS["gpt2"], knobs=asked)
    for cell in plan(grids.read("mine"), "laptop").cells:
        assert {path: cell.system.get(path) for path in asked} == asked
        assert cell.system.objectives.lm.direction == "left_to_right"
