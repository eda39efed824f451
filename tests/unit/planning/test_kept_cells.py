"""Cells are made once a process, and again if what they are made from is another."""

import pytest

from ablations.planning import grids, resolve
from ablations.planning.plan import plan
from ablations.schema.grid import Grid
from lightning_modules import NUMERICS
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks import TASKS
from tests import tiny
from tests.toy import toy_task

TASK = "tasks: [toy]\nset:"


@pytest.fixture
def made(monkeypatch):
    """The labels of cells that were made, each time one was."""
    found, make = [], resolve.Resolver._cell

    def making(self, values, seeds):
        found.append(values)
        return make(self, values, seeds)

    monkeypatch.setattr(resolve.Resolver, "_cell", making)
    return found


@pytest.fixture
def grid(tmp_path, monkeypatch) -> Grid:
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    file = tiny.grid(tmp_path)
    file.write_text(file.read_text().replace("set:", TASK, 1))
    return grids.read(file)


def ids(grid, **request):
    return [run.id for run in plan(grid, "smoke", **request).runs]


def test_cells_are_made_once(grid, made):
    first = ids(grid)
    assert ids(grid) == first
    assert len(made) == 2
    assert ids(grid, seeds=1) == first[: len(first) // 2]  # other cells: they have fewer seeds
    assert len(made) == 4


def test_equal_grids_share_cells(grid, made):
    first = ids(grid)
    assert ids(Grid.read(grid.to_dict())) == first
    assert len(made) == 2


def other_text(tmp_path, monkeypatch):
    text = tmp_path / "text" / "corpus.txt"
    text.write_text(text.read_text() + "\n\nAnother document is here.\n")


def other_examples(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "toy", toy_task("toy", labels=("poor", "rich")))


def other_numerics(tmp_path, monkeypatch):
    part = next(iter(NUMERICS))
    monkeypatch.setitem(NUMERICS, part, NUMERICS[part] + 1)


def other_system(tmp_path, monkeypatch):
    monkeypatch.setitem(SYSTEMS, "roberta_base", SYSTEMS["roberta_base"].but(**{"model.dropout": 0.2}))


@pytest.mark.parametrize("change", [other_text, other_examples, other_numerics, other_system])
def test_cells_are_made_again_of_something_else(grid, made, tmp_path, monkeypatch, change):
    first = ids(grid)
    change(tmp_path, monkeypatch)
    assert ids(grid) != first
    assert len(made) == 4
