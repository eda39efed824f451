"""Scores by example compare only where the examples are the same."""

from types import SimpleNamespace

import numpy as np
import pytest

from ablations.measurements.example_scores import scores
from ablations.schema.run import Run
from lightning_modules.tasks import FineTuning
from lightning_modules.tasks.scores import by_example
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.tasks.scores.metrics import METRICS
from lightning_modules.tasks.shapes import coreference
from lightning_modules.tasks.shapes.texts import TextExamples, Texts
from lightning_modules.zero_shot.settings import Measurement
from tests.tuning import planned
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


# --- metrics of fine-tunings that are no mean over examples


def answered(tiny, task, seed, labels, answers, metric, value):
    """A record of a fine-tuning with its answers."""
    run = planned(tiny, FineTuning(), task, seed)
    kept = {"answer": pack(answers), "right": pack(answers == labels)}
    changes = {"kind": "finetune", "metrics": {metric: value}, "curve": {}, "examples": kept, "config": run.to_dict()}
    return make_record(run, 0.0, **changes)


def of_answers(tiny, task, metric, of, labels, sides):
    """The scores of sides of answers ``[sides, seeds, examples]``."""
    records = {
        f"{side} {seed}": answered(tiny, task, seed, labels, answers, metric, of(labels, answers))
        for side, runs in enumerate(sides)
        for seed, answers in enumerate(runs)
    }
    measured = SimpleNamespace(get=records.get, sums=lambda run: None)
    ids = [[f"{side} {seed}" for seed in range(len(runs))] for side, runs in enumerate(sides)]
    return scores(ids, metric, measured)


@pytest.mark.parametrize(("task", "name"), [("mrpc", "f1"), ("cola", "matthews")])
def test_answers_of_two_classes_tell_what_each_example_adds(tiny, task, name):
    draws = np.random.default_rng(0)
    labels, metric = draws.integers(0, 2, 90), METRICS[name]
    sides = np.where(draws.random((2, 3, 90)) < 0.8, labels, 1 - labels)
    found = of_answers(tiny, task, f"{task}.{name}", metric.of, labels, sides)
    for side, answers in zip(found, sides, strict=True):
        assert side.by_run == pytest.approx(np.array([metric.by_example(labels, run) for run in answers]))


def test_answers_of_names_tell_a_difference_although_some_labels_stay_unknown(tiny):
    """Of a text that every run answers with the same wrong name, nobody knows whether the other is right."""
    draws = np.random.default_rng(1)
    labels = draws.choice(3, 300, p=[0.45, 0.45, 0.1])
    sides = np.where(draws.random((2, 4, 300)) < 0.7, labels, draws.integers(0, 2, 300))
    sides[..., :60] = (labels[:60] == 0).astype(int)  # wrong, whoever is asked
    found = of_answers(tiny, "gap", "gap.f1", coreference.f1, labels, sides)
    wanted = labels < 2
    known = [[by_example.f1((run == labels) & (run < 2), run < 2, wanted) for run in runs] for runs in sides]
    for side, values, runs in zip(found, np.array(known), sides, strict=True):
        assert side.by_run.mean(axis=1) == pytest.approx([coreference.f1(labels, run) for run in runs])
        assert not np.allclose(side.by_run, values), "some labels are unknown"
    difference = found[0].by_example - found[1].by_example
    expected = np.mean(known[0], axis=0) - np.mean(known[1], axis=0)
    assert difference.std() == pytest.approx(expected.std(), rel=0.02)


def test_a_metric_may_have_scores_of_its_own(tiny):
    labels = np.linspace(0, 5, 40)
    record = answered(tiny, "stsb", 0, np.zeros(40), np.zeros(40, int), "stsb.spearman", 0.0)
    answers = labels + np.sin(labels * 9)
    kept = Texts(labels=(), pair=True).score(answers, TextExamples(["a"] * 40, ["b"] * 40, labels), ["spearman"])
    records = {"a": record.but(examples=kept.kept, metrics={"stsb.spearman": kept.metrics["spearman"]})}
    (found,) = scores([["a"]], "stsb.spearman", SimpleNamespace(get=records.get, sums=lambda run: None))
    assert found.by_example == pytest.approx(METRICS["spearman"].by_example(labels, answers), abs=2e-3)
