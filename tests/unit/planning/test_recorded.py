"""A grid has records at a scale where a plan would find one of a cell's; no run is made to tell."""

import pytest

from ablations.core import machine
from ablations.core.store import Records
from ablations.planning.plan import plan
from ablations.planning.recorded import may_have, systems
from ablations.schema.record import Record
from tests.unit.planning.test_search import GOOD, put, read, search_with


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


def test_any_run_of_any_cell_counts_and_those_of_others_do_not(tmp_path):
    grid, records = read(tmp_path / "one", ""), Records(tmp_path / "results")
    other = read(tmp_path / "two", "", steps=13)
    assert not may_have(grid, "smoke", systems(records.snapshot()))
    put(records, plan(grid, "smoke").runs[-1], 4.0)
    known = systems(records.snapshot())
    assert may_have(grid, "smoke", known)
    assert not may_have(other, "smoke", known)


def test_evaluations_of_what_a_search_chose_count(tmp_path):
    grid, records = read(tmp_path), Records(tmp_path / "results")
    search_with(records, plan(grid, "smoke"), GOOD)
    evaluations = {run.id for cell in plan(grid, "smoke", records=records).cells for run in cell.runs}
    alone = Records(tmp_path / "alone")
    for run in plan(grid, "smoke", records=records).runs:
        if run.id in evaluations:
            put(alone, run, 4.0)
    assert may_have(grid, "smoke", systems(alone.snapshot()))


def test_a_record_whose_settings_nobody_can_read_may_be_of_any_grid(tmp_path):
    grid, records = read(tmp_path, ""), Records(tmp_path / "results")
    records.put(Record(id="0" * 16, kind="pretrain", config={"system": {"of": "a later version"}}, outcome="done"))
    assert may_have(grid, "smoke", systems(records.snapshot()))
