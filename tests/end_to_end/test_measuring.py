"""Pretrained language models are asked by a grid: from a file to records, tables and a verdict."""

import numpy as np
import pytest

from ablations.core.store import Records
from ablations.measurements.example_scores import scores
from ablations.measurements.measurements import Measurements
from ablations.pages import report, tables
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.pretraining import fit
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.training.callbacks import Interrupted
from lightning_modules.zero_shot.measure import measured
from lightning_modules.zero_shot.settings import Measurement

_GRID = """\
question: Does a longer training make text more probable?
base: roberta_base
set:
  objectives.mlm: null
  objectives.lm.direction: left_to_right
  model.direction: left_to_right
  format.kind: full_sentences
  format.break_mode: none
  data.corpora: ["{corpus}"]
  data.tokenizer.vocab_size: 300
  model.num_layers: 1
  model.hidden_size: 16
  model.num_heads: 2
  model.max_positions: 32
  format.sequence_length: 16
  optimizer.peak_lr: 1.0e-2
  training.batch_size: 4
  training.precision: fp32
  evaluation.sequences: 8
  evaluation.points: 2
axes:
  training.steps: [1, 60]
baseline: {{training.steps: 1}}
seeds: 2
measure: [heldout_text, cloze]
scales:
  smoke: {{description: seconds}}
metrics:
  - {{name: heldout_text.nats_per_byte}}
  - {{name: cloze.accuracy}}
claims:
  - id: longer
    statement: A longer training makes text more probable.
    metric: heldout_text.nats_per_byte
    a: {{training.steps: 60}}
    b: {{training.steps: 1}}
"""
_WORDS = ["the", "and", "river", "garden", "winter", "letter", "window", "stone", "slowly", "quiet", "Anna", "Bruno"]


@pytest.fixture
def asked(tmp_path):
    """A grid of two lengths, made."""
    noise = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(noise.choice(_WORDS, size=9)).capitalize() + "." for _ in range(60)) for _ in range(60)
    ]
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "corpus.txt").write_text("\n\n".join(documents))
    file = tmp_path / "asked.yaml"
    file.write_text(_GRID.format(corpus=f"text:{folder}/*.txt"))
    records = Records(tmp_path / "results")
    made = plan(grids.read(file), "smoke", records=records)
    summary = execute(made, records, "inline")
    assert not summary.problems
    return made, records


def test_a_grid_asks_its_models_and_judges_what_they_answer(asked, tmp_path):
    made, records = asked
    table = Measurements(made.grid, made.cells, records)
    for cell in made.cells:
        for run in cell.zero_shot:
            record = records.get(run.id)
            assert record.outcome == "done", record.detail
            assert record.kind == "measure"
            assert record.cost["tokens"] > 0
            assert record.cost["flops"] > 0
    baseline, longer = made.cells
    means = [np.mean(list(table.values(cell, "heldout_text.nats_per_byte").values())) for cell in made.cells]
    assert means[1] < means[0] - 0.05
    record = records.get(longer.zero_shot[0].id)
    by_text = unpack(record.examples["heldout_text.nats_per_byte"])
    mean = np.average(by_text, weights=unpack(record.examples["weight"]))
    assert mean == pytest.approx(record.metrics["heldout_text.nats_per_byte"], rel=2e-3)
    sides = [[run.id for run in cell.zero_shot if run.task == "heldout_text"] for cell in made.cells]
    found = scores(sides, "heldout_text.nats_per_byte", table)
    assert len(found) == 2, "the noise of the text is known"
    assert len(np.unique(found[0].documents)) > 1
    reading, _, _ = tables.results(table)
    rows = {row[0]: row for row in reading.rows}
    assert {"word frequencies", "bigram baseline", "chance", "most frequent option of the passage"} <= rows.keys()
    page = report.publish(made, table, tmp_path / "page")["README.md"].read_text()
    assert "longer training" in page
    assert baseline.label in str(made.table()["cell"].tolist())


def test_a_second_measurement_of_the_same_weights_gives_the_same_numbers(asked, tmp_path):
    made, records = asked
    run = made.cells[1].zero_shot[0]
    fit(run.system, run.seed, tmp_path / "again")
    weights = next((tmp_path / "again").glob("*.safetensors"))
    again = measured(run.system, run.task, run.measuring, weights)
    stored = records.get(run.id)
    name = "heldout_text.nats_per_byte"
    assert again.metrics[name] == pytest.approx(stored.metrics[name], rel=1e-4)
    assert again.cost["tokens"] == stored.cost["tokens"]
    with pytest.raises(Interrupted):
        measured(run.system, run.task, Measurement(), weights, stop=lambda: True)
