"""Rates of what has not run are searched at full length, at two rates or more, and beyond an end where the best lies.

What has run keeps its search: `extend: 0` says so at its scale, and records show that the choices were made.
"""

import pytest

from ablations.core.store import Records
from ablations.planning import filling, grids
from ablations.planning.plan import plan
from ablations.planning.scale_files import available
from ablations.planning.search import combinations, search_at
from lightning_modules.config import ConfigError
from lightning_modules.places import results
from tests.every import every

PUBLISHED = {("batch_size", "paper")}  # the rates are the paper's


def searching():
    read = {name: grids.read(name) for name in grids.available()}
    return [
        (name, scale)
        for name, grid in read.items()
        for scale, entry in grid.scales.items()
        if search_at(grid, scale) and entry
    ]


@pytest.fixture(scope="module")
def records():
    return Records(results()).snapshot()


@every("name, scale", searching)
def test_a_search_is_of_full_length_and_extended_unless_it_has_run(name, scale, records):
    grid = grids.read(name)
    search = search_at(grid, scale)
    assert search
    assert len(combinations(search)) >= 2
    if not search.extend and (name, scale) not in PUBLISHED:
        assert not plan(grid, scale, records=records).open, "an old search is kept where it has ended, and nowhere else"
    elif search.extend:
        assert search.length == 1


def test_a_scale_that_is_like_one_that_has_run_searches_as_new_ones_do():
    grid = grids.read("model_depth")
    like = [name for name in available() if name not in grid.scales]
    found = {}
    for name in like:
        try:
            found[name] = search_at(filling.at(grid, name), name)
        except ConfigError:
            continue
    assert "laptop-wide" in found
    assert all(search is None or (search.extend and search.length == 1) for search in found.values())
