import csv
import json
import math
import re

import pytest

from ablations.core.estimates import linear
from ablations.core.formatting import difference_text
from ablations.core.moderation import moderated
from ablations.measurements import summaries
from ablations.measurements.measurements import Measurements
from ablations.measurements.summaries import summary
from ablations.pages import tables
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from lightning_modules.zero_shot.settings import Measurement
from tests.unit.synthetic import (
    COUNTED,
    EFFECTS,
    LAYERS,
    RATE,
    Kept,
    losses,
    make_cell,
    make_depths,
    make_failure,
    make_grid,
    make_objectives,
    make_record,
    make_study,
)


def rows_of(grid, cells, records):
    reading, _, _ = tables.results(Measurements(grid, cells, records))
    return [dict(zip(reading.headings, row, strict=True)) for row in reading.rows]


def test_one_row_a_cell_with_measured_and_published_columns_apart():
    *rows, simple = rows_of(*make_study())
    assert [row["masking rate"] for row in rows] == ["5 %", "15 %", "30 %", "40 %", "80 %"]
    assert simple["masking rate"] == "bigram baseline"
    assert simple["held-out loss (nats)"] == "6.210"
    assert [row["published: MNLI dev (%)"] for row in rows] == ["–", "84.2", "84.2", "84.5", "80.8"]
    assert rows[1]["minus baseline"] == "baseline"
    assert rows[3]["held-out loss (nats)"].startswith("4.7")
    assert rows[3]["minus baseline"].startswith("+0.1")
    assert {row["runs"] for row in rows} == {"5 of 5"}
    assert rows[0]["parameters"] == "5.12 M"
    assert "not done" not in rows[0]
    assert "on the plateau" not in rows[0]


BAR = "wikitext2.nats_per_byte.bigram"


def asked_of_text(frame, **scores):
    """Two cells of a language model, of which a text was asked; the models have 1.5 nats a byte."""
    cells, records = [], {}
    start = SYSTEMS["gpt"].but(**{"format.frame": frame})
    for layers in (2, 4):
        cell = make_cell({LAYERS: layers}, 2)
        asked = tuple(Run.measuring_of(run, "wikitext2", "text", Measurement()) for run in cell.runs)
        cells.append(cell.model_copy(update={"system": start, "zero_shot": asked}))
        metrics = {"wikitext2.nats_per_byte": 1.5, **scores}
        records |= {run.id: make_record(run, 0.0, kind="measure", metrics=metrics, curve={}) for run in asked}
    metrics = [{"name": "wikitext2.nats_per_byte"}]
    grid = make_grid(axes={LAYERS: [2, 4]}, baseline={LAYERS: 2}, published=[], metrics=metrics, claims=[],
                     figure={"x": LAYERS, "y": "wikitext2.nats_per_byte"}, measure=["wikitext2"])  # fmt: skip
    return Measurements(grid, cells, records)


@pytest.mark.parametrize(
    ("frame", "scores", "shown", "is_said"),
    [
        ("none", {BAR: 1.6054, f"{BAR}_same_tokens": 1.6019}, "1.602", False),
        ("none", {BAR: 1.6054}, "1.605", True),
        ("document_ends", {BAR: 1.6054}, "1.605", False),
    ],
)
def test_counted_words_stand_beside_models_on_the_same_tokens(frame, scores, shown, is_said):
    """The page says so where a record has only the score that counts the first token too."""
    measured = asked_of_text(frame, **scores)
    reading, _, _ = tables.results(measured)
    (row,) = (row for row in reading.rows if row[0] == "bigram baseline")
    assert row[reading.headings.index("wikitext2.nats_per_byte")] == shown
    assert any("first token" in note for note in reading.notes) == is_said
    assert [round(found.value, 3) for found in measured.of(measured.cells[0], BAR).values()] == [float(shown)] * 2


def test_differences_pool_the_noise_of_all_cells():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.3, 0.4, 0.8)]
    records = {}
    for n, cell in enumerate(cells):
        records |= losses(cell, [4.0 + n / 10, 4.02 + n / 10])  # all vary alike
    row = rows_of(make_grid(), cells, records)[1]
    assert row["held-out loss (nats)"] == "4.11 ± 0.13"
    samples = {cell.label: [4.0 + n / 10, 4.02 + n / 10] for n, cell in enumerate(cells)}
    labels = [cell.label for cell in cells]
    interval = linear([(labels[1], 1), (labels[0], -1)], samples, moderated(samples).variances).interval()
    assert row["minus baseline"] == difference_text(interval)


