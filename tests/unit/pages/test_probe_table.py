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
