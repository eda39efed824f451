"""The saving in labels on the page of `few_labels`, and what is refused of it."""

import pytest

from ablations.measurements.measurements import Measurements
from ablations.pages import saving_table
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
from tests import tiny
from tests.unit.synthetic import make_record

METRIC = "imdb_test_5k.accuracy"
SCORES = {"from scratch": {"100": 0.6, "1000": 0.7, "all": 0.85}, "ULMFiT": {"100": 0.775, "1000": 0.86}}


@pytest.fixture(scope="module")
def study():
    grid = grids.read("few_labels")
    grid = grid.model_copy(update={"search": None})
    return plan(grid, "laptop", seeds=2)


def made(found, scores):
    records = {}
    for cell in found.cells:
        value = scores.get(cell.values["start"], {}).get(cell.values["labels"])
        for run in cell.finetunings if value else ():
            metrics = {METRIC: value + 0.001 * run.seed}
            records[run.id] = make_record(run, 0.0, kind="finetune", metrics=metrics, curve={})
    return Measurements(found.grid, found.cells, records)


def test_each_number_of_labels_has_its_saving(study):
    reading, everything, trace = saving_table.sheets(made(study, SCORES))
    few, many = [dict(zip(everything.headings, row, strict=True)) for row in everything.rows]
    assert (few["labels"], few["a"], few["b"], few["seeds"]) == (100, "ULMFiT", "from scratch", 2)
    whole = few["curve to"]
    assert 10_000 < whole <= 25_000
    assert few["times"] == pytest.approx(10 * (whole / 1_000) ** 0.5, rel=1e-6)
    assert many["times"] == "beyond the most"
    assert "more than" in reading.rows[1][4]
    assert len(trace["savings"][0]["runs"]) == 2 * 4


def test_without_a_curve_there_is_no_saving(study):
    assert saving_table.sheets(made(study, {"ULMFiT": SCORES["ULMFiT"]})) is None
    assert saving_table.sheets(made(study, {**SCORES, "from scratch": {"100": 0.6}})) is None


@pytest.mark.parametrize(
    ("saving", "words"),
    [
        ("{a: {RATE: 0.15}, b: {RATE: 0.4}, metric: sst2.accuracy}", ["savings", "finetuning.train_examples"]),
        ("{a: {RATE: 0.15}, b: {RATE: 0.15}, metric: sst2.accuracy}", ["savings.0", "the same side"]),
        ("{a: {RATE: 0.15}, b: {RATE: 0.5}, metric: sst2.accuracy}", ["savings.0.b", "no cell of any scale"]),
        ("{a: {RATE: 0.15}, b: {RATE: 0.4}, metric: heldout.loss}", ["savings.0.metric", "no score of a task"]),
        ("{a: {RATE: 0.15}, b: {RATE: 0.4}, metric: sst2.acuracy}", ["savings.0.metric", "sst2.accuracy"]),
        ("{a: {start: 0.15}, b: {RATE: 0.4}, metric: sst2.accuracy}", ["savings.0.a.start", "not an axis"]),
    ],
    ids=["no numbers of labels", "one side", "no cell", "no score", "misspelt", "no axis"],
)
def test_what_has_no_saving_is_refused_by_name(tmp_path, saving, words):
    lines = ["  - {name: sst2.accuracy}", "tasks: [sst2]", f"savings: [{saving}]"]
    file = tiny.grid(tmp_path, extra="\n".join(lines).replace("RATE", "objectives.mlm.masking.rate") + "\n")
    with pytest.raises(ConfigError) as told:
        grids.read(file)
    assert all(word in str(told.value) for word in words)
