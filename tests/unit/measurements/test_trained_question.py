"""What a run scores on the question about pairs that it was trained on, by one name whatever the question is."""

import pytest

from ablations.measurements.measurements import Measurements
from ablations.measurements.references import references
from lightning_modules.systems import SYSTEMS
from tests.unit.synthetic import make_objectives

METRIC = "heldout.sentence_accuracy"
NEGATIVES = {"pairs, NSP": "random", "pairs, SOP": "swapped"}


@pytest.fixture(scope="module")
def measured():
    grid, cells, records = make_objectives()
    for place, cell in enumerate(cells):
        negatives = NEGATIVES.get(cell.values["objective"])
        change = {"format.negatives": negatives} if negatives else {"objectives.sentence": None}
        system = SYSTEMS["bert_base"].but(**change)
        cells[place] = cell.model_copy(update={"system": system})
        for run in cell.runs:
            score = {"heldout.nsp_accuracy": 0.8 + run.seed / 100, "heldout.nsp_majority": 0.51}
            records[run.id] = records[run.id].but(metrics=records[run.id].metrics | score)
    return Measurements(grid, cells, records)


def of(measured, objective):
    return next(cell for cell in measured.cells if cell.values["objective"] == objective)


def test_it_is_the_score_on_the_question_that_training_asks(measured):
    for objective, name in (("pairs, NSP", "heldout.nsp_accuracy"), ("pairs, SOP", "heldout.sop_accuracy")):
        cell = of(measured, objective)
        assert measured.values(cell, METRIC) == measured.values(cell, name)
        assert measured.values(cell, METRIC)


def test_a_run_without_such_an_objective_has_none(measured):
    for objective in ("pairs", "one segment"):
        assert measured.values(of(measured, objective), METRIC) == {}
    assert not [row for row in measured.rows if row.metric.startswith("heldout.sentence_") and row.task]


def test_it_has_the_majority_as_its_floor(measured):
    (floor,) = references(METRIC).values()
    assert set(measured.values(of(measured, "pairs, NSP"), floor).values()) == {0.51}
    assert set(measured.values(of(measured, "pairs, SOP"), floor).values()) == {0.5}
