"""Fine-tunings task by task: spread over seeds, degenerate runs, and the vote of the seeds."""

import numpy as np
import pytest

from ablations.measurements.measurements import Measurements
from ablations.pages.task_table import ensemble, per_task
from ablations.schema.run import Run
from lightning_modules.tasks import TASKS, FineTuning
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.tasks.scores.metrics import METRICS
from tests.unit import synthetic


def tuned(cell, seed, labels, answers, task="cola"):
    run = next(run for run in cell.finetunings if run.seed == seed)
    metrics = {f"{task}.{name}": METRICS[name].of(labels, answers) for name in TASKS[task].metrics}
    examples = {"answer": pack(answers), "right": pack(answers == labels)}
    floor = {f"{task}.{TASKS[task].main}.majority": 0.0}
    return synthetic.make_record(run, 4.0, kind="finetune", metrics=metrics | floor, examples=examples)


@pytest.fixture
def study():
    """Three seeds of one cell: two fair ones, and one that always answers 1."""
    cell = synthetic.make_cell({synthetic.LAYERS: 2}, seeds=3, task="cola")
    noise = np.random.default_rng(0)
    labels = noise.integers(0, 2, 60)
    answers = [np.where(noise.random(60) < 0.8, labels, 1 - labels) for _ in range(2)] + [np.ones(60, np.int64)]
    records = [tuned(cell, seed, labels, given) for seed, given in enumerate(answers)]
    return cell, {record.id: record for record in records}, labels, answers


def test_runs_no_better_than_the_majority_are_counted_and_stay_in_the_mean(study):
    cell, records, labels, answers = study
    reading, numbers, trace = per_task(Measurements(synthetic.make_grid(), [cell], records))
    row = dict(zip(numbers.headings, numbers.rows[0], strict=True))
    scores = [METRICS["matthews"].of(labels, given) for given in answers]
    assert (row["n"], row["degenerate"]) == (3, 1)
    assert row["mean"] == pytest.approx(np.mean(scores))
    assert (row["least"], row["most"]) == (min(scores), max(scores))
    assert row["sd"] == pytest.approx(np.std(scores, ddof=1))
    assert "1 of 3" in reading.rows[0]
    assert len(trace["tasks"][0]["runs"]) == 3


def test_times_are_those_of_the_fine_tuning_and_of_what_it_starts_from():
    """Three starts of one system: a pretraining of 100 s, word vectors of 30 s and 40 s, nothing."""
    starts = {
        "fine-tuned": {},
        "vectors": {"from_scratch": True, "word_vectors": {}},
        "scratch": {"from_scratch": True},
    }
    home, cells, records = synthetic.make_cell({"start": "any"}, seeds=2, task="cola"), [], {}
    for start, knobs in starts.items():
        tunings = [Run.finetuning_of(run, "cola", "examples", FineTuning().but(**knobs)) for run in home.runs]
        cells.append(home.model_copy(update={"values": {"start": start}, "finetunings": tuple(tunings)}))
        for run in tunings:
            made = {"word_vectors_seconds": 30.0 + 10 * run.seed} if start == "vectors" else {}
            cost = {"seconds": 5.0 + run.seed, **made}
            metrics = {"cola.matthews": 0.2, "cola.matthews.majority": 0.0}
            records[run.id] = synthetic.make_record(run, 4.0, kind="finetune", metrics=metrics, cost=cost)
    for run in home.runs:
        records[run.id] = synthetic.make_record(run, 4.0, cost={"seconds": 100.0})
    reading, numbers, _ = per_task(Measurements(synthetic.make_grid(), cells, records))
    rows = [dict(zip(numbers.headings, row, strict=True)) for row in numbers.rows]
    assert [(row["start"], row["seconds_before"], row["seconds"]) for row in rows] == [
        ("fine-tuned", 100.0, 5.5), ("vectors", 35.0, 5.5), ("scratch", 0.0, 5.5),
    ]  # fmt: skip
    assert reading.rows[1][-2:] == ["35 s", "6 s"]
    del records[home.runs[1].id]
    reading, numbers, _ = per_task(Measurements(synthetic.make_grid(), cells, records))
    assert numbers.rows[0][-2] is None, "not the mean of the seeds whose pretraining is known"
    assert reading.rows[0][-2] == ""


def test_the_vote_is_that_of_the_answers(study):
    _, records, labels, answers = study
    chosen = (np.stack(answers).sum(0) >= 2).astype(int)
    found = ensemble(TASKS["cola"], list(records.values()))
    assert found == {name: METRICS[name].of(labels, chosen) for name in ("matthews", "accuracy")}


def test_votes_need_two_seeds_and_classes(study):
    _, records, _, _ = study
    assert ensemble(TASKS["cola"], list(records.values())[:1]) == {}
    assert ensemble(TASKS["stsb"], list(records.values())) == {}
