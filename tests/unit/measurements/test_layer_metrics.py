"""Metrics from layer statistics: what they are, and that tables and claims find them in records that lack them."""

import pytest

from ablations.measurements.layer_metrics import change, last, mean
from ablations.measurements.measurements import Measurements
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.schema.record import Record

GRID = grids.read("layer_similarity")


def planned(angles):
    """The cells of the grid at smoke scale, and made-up records: ``{kind: angles of each layer}``."""
    cells = plan(GRID, "smoke").cells
    records = {}
    for cell in cells:
        for run in cell.runs:
            layers = {"angle": [a + 0.1 * run.seed for a in angles[cell.values["layers"]]]}
            layers["distance"] = [a / 2 + 0.01 * run.seed for a in layers["angle"]]
            metrics = {"heldout.loss": 3.0, "heldout.plateau": False}
            records[run.id] = Record(
                id=run.id, kind="pretrain", config=run.to_dict(), outcome="done", metrics=metrics, layers=layers
            )
    return cells, records


def test_summaries_by_hand():
    assert mean([30.0, 10.0]) == 20.0
    assert change([30.0, 10.0, 15.0]) == 12.5
    assert last([30.0, 10.0]) == 10.0


@pytest.mark.parametrize(("summary", "values"), [(mean, []), (change, []), (change, [3.0]), (last, [])])
def test_without_enough_layers_there_is_no_number(summary, values):
    assert summary(values) is None


def test_metrics_come_from_statistics_that_the_record_keeps():
    cells, records = planned({"own": [40.0, 20.0, 38.0], "shared": [20.0, 18.0, 16.0]})
    (own, shared) = cells
    assert Measurements(GRID, cells, records).values(shared, "layers.angle") == pytest.approx({0: 18.0, 1: 18.1})
    assert Measurements(GRID, cells, records).values(own, "layers.angle_change")[0] == pytest.approx(19.0)


def test_runs_without_statistics_are_left_out():
    cells, records = planned({"own": [40.0, 20.0, 38.0], "shared": [20.0, 18.0, 16.0]})
    bare = {id: record.but(layers={}) for id, record in records.items()}
    assert Measurements(GRID, cells, bare).values(cells[0], "layers.angle") == {}
    one_failed = records | {cells[0].runs[0].id: records[cells[0].runs[0].id].but(outcome="failed")}
    assert list(Measurements(GRID, cells, one_failed).values(cells[0], "layers.angle")) == [1]
