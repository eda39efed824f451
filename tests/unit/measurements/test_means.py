"""Rows that are means of the probabilities of two cells: their numbers, their verdicts, and what has no mean."""

import numpy as np
import pytest

from ablations.claims import judging
from ablations.measurements.mean_of_two import mean_of_two
from ablations.measurements.measurements import Measurements
from ablations.pages import mean_table
from lightning_modules.config import ConfigError
from lightning_modules.tasks.scores.kept import PROBABILITY, pack, packed_probabilities, unpack
from tests.unit.synthetic import make_cell, make_claim, make_grid, make_record

READER, BOTH, METRIC = "reader", "both, averaged", "sst2.accuracy"
LABELS = np.random.default_rng(0).integers(0, 2, 400)
MEAN = {"at": {READER: BOTH}, "of": [{READER: "forward"}, {READER: "backward"}]}


def tuned(run, draws, labels=LABELS, skill=1.0, **changes):
    """A fine-tuning whose log odds are right on average, with noise of its own."""
    odds = (2 * labels - 1) * skill + draws.normal(0, 1.5, len(labels))
    high = 1 / (1 + np.exp(-odds))
    answers = (high > 0.5).astype(int)
    kept = {"answer": pack(answers), "right": pack(answers == labels)}
    kept |= packed_probabilities(np.column_stack([1 - high, high]))
    metrics = {METRIC: float((answers == labels).mean()), f"{METRIC}.majority": 0.52, "sst2.dev_loss": 0.4}
    given = {"kind": "finetune", "metrics": metrics, "examples": kept, "curve": {}, "config": run.to_dict()}
    return make_record(run, 0.0, **given | changes)


@pytest.fixture
def study():
    draws = np.random.default_rng(1)
    cells = [make_cell({READER: name}, 4, task="sst2") for name in ("forward", "backward")]
    records = {}
    for cell in cells:
        for run, child in zip(cell.runs, cell.finetunings, strict=True):
            records |= {run.id: make_record(run, 4.6), child.id: tuned(child, draws)}
    claim = {"id": "both_help", "claim": "", "a": {READER: BOTH}, "b": {READER: "forward"}, "metric": METRIC}
    grid = make_grid(
        axes={READER: ["forward", "backward"]},
        variants={READER: {"forward": {}, "backward": {}}},
        baseline={READER: "forward"},
        tasks=["sst2"],
        means=[MEAN],
        published=[],
        figure=None,
        metrics=[{"name": METRIC, "label": "SST-2 accuracy"}],
        claims=[make_claim(**claim, published={})],
    )
    return grid, cells, records


def test_the_mean_answers_by_the_mean_probability_of_both_runs_of_a_seed(study):
    grid, cells, records = study
    measured = Measurements(grid, cells, records)
    (mean,) = measured.means
    for seed, row in measured.of(mean, METRIC).items():
        both = [records[cell.finetunings[seed].id] for cell in cells]
        high = np.mean([1 - unpack(record.examples[PROBABILITY]) / 65_535 for record in both], axis=0)
        assert row.value == pytest.approx(((high > 0.5) == LABELS).mean())
    assert set(measured.of(mean, METRIC)) == {0, 1, 2, 3}
    assert measured.of(mean, f"{METRIC}.majority")[0].value == 0.52
    assert not measured.of(mean, "heldout.loss"), "no run has read both ways"
    assert not measured.apart


def test_a_claim_about_the_mean_is_judged_seed_by_seed_with_the_noise_of_examples(study):
    grid, cells, records = study
    measured = Measurements(grid, cells, records)
    (verdict,) = judging.verdicts(measured)
    (mean,) = measured.means
    one, both = (measured.values(cell, METRIC) for cell in (cells[0], mean))
    differences = [both[seed] - one[seed] for seed in both]
    assert verdict.raw.mean == pytest.approx(np.mean(differences))
    assert verdict.outcome == "as claimed"
    assert verdict.example_error


def test_what_a_claim_needs_of_both_cells_has_to_be_finished(study):
    grid, cells, records = study
    del records[cells[1].finetunings[2].id]
    (verdict,) = judging.verdicts(Measurements(grid, cells, records))
    assert verdict.n == 3
    assert "have not ended" in " ".join(verdict.notes)


def test_the_page_marks_the_row_as_computed_and_has_each_seed(study):
    grid, cells, records = study
    reading, everything, trace = mean_table.sheets(Measurements(grid, cells, records))
    (row,) = [dict(zip(everything.headings, row, strict=True)) for row in everything.rows]
    assert row["done"] == row["planned"] == 4
    assert row["mean"] == pytest.approx(np.mean([row[f"seed {seed}"] for seed in range(4)]))
    assert row["minus the first low"] < row["minus the first"] < row["minus the first high"]
    assert BOTH in reading.rows[0]
    assert "No run has these values" in reading.notes[0]
    first, second = (cell.finetunings[0].id for cell in cells)
    assert trace["means"][0]["runs"]["0"] == f"{first} and {second}"


def test_records_without_probabilities_have_no_mean_and_the_page_says_so(study):
    grid, cells, records = study
    bare = records[cells[0].finetunings[1].id]
    kept = {name: text for name, text in bare.examples.items() if name != PROBABILITY}
    records[bare.id] = bare.model_copy(update={"examples": kept})
    reading, *_ = mean_table.sheets(Measurements(grid, cells, records))
    assert "3 of 4" in reading.rows[0]
    assert bare.id in reading.notes[1]
    assert "seed 1" in reading.notes[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": 1 - LABELS}, "different examples of sst2"),
        ({"labels": LABELS[:300]}, "different examples of sst2"),
        ({"config": {"task": "cola"}}, "sst2 and cola"),
    ],
    ids=["other labels", "fewer examples", "another task"],
)
def test_two_runs_of_other_examples_or_tasks_are_refused_by_name(study, change, words):
    _, cells, _ = study
    a, b = (cell.finetunings[0] for cell in cells)
    one, other = tuned(a, np.random.default_rng(2)), tuned(b, np.random.default_rng(3), **change)
    with pytest.raises(ConfigError, match=words) as told:
        mean_of_two(one, other, "sst2")
    assert a.id in str(told.value)
    assert b.id in str(told.value)
