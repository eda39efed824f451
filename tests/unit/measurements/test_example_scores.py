"""Scores by example compare only where the examples are the same."""

from types import SimpleNamespace

import numpy as np
import pytest

from ablations.measurements.example_scores import scores
from ablations.schema.run import Run
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.zero_shot.settings import Measurement
from tests.unit.synthetic import make_record

STREAM = {
    "objectives.mlm": None, "objectives.lm.direction": "left_to_right", "model.direction": "left_to_right",
    "format.kind": "stream", "format.break_mode": "none", "format.frame": "document_ends", "evaluation.rows": 4,
}  # fmt: skip
LOSS = "heldout_stream.loss"


def read(tiny, changes, measuring):
    """A record of a stream's reading whose losses are kept."""
    system = tiny.but(**STREAM | changes)
    pretrained = Run.pretraining(system, 0, dict.fromkeys(system.data.corpora, "0" * 64))
    run = Run.measuring_of(pretrained, "heldout_stream", "f" * 64, Measurement(**measuring))
    nats = np.linspace(1, 2, 8).astype(np.float16)
    metrics = {LOSS: float(nats.astype(float).mean())}
    kept = {LOSS: pack(nats), "document": pack(np.arange(8))}
    return make_record(run, 0.0, kind="measure", metrics=metrics, curve={}, examples=kept, config=run.to_dict())


@pytest.mark.parametrize(
    ("changes", "measuring", "same"),
    [
        ({}, {}, True),
        ({}, {"memory_from": "other_row"}, True),
        ({"model.hidden_size": 32}, {"context": 8}, True),
        ({"format.sentence_order": "shuffled"}, {}, False),
        ({"evaluation.rows": 8}, {}, False),
        ({}, {"lead": 16}, False),
    ],
    ids=["itself", "another memory", "another model, read otherwise", "shuffled", "other rows", "a lead"],
)
def test_readings_of_one_stream_compare_and_those_of_another_do_not(tiny, changes, measuring, same):
    records = {"a": read(tiny, {}, {}), "b": read(tiny, changes, measuring)}
    measured = SimpleNamespace(get=records.get, sums=lambda run: None)
    assert bool(scores((["a"], ["b"]), LOSS, measured)) == same