def test_what_did_not_finish_is_shown_and_not_averaged():
    grid, cells, records = make_study()
    for run, outcome in zip(cells[3].runs, ("diverged", "diverged", "oom"), strict=False):
        records[run.id] = make_failure(run, outcome)
    del records[cells[4].runs[0].id]
    rows = rows_of(grid, cells, records)
    assert rows[3]["runs"] == "2 of 5"
    assert rows[3]["not done"] == "2 diverged (loss is NaN at step 312), 1 oom (loss is NaN at step 312)"
    assert rows[4]["not done"] == "1 not run"
    kept = [records[run.id].metrics["heldout.loss"] for run in cells[3].runs[3:]]
    assert summary(Measurements(grid, cells, records))["heldout.loss mean"][3] == pytest.approx(sum(kept) / 2)


def test_counts_of_as_much_text_as_a_run_has_read(tmp_path):
    grid, cells, records = make_study()
    values = sorted(record.metrics["heldout.loss"] for record in records.values())
    nats = (values[2] + values[3]) / 2 - 0.125  # half of a doubling before the end it is 0.125 higher
    records = {id: record.but(cost={"tokens": 50_000 * 2**0.5}) for id, record in records.items()}
    reading, _, _ = tables.results(Measurements(grid, cells, Kept(records, tmp_path, cells, nats)))
    found = [
        match for note in reading.notes if (match := re.search(r"read \(([^)]*)\): ([\d.]+)\. (\d) of 5 runs", note))
    ]
    assert {match[1] for match in found} == {"70.7 k"}
    assert {match[2] for match in found} == {f"{nats + 0.125:.3f}"}
    assert (len(found), sum(int(match[3]) for match in found)) == (len(cells), 3)


def test_runs_that_counting_beats_are_at_the_floor(tmp_path):
    grid, cells, records = make_study()
    values = sorted(records[run.id].metrics["heldout.loss"] for run in cells[0].runs)
    kept = Kept(records, tmp_path, cells, (values[2] + values[3]) / 2)
    rows = rows_of(grid, cells, kept)
    place = sorted(cell.values[RATE] for cell in cells).index(cells[0].values[RATE])
    assert rows[place]["at the floor"] == "2 of 5"
    shown = [row["held-out loss (nats)"] for row in rows if row["masking rate"] in (COUNTED, "others")]
    assert shown == [f"{(values[2] + values[3]) / 2:.3f}", f"{(values[2] + values[3]) / 2 - 0.5:.3f}"]
    above = rows_of(grid, cells, Kept(records, tmp_path / "other", cells, 9.0))
    assert "at the floor" not in above[0]
    assert summary(Measurements(grid, cells, kept))["floor"][0] == 2


def test_a_missing_metric_is_missing_for_that_seed_only():
    grid, cells, records = make_study()
    run = cells[3].runs[2]
    metrics = {k: v for k, v in records[run.id].metrics.items() if k != "heldout.accuracy"}
    records[run.id] = make_record(run, 4.7, metrics=metrics)
    row = summary(Measurements(grid, cells, records)).iloc[3]
    assert (row["heldout.loss n"], row["heldout.accuracy n"], row["heldout.accuracy difference n"]) == (5, 4, 4)


def test_each_cell_is_compared_with_its_own_baseline():
    cells = [make_cell({RATE: rate, LAYERS: n}, 2) for rate in (0.15, 0.4) for n in (2, 4)]
    grid = make_grid(axes={RATE: [0.15, 0.4], LAYERS: [2, 4]}, published=[])
    records = {}
    for cell, shift in zip(cells, (0.0, 1.0, 0.25, 1.5), strict=True):
        records |= losses(cell, [4 + shift, 4.02 + shift])
    shown = [row["minus baseline"] for row in rows_of(grid, cells, records)[2:4]]
    assert [float(text.partition(" ")[0]) for text in shown] == [0.25, 0.5]


def test_an_ambiguous_join_is_refused():
    grid, cells, records = make_study(published=[{"file": "mask15", "match": {"rate": RATE}}])
    with pytest.raises(ConfigError, match="both give MNLI"):
        tables.results(Measurements(grid, cells, records))


def test_every_number_names_its_runs(tmp_path):
    grid, cells, records = make_study()
    del records[cells[3].runs[1].id]
    paths = tables.write(tmp_path, "table", tables.results(Measurements(grid, cells, records)))
    traced = json.loads(paths["json"].read_text())["cells"][3]
    ids = [run.id for i, run in enumerate(cells[3].runs) if i != 1]
    assert traced["metrics"]["heldout.loss"]["runs"] == ids
    assert traced["metrics"]["heldout.loss"]["compared"][0] == ids
    assert traced["published"]["MNLI"]["value"] == "84.5"


def test_the_csv_has_the_numbers_themselves(tmp_path):
    grid, cells, records = make_study()
    paths = tables.write(tmp_path, "table", tables.results(Measurements(grid, cells, records)))
    with paths["csv"].open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    expected = summary(Measurements(grid, cells, records))
    assert [float(row[RATE]) for row in rows] == list(EFFECTS)
    for name in ("heldout.loss mean", "heldout.loss low", "heldout.accuracy mean"):
        assert [float(row[name]) for row in rows] == pytest.approx(list(expected[name]), rel=1e-7)
    assert rows[3]["published MNLI"] == "84.5"


