"""Searches that go on beyond an end of their range: bounded, one step at a time, and only where the best lies there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablations.core import machine
from ablations.core.store import Records
from ablations.planning.plan import plan
from ablations.planning.search import beyond, combinations, farthest
from ablations.running import estimate
from ablations.schema.grid import Search
from lightning_modules.config import ConfigError
from tests.messages import naming
from tests.unit.planning.test_search import GOOD, LR, RATE, SEARCH, put, read, search_with

EXTENDED = SEARCH.replace("seeds: 2", "seeds: 2\n  extend: 2")
STEPS = "finetuning.steps"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


def tried(found, rate=0.15):
    return next([trial.values[LR] for trial in cell.search] for cell in found.cells if cell.values[RATE] == rate)


def finish(records, found, best):
    """Ends the trials of every cell: the loss grows with the distance from the best rate, by factors."""
    for cell in found.cells:
        for trial in cell.search:
            ratio = trial.values[LR] / best
            for run in trial.runs:
                put(records, run, 4 + max(ratio, 1 / ratio))


def searched(grid, records, best, phases=6):
    """The plan after so many phases."""
    for _ in range(phases):
        found = plan(grid, "smoke", records=records)
        finish(records, found, best)
    return plan(grid, "smoke", records=records)


@pytest.mark.parametrize(
    ("best", "values", "chosen"),
    [
        (3e-3, [], 3e-3),
        (9e-3, [2.7e-2], 9e-3),  # the one beyond it is worse, so the end was the best
        (2.7e-2, [2.7e-2, 8.1e-2], 2.7e-2),
        (1.0, [2.7e-2, 8.1e-2], 8.1e-2),  # two and no more
        (1e-4, [3.33e-4, 1.11e-4], 1.11e-4),
    ],
)
def test_a_best_rate_at_an_end_is_followed_beyond_it(tmp_path, best, values, chosen):
    grid, records = read(tmp_path, EXTENDED), Records(tmp_path / "results")
    found = searched(grid, records, best)
    assert tried(found) == tried(found, 0.4) == [1e-3, 3e-3, 9e-3, *values]
    assert {cell.chosen[LR] for cell in found.cells} == {chosen}
    assert not found.open
    assert {run.system.get(LR) for run in found.pending} == {chosen}


def test_a_cell_waits_for_the_trial_beyond_the_end_and_others_do_not(tmp_path):
    grid, records = read(tmp_path, EXTENDED), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), GOOD, rate=0.15)
    search_with(records, plan(grid, "smoke"), {**GOOD, 9e-3: (1.0, 1.0)}, rate=0.4)
    found = plan(grid, "smoke", records=records)
    assert [bool(cell.chosen) for cell in found.cells] == [True, False]
    assert [(run.seed, run.system.get(LR)) for run in found.pending] == [
        (1000, 2.7e-2),
        (1001, 2.7e-2),
        (0, 3e-3),
        (1, 3e-3),
    ]
    assert "1 of 2 cells are still searching" in estimate.cost(found)


def test_a_trial_beyond_the_end_that_diverges_ends_the_search(tmp_path):
    grid, records = read(tmp_path, EXTENDED), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), {**GOOD, 9e-3: (1.0, 1.0)})
    search_with(records, plan(grid, "smoke", records=records), {**GOOD, 9e-3: (1.0, 1.0), 2.7e-2: (None, 0.5)})
    found = plan(grid, "smoke", records=records)
    assert {cell.chosen[LR] for cell in found.cells} == {9e-3}
    assert len(tried(found)) == 4


@given(
    optimum=st.integers(-30, 30),
    values=st.lists(st.integers(1, 50), min_size=2, max_size=4, unique=True),
    extend=st.integers(0, 6),
)
def test_the_steps_beyond_are_bounded_new_and_towards_the_optimum(optimum, values, extend):
    search = Search(axes={LR: tuple(1e-4 * value for value in values)}, metric="heldout.loss", extend=extend)
    goal, found = 2.0**optimum, combinations(search)

    def best():
        return min(range(len(found)), key=lambda n: abs(1 - goal / found[n][LR]) + abs(1 - found[n][LR] / goal))

    while (more := beyond(search, found, best())) is not None:
        rates = [one[LR] for one in found]
        assert more[LR] < min(rates) or more[LR] > max(rates)
        assert found[best()][LR] in (min(rates), max(rates))
        found.append(more)
    assert len(found) <= len(values) + extend
    assert len(found) == len(values) + extend or found[best()][LR] not in (
        min(f[LR] for f in found),
        max(f[LR] for f in found),
    )
    ends = [one[LR] for one in farthest(search)]
    assert not ends or all(min(ends) <= one[LR] <= max(ends) for one in found)


def test_of_two_knobs_one_goes_on_while_the_other_stays():
    search = Search(axes={LR: (1e-3, 2e-3), STEPS: (640, 1920)}, metric="sst2.accuracy", extend=3)
    found = combinations(search)
    found.append(beyond(search, found, 3) or {})
    assert found[-1] == {LR: 4e-3, STEPS: 1920}
    found.append(beyond(search, found, 3) or {})  # worse: now the number of steps is at an end
    assert found[-1] == {LR: 2e-3, STEPS: 5760}
    assert isinstance(found[-1][STEPS], int)
    assert beyond(search, found, 3) is None
    words = Search(axes={"model.positions": ("rotary", "learned")}, metric="heldout.loss", extend=3)
    assert beyond(words, combinations(words), 0) is None


@pytest.mark.parametrize(
    ("search", "where"),
    [
        (SEARCH.replace("seeds: 2", "seeds: 2\n  extend: -1"), "search.extend"),
        (EXTENDED + "  length: 0.5\n", "search.extend"),
        (EXTENDED.replace(f"{LR}: [1.0e-3, 3.0e-3, 9.0e-3]", "model.positions: [rotary, learned]"), "search.extend"),
        (EXTENDED.replace(f"{LR}: [1.0e-3, 3.0e-3, 9.0e-3]", "model.dropout: [0.1, 0.5]"), "search.extend"),
        (SEARCH.replace("[1.0e-3, 3.0e-3, 9.0e-3]", "[1.0e-3]"), "search.axes"),
    ],
)
def test_what_cannot_go_on_is_refused_with_its_place(tmp_path, search, where):
    with pytest.raises(ConfigError, match=naming(where)):
        read(tmp_path, search)
