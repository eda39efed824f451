"""The table of measurements says what the records say, read directly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablations.measurements.derived import DERIVED
from ablations.measurements.measurements import Measurements, on_plateau
from ablations.measurements.sides import comparable
from ablations.schema.metrics import PLATEAU
from ablations.schema.record import Record
from tests.unit.synthetic import (
    RATE,
    losses,
    make_cell,
    make_failure,
    make_grid,
    make_objectives,
    make_record,
    make_study,
)

UNITS = "objectives.mlm.masking.units.kind"
SIDES = make_cell({RATE: 0.15}, 6), make_cell({RATE: 0.4}, 6)


@pytest.mark.parametrize("study", [make_study, make_objectives])
def test_values_are_those_of_the_records(study):
    grid, cells, records = study()
    records[cells[1].runs[0].id] = make_failure(cells[1].runs[0])
    del records[cells[2].runs[1].id]
    found = Measurements(grid, cells, records)
    names = {name for record in records.values() for name in record.metrics}
    for cell in cells:
        for name in names - DERIVED.keys():
            task = name.partition(".")[0]
            runs = [run for run in cell.finetunings if run.task == task] or cell.runs
            known = {run.seed: records[run.id] for run in runs if run.id in records}
            direct = {s: r.metrics[name] for s, r in known.items() if r.outcome == "done" and name in r.metrics}
            assert found.values(cell, name) == direct
            assert {seed: row.run for seed, row in found.of(cell, name).items()} == {s: known[s].id for s in direct}
        pretrained = {run.seed: records.get(run.id) for run in cell.runs}
        costs = {s: r.cost["flops"] for s, r in pretrained.items() if r is not None and r.outcome == "done"}
        assert found.values(cell, "cost.flops") == costs


def test_there_is_a_row_a_run_and_metric_with_runs_that_failed():
    grid, cells, records = make_study()
    failed = cells[0].runs[0]
    records[failed.id] = make_failure(failed)
    rows = Measurements(grid, cells, records).rows
    direct = sum(len(record.metrics) + len(record.cost) for record in records.values())
    assert len({(row.cell, row.run, row.metric) for row in rows}) == len(rows) == direct
    assert {row.outcome for row in rows if row.run == failed.id} <= {"diverged"}


@st.composite
def sides(draw):
    """Two cells whose runs finished or not, on one device or another, on the plateau or off it."""
    records = {}
    for cell in SIDES:
        for id, record in losses(cell, [4.0 + run.seed for run in cell.runs]).items():
            if draw(st.booleans()):
                metrics = {**record.metrics, PLATEAU: draw(st.booleans())}
                device = {"device": draw(st.sampled_from(["cpu", "gpu"]))}
                records[id] = record.but(metrics=metrics, provenance=device)
    return records


@given(sides())
def test_every_device_class_adds_the_same_runs_to_both_sides(records: dict[str, Record]):
    found = Measurements(make_grid(), SIDES, records)
    compared = comparable([found.of(cell, "heldout.loss") for cell in SIDES])
    of = [{run.seed: records[run.id] for run in cell.runs if run.id in records} for cell in SIDES]
    classes = {side[seed].provenance["device"] for side, kept in zip(of, compared.sides, strict=True) for seed in kept}
    if len(classes) > 1:
        assert list(compared.sides[0]) == list(compared.sides[1])
    for seed in compared.sides[0].keys() & compared.sides[1].keys():
        assert of[0][seed].provenance == of[1][seed].provenance
    assert all(side.keys() == kept.keys() | set(compared.apart) & side.keys()
               for side, kept in zip(of, compared.sides, strict=True))  # fmt: skip
    assert compared.runs == tuple(tuple(of[n][seed].id for seed in side) for n, side in enumerate(compared.sides))
    flags = [[of[n][seed].metrics[PLATEAU] for seed in side] for n, side in enumerate(compared.sides)]
    assert compared.floor == tuple(bool(side) and sum(side) >= len(side) / 2 for side in flags)
    costs = comparable([found.of(cell, "cost.seconds") for cell in SIDES])
    assert costs.floor == (False, False)


def test_nobody_can_tell_by_single_pieces_whether_a_model_of_words_is_on_the_plateau():
    pieces = make_cell({RATE: 0.15})
    words = pieces.model_copy(update={"system": pieces.system.but(**{UNITS: "whole_words"})})
    flat, off = (make_record(pieces.runs[0], 4.0, metrics={PLATEAU: answer}) for answer in (True, False))
    assert [on_plateau(pieces, record) for record in (flat, off)] == [True, False]
    assert [on_plateau(words, record) for record in (flat, off)] == [None, False]
