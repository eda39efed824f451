import json
import re

import pytest

from ablations.core.formatting import markdown_text
from ablations.measurements.measurements import Measurements
from ablations.pages.lead import answer
from tests.unit.synthetic import (
    COUNTED,
    RATE,
    Kept,
    losses,
    make_cell,
    make_claim,
    make_grid,
    make_objectives,
    make_plan,
    make_record,
    make_study,
    publish_page,
)


def _means(grid, cells, records):
    return " ".join(answer.means(Measurements(grid, cells, records)))


def test_a_page_begins_with_the_headline_and_the_means_along_the_axis_are_among_its_details(tmp_path):
    grid, cells, records = make_study()
    publish_page(make_plan(grid, cells), records, tmp_path)
    _, told, picture, holds, *rest = (tmp_path / "README.md").read_text().split("\n\n")
    said = markdown_text(json.loads((tmp_path / "page.json").read_text())["headline"])
    assert told == f"**Answer:** {said}."
    assert picture.startswith(f"![{said}. ")
    assert f"{(system := cells[0].system).model.num_layers} layers of {system.model.hidden_size}" in holds
    assert "5 runs per cell" in holds
    assert system.data.corpora[0] in holds
    assert "Of 1 claim, 1 against." in rest
    measured = Measurements(grid, cells, records)
    means = {cell.values[RATE]: sum(measured.values(cell, "heldout.loss").values()) / 5 for cell in cells}
    pairs = re.findall(r"([\d.]+) ± [\d.]+ \((\d+) %\)", (tmp_path / "details.md").read_text())
    assert [(float(mean), int(rate)) for mean, rate in pairs] == [
        (pytest.approx(means[rate], abs=0.006), 100 * rate) for rate in sorted(means)
    ]


@pytest.mark.parametrize(("metric", "first"), [("heldout.loss", "4.0"), ("heldout.bleu", "5.0")])
def test_best_follows_the_direction_of_the_metric_and_the_baseline_is_named_once(monkeypatch, metric, first):
    monkeypatch.setattr(answer, "_MOST_MEANS", 1)
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4)]
    values = zip([run for cell in cells for run in cell.runs], (4.0, 4.01, 5.0, 5.01), strict=True)
    records = {run.id: make_record(run, 0.0, metrics={metric: value}) for run, value in values}
    metrics = [{"name": metric, "label": "loss"}]
    line = _means(make_grid(metrics=metrics, claims=[]), cells, records)
    assert line.partition("best ")[2].startswith(first)
    assert line.count("the baseline") == 1
    assert "; baseline" not in line


@pytest.mark.parametrize(("share", "said"), [(0.8, True), (0.995, False)])
def test_padding_is_no_text(share, said):
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4)]
    full = {"tokens": 10e6, "real_tokens": 10e6}
    records = losses(cells[0], [4.0, 4.1], cost=full | {"real_tokens": share * 10e6}) | losses(
        cells[1], [4.0, 4.1], cost=full
    )
    holds = answer.holds(Measurements(make_grid(), cells, records))
    assert ("tokens (8 M to 10 M without padding) of" in holds) == said
    assert ("padding" in holds) == said


def test_what_counting_reaches_on_the_same_words_stands_beside_the_best_cell(tmp_path):
    grid, cells, records = make_study()
    kept = Kept(records, tmp_path, cells, 1.734)
    line = _means(grid, cells, kept)
    assert "the best simple method has 1.234 (others)" in line
    assert f"No run is better than the {COUNTED}." in line
    assert "No run is better" not in _means(grid, cells, Kept(records, tmp_path / "other", cells, 9.0))
    for path in kept.bars:
        path.write_text("{")
    line = _means(grid, cells, kept)
    assert "others" not in line
    assert "No run is better" not in line


def test_the_strongest_simple_method_stands_beside_the_best_cell():
    grid, cells, records = make_objectives()
    line = _means(grid, cells, records)
    assert "pairs, SOP" in line.partition("worst")[0]
    assert "the best simple method has 0.550 (TF-IDF + logistic regression)" in line


def test_a_page_on_the_plateau_says_so():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4)]
    grid = make_grid(claims=[])
    flat = {"heldout.loss": 6.0, "heldout.plateau": 1.0}
    records = losses(cells[0], [6.0, 6.0], metrics=flat) | losses(cells[1], [6.0, 6.0], metrics=flat)
    assert "No run is better than the bigram baseline." in _means(grid, cells, records)
    one_above = records | losses(cells[1], [4.0, 4.0], metrics={"heldout.loss": 4.0, "heldout.plateau": 0.0})
    assert "No run is better" not in _means(grid, cells, one_above)


def test_a_page_whose_claims_wait_for_runs_says_that_there_is_no_answer_yet(tmp_path):
    grid, cells, records = make_study(claims=[make_claim(), make_claim(id="again")])
    publish_page(make_plan(grid, cells), dict([*records.items()][:2]), tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "**Answer:** None yet." in page
    assert "2 claims, none of them measured." in page
