"""Held-out losses by sequence: kept beside a record, and the mean of them is the record's loss."""

from types import SimpleNamespace

import numpy as np
import pytest

from ablations.study import Study
from lightning_modules.data.formats.text import RunningText
from lightning_modules.measures.by_sequence import documents_of
from lightning_modules.tasks.scores.kept import unpack
from tests import tiny


@pytest.fixture
def tiny_grid(tmp_path):
    return tiny.grid(tmp_path, rates="[0.4]", steps=4, seeds=1).rename(tmp_path / "sums.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("knobs", "names"),
    [
        ({}, {"loss"}),
        ({"objectives.mlm": None, "objectives.lm": {}, "model.direction": "left_to_right"}, {"next_loss"}),
    ],
    ids=["masked", "left to right"],
)
def test_the_losses_of_sequences_are_kept_and_add_up(tiny_grid, tmp_path, knobs, names):
    if knobs:
        text = tiny_grid.read_text().replace("objectives.mlm.masking.rate: [0.4]", "model.dropout: [0.0]")
        text = text.replace("baseline: {objectives.mlm.masking.rate: 0.15}", "baseline: {}")
        settings = "set:\n  objectives.mlm: null\n  objectives.lm: {}\n  model.direction: left_to_right\n"
        tiny_grid.write_text(text.replace("set:\n", settings).replace("heldout.loss", "heldout.next_loss"))
    else:
        tiny_grid.write_text(tiny_grid.read_text().replace("rate: 0.15}", "rate: 0.4}"))
    study = Study(str(tiny_grid), "smoke", results_dir=tmp_path / "results")
    study.run(executor="inline")
    (record,) = study.records.all()
    kept = study.records.sums(record.id)
    assert kept["losses"].keys() == names
    for name, part in kept["losses"].items():
        nats, counts = unpack(part["nats"]), unpack(part["counts"])
        assert len(nats) == len(counts) == len(unpack(kept["documents"])) == 8
        assert nats.sum() / counts.sum() == pytest.approx(record.metrics[f"heldout.{name}"], abs=2e-3)
    assert study.records.snapshot().sums(record.id) == kept
    assert study.records.sums("0" * 16) is None


def test_a_sequence_belongs_to_the_document_that_it_starts_in():
    store = SimpleNamespace(ids=np.zeros(100), document_starts=np.array([0, 25, 60, 100]))
    sequences = RunningText(store, np.arange(0, 101, 10), 12)
    held_out = SimpleNamespace(sequences=sequences, chosen=np.array([7, 0, 2, 3, 6, 9]))
    assert documents_of(held_out).tolist() == [2, 0, 0, 1, 2, 2]
