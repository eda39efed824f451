"""``ablations new``: a grid of every system reads and is planned at every scale that it lists."""

import re

import pytest

from ablations.planning import grids, new_grid
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from tests.messages import names


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of new grids."""
    monkeypatch.setattr(grids, "home", lambda: tmp_path)
    known = grids.available()
    monkeypatch.setattr(grids, "available", lambda: {**known, **{path.stem: path for path in tmp_path.glob("*.yaml")}})


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_grid_of_every_system_trains_its_objective_and_measures_it(name, folder):
    base = SYSTEMS[name]
    new_grid.write("mine", ["optimizer.peak_lr=1e-3,2e-3"], base, claims=True)
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


def test_a_grid_that_is_given_another_objective_measures_that_one(folder):
    knobs = {"objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right"}
    new_grid.write("mine", ["model.num_layers=1,2"], SYSTEMS["roberta_base"], knobs=knobs)
    grid = grids.read("mine")
    assert [metric.name for metric in grid.metrics] == ["heldout.next_loss", "heldout.next_accuracy"]
    assert grid.figure.y == "heldout.next_loss"
    assert grid.claims == (), "nobody made one"


def test_a_misspelt_knob_is_one_problem_of_the_command(folder, tmp_path):
    with pytest.raises(ConfigError) as caught:
        new_grid.write("mine", ["optimizer.learning_rate=1e-3,2e-3", "model.num_layers=1,2"], SYSTEMS["roberta_base"])
    (problem,) = caught.value.problems
    assert names(str(problem), "optimizer.learning_rate", "'optimizer.peak_lr'?")
    assert not re.search(r"mine|line", str(problem)), "no file is left that could have lines"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def written(folder, tmp_path):
    """Writes a grid over depth in which something is replaced, and returns its problems."""

    def write(old, new):
        file = new_grid.write("mine", ["model.num_layers=1,2"], SYSTEMS["roberta_base"], claims=True)
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            grids.read("mine")
        return [str(problem) for problem in caught.value.problems], file.read_text(encoding="utf-8").splitlines()

    return write


def test_a_knob_misspelt_everywhere_is_one_problem_with_all_lines(written):
    (problem,), lines = written("model.num_layers", "model.num_layer")
    places = [number for number, line in enumerate(lines, 1) if "model.num_layer" in line and "#" not in line]
    first, *others = places
    assert len(others) > 3
    assert problem.startswith(f"mine.yaml:{first}: axes.model.num_layer: ")
    assert names(problem, *map(str, others))
    assert "'model.num_layers'?" in problem


@pytest.mark.parametrize("axis", ["objectives.distillation.temperature=1.0,4.0", "model.num_layers=1,2"])
def test_students_of_a_new_grid_have_a_teacher_twice_as_deep_and_start_from_it_where_its_layers_fit(axis, folder):
    new_grid.write("mine", [axis], SYSTEMS["distilbert"])
    grid = grids.read("mine")
    for scale in grid.scales:
        for cell in plan(grid, scale).cells:
            parents = cell.system.parents()
            teacher, depth = parents["teacher"].system.model.num_layers, cell.system.model.num_layers
            assert cell.system.objectives.mlm.weight == 2.0
            if axis.startswith("model."):
                assert teacher >= depth
                assert "start" not in parents
            else:
                assert teacher == 2 * depth == 2 * len(cell.system.training.start_layers)
                assert {run.id for run in cell.runs[0].by_role.values()} == set(cell.runs[0].parents)
