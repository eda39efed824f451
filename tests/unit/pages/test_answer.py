import pytest

from ablations.claims import judging
from ablations.measurements.measurements import Measurements
from ablations.pages import answer
from tests.unit.synthetic import (
    RATE,
    losses,
    make_cell,
    make_grid,
    make_objectives,
    make_plan,
    make_study,
    publish_page,
)


def _lead(grid, cells, records):
    measured = Measurements(grid, cells, records)
    return answer.lead(measured, judging.verdicts(measured))


def test_a_page_begins_with_what_became_of_the_claims_and_with_the_best_cell(tmp_path):
    grid, cells, records = make_study()
    publish_page(make_plan(grid, cells), records, tmp_path)
    title, told, line = (tmp_path / "README.md").read_text().split("\n\n")[:3]
    assert title.startswith("# ")
    assert "of 1 claim, 1 contradicts" in told
    measured = Measurements(grid, cells, records)
    means = {cell.values[RATE]: sum(measured.values(cell, "heldout.loss").values()) / 5 for cell in cells}
    best, worst = min(means, key=means.get), max(means, key=means.get)
    assert f"best {means[best]:.3f}" in line
    assert f"({100 * best:g} %" in line.replace("masking rate ", "").partition("best")[2]
    assert f"worst {means[worst]:.2f}" in line
    assert line.index("best") < line.index("worst")


@pytest.mark.parametrize(("better", "first"), [("lower", "4.0"), ("higher", "5.0")])
def test_best_follows_the_direction_of_the_metric_and_the_baseline_is_named_once(better, first):
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4)]
    records = losses(cells[0], [4.0, 4.01]) | losses(cells[1], [5.0, 5.01])
    metrics = [{"name": "heldout.loss", "better": better, "label": "loss"}]
    line = _lead(make_grid(metrics=metrics, claims=[]), cells, records)
    assert line.partition("best ")[2].startswith(first)
    assert line.count("the baseline") == 1
    assert "; baseline" not in line


def test_decided_claims_are_answered_in_words_and_the_answer_says_what_it_holds_for(tmp_path):
    grid, cells, records = make_study()
    (verdict,) = judging.verdicts(Measurements(grid, cells, records))
    publish_page(make_plan(grid, cells), records, tmp_path)
    line, holds = (tmp_path / "README.md").read_text().split("\n\n")[2:4]
    assert f"**No.** *{verdict.claim.statement}* " in line
    assert f"by {abs(verdict.effect):.3f} nats [" in line
    system = cells[0].system
    assert f"{system.model.num_layers} layers of {system.model.hidden_size}" in holds
    assert "5 runs a cell" in holds
    assert system.data.corpora[0] in holds


def test_the_strongest_simple_method_stands_beside_the_best_cell():
    grid, cells, records = make_objectives()
    line = _lead(grid, cells, records)
    assert "pairs, SOP" in line.partition("worst")[0]
    assert "to beat 0.550 (TF-IDF + logistic regression)" in line


def test_a_page_on_the_plateau_says_so():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4)]
    grid = make_grid(claims=[])
    flat = {"heldout.loss": 6.0, "heldout.plateau": 1.0}
    records = losses(cells[0], [6.0, 6.0], metrics=flat) | losses(cells[1], [6.0, 6.0], metrics=flat)
    assert "No run is better than the bigram baseline." in _lead(grid, cells, records)
    one_above = records | losses(cells[1], [4.0, 4.0], metrics={"heldout.loss": 4.0, "heldout.plateau": 0.0})
    assert "No run is better" not in _lead(grid, cells, one_above)


def test_models_of_pairs_are_not_told_of_the_plateau_of_running_text():
    grid, cells, records = make_objectives()
    for record in records.values():
        record.metrics["heldout.plateau"] = 1.0
    assert "No run is better than the bigram baseline." not in _lead(grid, cells, records)


def test_nothing_to_compare_is_no_answer():
    grid, cells, _ = make_study(claims=[])
    assert _lead(grid, cells, {}) == ""
    assert _lead(grid, cells, losses(cells[0], [4.0, 4.1])) == ""


def test_a_cell_with_one_seed_is_neither_best_nor_worst():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4, 0.6)]
    records = losses(cells[0], [5.0, 5.1]) | losses(cells[1], [6.0, 6.1]) | losses(cells[2], [1.0])
    line = _lead(make_grid(claims=[]), cells, records)
    assert line.partition("best ")[2].startswith("5.")
    assert "1.0" not in line.partition("to beat")[0]