def curve(tokens, values):
    return {"curve": {"tokens": tokens, "heldout.loss": values}}


def test_tokens_to_reach_a_loss_are_read_off_the_curve():
    cells = [make_cell({RATE: 0.15}, 2), make_cell({RATE: 0.4}, 2)]
    records = {
        cells[0].runs[0].id: make_record(cells[0].runs[0], 4.0, **curve([0, 100, 10_000], [9.0, 6.0, 4.0])),
        cells[0].runs[1].id: make_record(cells[0].runs[1], 4.0, **curve([100, 1000, 2000], [6.0, 5.0, 5.5])),
        cells[1].runs[0].id: make_record(cells[1].runs[0], 4.0, **curve([100, 200], [4.9, 4.8])),
        cells[1].runs[1].id: make_record(cells[1].runs[1], 4.0, **curve([100, 200], [6.0, 5.5])),
    }
    found = tables.tokens_to_reach(Measurements(make_grid(), cells, records), 5.0)
    assert found["mean"][0] == pytest.approx(1000.0)  # half way down in the logarithm, and a point on the curve
    assert list(found["reached"]) == [2, 1]
    assert list(found["done"]) == [2, 2]
    assert math.isnan(found["mean"][1])  # one run never got there


# --- tasks, simple methods, stand-ins


def test_simple_methods_stand_below_the_cells_with_a_range_where_texts_differ():
    *rows, majority, overlap, words = rows_of(*make_objectives())
    assert [row["objective"] for row in rows] == ["one segment", "pairs", "pairs, NSP", "pairs, SOP"]
    assert majority["objective"] == "majority class"
    assert (majority["accuracy on swapped pairs"], majority["RTE accuracy"]) == ("0.500", "0.527")
    assert words["objective"] == "TF-IDF + logistic regression"
    assert (words["accuracy on swapped pairs"], words["RTE accuracy"]) == ("0.550", "–")  # nothing of it for RTE
    low, _, high = overlap["accuracy on swapped pairs"].partition(" to ")  # it differs from cell to cell
    assert float(low) < float(high)
    assert rows[0]["accuracy on swapped pairs"] == rows[1]["accuracy on swapped pairs"] == "–"  # no head, no answer
    assert rows[3]["accuracy on swapped pairs"].startswith("0.70")
    grid, cells, records = make_objectives()
    run = cells[0].finetunings[0]
    records[run.id] = make_record(run, 0.0, metrics=records[run.id].metrics | {"rte.accuracy.majority": 0.6})
    majority = rows_of(grid, cells, records)[4]
    assert (majority["accuracy on swapped pairs"], majority["RTE accuracy"]) == ("0.500", "0.527 to 0.600")


def test_scores_of_a_task_are_those_of_its_fine_tunings():
    grid, cells, records = make_objectives()
    del records[cells[3].finetunings[0].id]
    records[cells[3].finetunings[1].id] = make_failure(cells[3].finetunings[1])
    row = rows_of(grid, cells, records)[3]
    assert row["runs"] == "5 of 5"  # its pretrainings
    assert row["not done"] == "1 diverged on rte (loss is NaN at step 312), 1 not run on rte"
    _, everything, trace = tables.results(Measurements(grid, cells, records))
    numbers = dict(zip(everything.headings, everything.rows[3], strict=True))
    assert (numbers["rte.accuracy n"], numbers["heldout.sop_accuracy n"]) == (3, 5)
    assert trace["cells"][3]["metrics"]["rte.accuracy"]["runs"] == tuple(run.id for run in cells[3].finetunings[2:])
    runs = summaries.runs(Measurements(grid, cells, records))
    assert len(runs) == 20
    last = runs[runs["objective"] == "pairs, SOP"]
    assert last["rte.accuracy"].isna().sum() == 2
    assert last["rte.accuracy"].mean() == pytest.approx(numbers["rte.accuracy mean"])


def test_published_values_stand_beside_their_stand_ins():
    grid, cells, records = make_depths()
    rows = rows_of(grid, cells, records)
    table = {(row["num_layers"], row["layers"]): row for row in rows[:6]}
    perplexity, average = (name for name in rows[0] if name.startswith("published"))
    assert [table[n, "own"][perplexity] for n in "124"] == ["5.84", "4.68", "3.99"]
    assert [table[n, "shared"][average] for n in "124"] == ["71.2", "77.2", "81.5"]  # of 3, 6 and 12 layers
    assert {table[n, "own"][average] for n in "124"} == {"–"}
    assert [table[n, "own"]["minus baseline"] == "baseline" for n in "124"] == [False, True, False]
    assert table["4", "own"]["minus baseline"].startswith("-0.2")
    assert table["4", "shared"]["minus baseline"].startswith("-0.2")
    assert "(num_layers 2) with its 95 %" in " ".join(tables.results(Measurements(grid, cells, records))[0].notes)
