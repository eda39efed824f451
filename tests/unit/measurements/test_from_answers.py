"""Metrics that a task got after its fine-tunings were recorded."""

import dataclasses

import numpy as np
import pytest

from ablations.measurements.measurements import completed
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS, FineTuning, fingerprint, pins
from lightning_modules.tasks.measured_baselines import references
from lightning_modules.tasks.scores.kept import packed_probabilities, unpack
from lightning_modules.tasks.validation import examples
from tests.toy import toy_task
from tests.unit.synthetic import BASE, make_record

BOTH = toy_task("toy")
FEW = FineTuning(train_examples=20, validation_share=0.25)


@pytest.fixture
def toy(monkeypatch):
    """Gives the toy task some metrics."""
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return lambda *metrics: monkeypatch.setitem(TASKS, "toy", dataclasses.replace(BOTH, metrics=metrics))


def recorded(tuning=FineTuning(), task=BOTH):
    """A record of random answers to the dev examples, and what it would hold if it were made now."""
    text = dict.fromkeys(BASE.data.corpora, "0" * 64)
    run = Run.finetuning_of(Run.pretraining(BASE, 0, text), "toy", fingerprint("toy"), tuning)
    dev = examples("toy", "dev", tuning.validation_share)
    scored = task.score(np.random.default_rng(3).integers(0, 2, len(dev)), dev)
    simple = references("toy", tuning.validation_share, tuning.train_examples, 0)
    metrics = {f"toy.{name}": scored.metrics[name] for name in TASKS["toy"].metrics} | simple
    return make_record(run, 1.0, kind="finetune", config=run.to_dict(), metrics=metrics, examples=scored.kept)


@pytest.mark.parametrize("tuning", [FineTuning(), FEW], ids=["all labels", "a part of the training set, few labels"])
@pytest.mark.parametrize("later", [("accuracy", "f1"), ("f1", "accuracy")], ids=["behind", "in front"])
def test_a_later_metric_is_what_a_new_record_would_hold(toy, tuning, later):
    toy("accuracy")
    before = recorded(tuning)
    toy(*later)
    after = recorded(tuning)
    assert "toy.f1" in after.metrics.keys() - before.metrics.keys()
    found, counts, absent = completed({"a": before, "b": after})
    assert {name: found["a"].metrics[name] for name in after.metrics} == after.metrics
    assert found["b"] == after
    assert set(counts) == after.metrics.keys() - before.metrics.keys()
    assert not absent


def test_probabilities_beside_the_answers_are_no_reason_to_compute_nothing(toy):
    toy("accuracy")
    before = recorded()
    toy("accuracy", "f1")
    kept = before.examples | packed_probabilities(np.full((len(unpack(before.examples["answer"])), 2), 0.5))
    found = completed({"a": before.model_copy(update={"examples": kept})}).records["a"]
    assert found.metrics["toy.f1"] == recorded().metrics["toy.f1"]
    assert found.examples == kept


def test_another_main_metric_has_its_simple_methods(toy):
    toy("accuracy", "f1")
    before = recorded()
    toy("f1", "accuracy")
    assert completed({"a": before}).records["a"].metrics.items() >= recorded().metrics.items()


def test_without_the_data_a_record_stays_as_it_is(toy, monkeypatch):
    toy("accuracy")
    before = recorded()
    toy("accuracy", "f1")

    def absent(split):
        raise ConfigError(["the data set was not found"])

    monkeypatch.setitem(TASKS, "toy", dataclasses.replace(TASKS["toy"], rows=absent))
    assert completed({"a": before}) == ({"a": before}, {}, {"toy.f1": 1})


def test_other_examples_than_those_of_the_record_compute_nothing(toy):
    toy("accuracy")
    before = recorded()
    toy("accuracy", "f1")
    kept = before.examples | {"right": recorded(FEW).examples["right"]}
    assert completed({"a": before.model_copy(update={"examples": kept})}).computed == {}
    assert completed({"a": before.model_copy(update={"examples": {}})}).computed == {}
