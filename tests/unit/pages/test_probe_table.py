"""The table of probes: a row is a pretraining, whatever is done with it afterwards."""

from ablations.measurements.measurements import Measurements
from ablations.measurements.probe_metrics import GAIN, MEAN_GAIN, PREFIX
from ablations.pages import probe_table
from tests.unit.synthetic import RATE, make_cell, make_grid, make_record


def table(*cells):
    metrics = {f"{PREFIX}agreement": 0.7, f"{PREFIX}agreement{GAIN}": 0.2, MEAN_GAIN: 0.2}
    records = {run.id: make_record(run, 4.0, metrics=metrics) for cell in cells for run in cell.runs}
    reading, numbers, trace = probe_table.table(Measurements(make_grid(published=[]), cells, records))
    return reading, numbers, [entry["cell"] for entry in trace["probes"]]


def uses_of(rate):
    """Two cells that fine-tune one pretraining in two ways."""
    first = make_cell({RATE: rate, "start": "frozen"}, 2, label=f"{rate}, frozen")
    values = {RATE: rate, "start": "fine-tuned"}
    return first, first.model_copy(update={"values": values, "label": f"{rate}, fine-tuned"})


def test_cells_of_one_pretraining_are_one_row_named_by_what_they_share():
    reading, numbers, names = table(*uses_of(0.15), *uses_of(0.4))
    assert reading.headings[:3] == ["masking rate", "runs", "Agreement"]
    assert [row[0] for row in reading.rows[:2]] == ["15 %", "40 %"]
    assert names == [row[0] for row in numbers.rows] == ["masking rate 15 %", "masking rate 40 %"]


def test_where_all_cells_share_one_pretraining_no_cell_is_named():
    reading, numbers, names = table(*uses_of(0.15)[:1], uses_of(0.15)[1].model_copy(update={"values": {}}))
    assert reading.headings[:2] == ["pretraining", "runs"]
    assert names == [row[0] for row in numbers.rows] == ["all cells"]
    assert all(len(row) == len(reading.headings) for row in reading.rows)
    assert all(len(row) == len(numbers.headings) for row in numbers.rows)


def test_cells_with_pretrainings_of_their_own_keep_their_names():
    _, _, names = table(make_cell({RATE: 0.15}, 2, label="few"), make_cell({RATE: 0.4}, 2, label="many"))
    assert names == ["few", "many"]
