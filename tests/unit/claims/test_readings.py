"""Claims about one model that is read in several ways: compared model by model, but for times."""

import numpy as np
import pytest
from scipy import stats

from ablations.claims import judging
from ablations.claims.outcomes import AS_CLAIMED, Reason
from ablations.measurements.measurements import Measurements
from ablations.measurements.variances import about, differences
from ablations.schema.cell import Cell
from ablations.schema.run import Run
from lightning_modules.systems import SYSTEMS
from lightning_modules.zero_shot.settings import Measurement
from tests.unit.synthetic import make_claim, make_grid, make_record

MEMORY = "measuring.memory_length"
MODELS = np.array([0.31, -0.24, 0.12, -0.19])  # what chance gave each: far more than readings differ
NATS = {0: MODELS + 4.5 + np.array([0.004, -0.006, 0.005, -0.003]), 64: MODELS + 4.44}


def make_reading(memory, task="heldout_stream", system=None):
    system = system or SYSTEMS["transformer_xl_base"]
    text = dict.fromkeys(system.data.corpora, "0" * 64)
    runs = tuple(Run.pretraining(system, seed, text) for seed in range(len(MODELS)))
    read = tuple(Run.measuring_of(run, task, "0" * 64, Measurement(memory_length=memory)) for run in runs)
    return Cell(values={MEMORY: memory}, label=f"memory={memory}", system=system, runs=runs, zero_shot=read)


def study(cells, metric="heldout_stream.loss"):
    records = {}
    for cell in cells:
        for run, reading in zip(cell.runs, cell.zero_shot, strict=True):
            found = {metric: NATS[cell.values[MEMORY]][run.seed]}
            records[run.id] = make_record(run, 4.7)
            records[reading.id] = make_record(reading, 0.0, kind="measure", metrics=found, curve={})
    claim = make_claim(metric=metric, a={MEMORY: 64}, b={MEMORY: 0}, published={})
    axes = {"base": "transformer_xl_base", "axes": {MEMORY: [0, 64]}, "baseline": {MEMORY: 0}, "published": []}
    axes |= {"figure": {"x": MEMORY, "y": metric}, "measure": [metric.partition(".")[0]], "seeds": len(MODELS)}
    return Measurements(make_grid(claims=[claim], **axes), cells, records)


def test_a_difference_far_below_the_spread_of_models_is_seen_within_them():
    cells = [make_reading(memory) for memory in NATS]
    (found,) = judging.verdicts(study(cells))
    by_hand = stats.ttest_rel(NATS[64], NATS[0])
    assert found.outcome == AS_CLAIMED
    assert found.effect == pytest.approx(0.06)
    assert found.p == pytest.approx(by_hand.pvalue)
    assert not found.continued
    assert "model by model" in about(make_grid(), cells)


def test_readings_of_different_models_are_not():
    other = SYSTEMS["transformer_xl_base"].but(**{"model.num_layers": 2})
    cells = [make_reading(0), make_reading(64, system=other)]
    (found,) = judging.verdicts(study(cells))
    assert found.reason is Reason.POWER
    assert "model by model" not in about(make_grid(), cells)


def test_times_of_one_model_are_draws_of_their_own():
    cells = [make_reading(memory, "reading_speed") for memory in NATS]
    measured = study(cells, "reading_speed.speed_up")
    _, apart = differences(measured, lambda cell: measured.of(cell, "reading_speed.speed_up"))(cells[1], cells[0])
    assert apart is not None
    assert apart.error is not None
    assert apart.error > 0.1  # of models, as nothing is taken within them
