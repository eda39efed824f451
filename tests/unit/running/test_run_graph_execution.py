"""Runs that start from the weights of others: made in order, tried again, and given up."""

import json
import signal
import time
from dataclasses import replace

import pytest

from ablations.core import machine
from ablations.core.store import Records
from ablations.planning import cost as costing
from ablations.running import estimate, worker
from ablations.running.execute import execute
from ablations.running.exit_codes import FAILED, HELD, RECORDED
from ablations.running.job import Job
from ablations.running.launch import Launch
from ablations.running.ranks.meeting import Meeting, RankFailure
from ablations.schema.kinds import Watch
from lightning_modules import pretraining as fitting
from lightning_modules.training.callbacks import CHECKPOINT, Diverged
from lightning_modules.training.weights import WEIGHTS
from tests.messages import names
from tests.unit.run_graphs import LAYERS, WARM, planned, put


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


TOY = {"extra": "tasks: [toy]\n"}


def run(folder, records, retries=1, **options):
    events = []
    found = planned(folder, records, **options)
    return execute(found, records, "inline", retries=retries, on_event=events.append), events


def test_what_starts_from_a_diverged_run_is_given_up(tmp_path, trainings):
    made, obstacle = trainings

    def diverge(run):
        if run[:3] == ("pretrain", 1, 0.4):
            raise Diverged(3)

    obstacle[""] = diverge
    records = Records(tmp_path / "results")
    options = {**TOY, "rates": "[0.15, 0.4]", "knobs": {LAYERS: 2, WARM: "[1]"}}
    summary, events = run(tmp_path, records, **options)
    assert summary.outcomes == {"done": 3, "diverged": 1, "orphaned": 2}
    assert summary.complete
    assert summary.executed == len(made) == 4
    assert not summary.problems
    assert [event.outcome for event in events if event.kind == "finished"].count("orphaned") == 2
    assert events[-1].done == events[-1].total == 6
    assert planned(tmp_path, records, **options).counts == summary.outcomes
    again, events = run(tmp_path, records, **options)
    assert (again.executed, again.outcomes, events) == (0, summary.outcomes, [])
    assert "2 orphaned" in str(again)


def test_a_parent_that_is_killed_is_tried_again_before_its_child(tmp_path, trainings, monkeypatch):
    made, attempt, codes = trainings[0], worker.attempt, [-9]
    monkeypatch.setattr(worker, "attempt", lambda *given: codes.pop() if codes else attempt(*given))
    summary, events = run(tmp_path, Records(tmp_path / "results"), **TOY)
    kinds = [event.kind for event in events if event.kind != "progress"]
    assert kinds == ["started", "started", "finished", "started", "finished"]
    assert [kind for kind, *_ in made] == ["pretrain", "finetune"]
    assert summary.outcomes == {"done": 2}


def test_without_its_parent_a_run_waits_for_the_next_launch(tmp_path, trainings):
    made, obstacle = trainings

    def fail(run):
        raise ValueError("not today")

    obstacle[""], records = fail, Records(tmp_path / "results")
    summary, _ = run(tmp_path, records, retries=0, **TOY)
    assert summary.outcomes == {"failed": 1, "missing": 1}
    assert not summary.complete
    obstacle[""] = lambda run: None
    summary, _ = run(tmp_path, records, **TOY)
    assert [kind for kind, *_ in made] == ["pretrain", "pretrain", "finetune"]
    assert summary.outcomes == {"done": 2}


@pytest.mark.parametrize(
    ("code", "outcome", "detail"),
    [(FAILED, "oom", "rank 1: no memory"), (-9, "killed", "the process died of signal 9")],
)
def test_what_hung_a_shared_run_is_recorded_unless_its_own_process_was_killed(tmp_path, code, outcome, detail):
    records = Records(tmp_path / "results")
    launch = Launch(planned(tmp_path, records), records, 0, None, lambda event: None)
    _, run = launch.todo.popitem()
    launch.begin(run)
    (meeting := records.work_folder(run.id) / "ranks-1").mkdir(parents=True)
    Meeting(meeting).fail(RankFailure(1, "oom", "no memory"))
    launch.conclude(run, code)
    assert (records.get(run.id).outcome, records.get(run.id).detail) == (outcome, detail)


def test_weights_that_are_not_at_hand_are_made_again(tmp_path, trainings):
    made, _ = trainings
    records = Records(tmp_path / "results")
    options = {**TOY, "knobs": {LAYERS: 2, WARM: "[1]"}}
    run(tmp_path, records, **options)
    first, second, tuned = planned(tmp_path, records, **options).runs
    score = records.get(tuned.id).metrics
    assert estimate.notes(planned(tmp_path, records, **options), records) == []
    records.path(tuned.id).unlink()
    for lost in (first, second):
        (records.work_folder(lost.id) / WEIGHTS).unlink()
    kept = {run.id: records.path(run.id).read_bytes() for run in (first, second)}
    made.clear()
    (note,) = estimate.notes(planned(tmp_path, records, **options), records)
    assert names(note, "2", "weights")
    summary, _ = run(tmp_path, records, **options)
    assert [row[:2] for row in made] == [("pretrain", 1), ("pretrain", 2), ("finetune", "toy")]
    assert (summary.executed, summary.outcomes) == (1, {"done": 3})
    assert records.get(tuned.id).metrics == score
    assert not any((records.work_folder(run.id) / CHECKPOINT).exists() for run in (first, second, tuned))
    assert {id: records.path(id).read_bytes() for id in kept} == kept  # records of finished runs stay as they are
    assert "again, because another run needs its weights" in (records.work_folder(first.id) / "log.txt").read_text()


def test_what_is_trained_for_its_weights_alone_is_not_probed_again(tmp_path, monkeypatch, trainings):
    probed, fit, records = [], fitting.fit, Records(tmp_path / "results")
    monkeypatch.setattr(
        fitting, "fit", lambda system, *a, **more: probed.append(system.evaluation.probes) or fit(system, *a, **more)
    )
    run = planned(tmp_path, records).runs[0]
    run = run.model_copy(update={"system": run.system.but(**{"evaluation.probes": ["word_order"]})})
    for _ in range(2):
        weights = worker.weights_of(run, records, Watch(tmp_path, {}, lambda progress: None, lambda: False))
        weights.unlink()
        put(records, run, metrics={"heldout.loss": 4.15})
    assert probed == [("word_order",), ()]


def test_no_two_processes_wait_for_the_same_weights(tmp_path, trainings):
    """While one makes the weights of a finished run again, other runs are taken."""
    made, _ = trainings
    records, options = Records(tmp_path / "results"), {**TOY, "seeds": 2}
    first, second = (run for run in planned(tmp_path, records, **options).runs if run.kind == "pretrain")
    for seed, parent in enumerate((first, second)):
        put(records, parent, metrics={"heldout.loss": 4.15 + seed / 10})
    launch = Launch(planned(tmp_path, records, **options), records, 0, None, lambda event: None)
    with records.lock(first.id):
        (child,) = launch.takeable()
        assert child.parents == (second.id,)
        (other,) = launch.todo.values()
        job = Job.load(launch.prepare(other, None, {}))
        assert worker.attempt(job, lambda: False) == HELD  # taken before the lock was
        assert made == []
    assert worker.attempt(job, lambda: False) == RECORDED
    assert [row[0] for row in made] == ["pretrain", "finetune"]


def test_a_run_that_is_made_again_is_named_and_counts_in_the_time_left(tmp_path, trainings, monkeypatch):
    records = Records(tmp_path / "results")
    pretrained, tuned = planned(tmp_path, records, **TOY).runs
    put(records, pretrained, metrics={"heldout.loss": 4.15})
    found, clock, events = planned(tmp_path, records, **TOY), [100.0], []
    whole, own = (costing.seconds([found.costs[run.id]], found.speed) for run in (pretrained, tuned))
    monkeypatch.setattr("ablations.running.launch.time.monotonic", lambda: clock[0])
    launch = Launch(found, records, 0, None, events.append)
    launch.begin(launch.todo.pop(tuned.id))
    clock[0] += 60
    told = {"steps": 4, "loss": 4.0, "tokens_per_second": 100.0}
    launch.emit("progress", tuned, progress={**told, "step": 1, "again": pretrained.id})
    launch.emit("progress", tuned, progress={**told, "step": 2, "again": ""})
    first, second = events[-2:]
    assert found.label(pretrained.id) in first.label
    assert second.label == found.label(tuned.id)
    assert first.seconds_left == pytest.approx(60 * (0.75 * whole + own) / (0.25 * whole))
    assert second.seconds_left == pytest.approx(60 * 0.5 * own / (whole + 0.5 * own))


@pytest.mark.parametrize(("recorded", "outcome"), [(4.16, "done"), (4.5, "failed")])
def test_a_parent_that_comes_out_differently_is_said(tmp_path, trainings, recorded, outcome):
    records = Records(tmp_path / "results")
    pretrained, tuned = planned(tmp_path, **TOY).runs
    put(records, pretrained, metrics={"heldout.loss": recorded})
    summary, _ = run(tmp_path, records, retries=0, **TOY)
    record = records.get(tuned.id)
    assert (record.outcome, summary.executed) == (outcome, 1)
    assert (records.work_folder(pretrained.id) / WEIGHTS).exists() == (outcome == "done")
    assert not (records.work_folder(pretrained.id) / CHECKPOINT).exists()  # or the next attempt would go on from it
    if outcome == "failed":
        said = record.detail.splitlines()[0]
        assert names(said, "NotReproducedError", pretrained.id, "4.1500", "4.5000", "ablations clean")
    assert records.get(pretrained.id).metrics == {"heldout.loss": recorded}


def test_a_parent_that_comes_out_differently_is_made_again_once_and_anew_without_its_record(tmp_path, trainings):
    made, _ = trainings
    records = Records(tmp_path / "results")
    pretrained = planned(tmp_path, **TOY).runs[0]
    put(records, pretrained, metrics={"heldout.loss": 4.5})
    for _ in range(2):
        summary, _ = run(tmp_path, records, retries=1, **TOY)
        assert summary.outcomes == {"done": 1, "failed": 1}
    assert [kind for kind, *_ in made] == ["pretrain"]
    (records.work_folder(pretrained.id) / "second.json").write_text("{}")  # not as it was written
    run(tmp_path, records, retries=0, **TOY)
    assert [kind for kind, *_ in made] == ["pretrain"] * 2
    records.path(pretrained.id).unlink()
    summary, _ = run(tmp_path, records, **TOY)
    assert summary.outcomes == {"done": 2}
    assert [kind for kind, *_ in made] == ["pretrain"] * 3 + ["finetune"]


def left_behind(launch):
    """What can be taken in two looks, as kinds, and then what is left for want of time."""
    taken = [run.kind for _ in range(2) for run in launch.takeable()]
    return taken, sorted(run.kind for run in launch.left.values())


def test_a_run_begins_if_its_estimate_fits_the_time_that_is_left(tmp_path, trainings, monkeypatch):
    records, clock = Records(tmp_path / "results"), [100.0]
    found = planned(tmp_path, records, **{**TOY, "seeds": 2})
    monkeypatch.setattr("ablations.running.launch.time.monotonic", lambda: clock[0])
    seconds = costing.seconds([found.costs[found.runs[0].id]], found.speed)

    def launch(until):
        return Launch(found, records, 0, None, lambda event: None, until=until)

    assert left_behind(launch(clock[0] + 0.9 * seconds)) == (["pretrain", "pretrain"], []), "each is made in parts"
    going = launch(clock[0] + 1.5 * seconds)
    taken = next(going.takeable())
    going.begin(taken)
    clock[0] += seconds
    assert left_behind(going) == ([], ["finetune", "pretrain"])  # the child of the first waits for it
    assert [run.start.id for run in going.todo.values()] == [taken.id]
    assert left_behind(launch(None)) == (["pretrain", "pretrain"], [])


def test_a_checkpoint_spares_time_and_lost_weights_cost_it(tmp_path, trainings, monkeypatch):
    records = Records(tmp_path / "results")
    pretrained, tuned = planned(tmp_path, records, **TOY).runs
    found = planned(tmp_path, records, **TOY)
    launch = Launch(found, records, 0, None, lambda event: None, until=1.0)
    whole, own = map(launch.planned_seconds, (pretrained.id, tuned.id))

    def reach(share, again=""):
        folder = records.make_work_folder(tuned.id)
        (folder / worker.PROGRESS).write_text(json.dumps({"step": 4 * share, "steps": 4, "again": again}))

    assert launch.seconds_to_make(tuned) == pytest.approx(whole + own)  # the weights of its parent are nowhere
    reach(0.75, again=pretrained.id)
    assert launch.seconds_to_make(tuned) == pytest.approx(0.25 * whole + own)
    (records.make_work_folder(pretrained.id) / WEIGHTS).touch()
    assert launch.seconds_to_make(tuned) == pytest.approx(own)
    reach(0.5)
    assert launch.seconds_to_make(tuned) == pytest.approx(0.5 * own)


@pytest.mark.parametrize("left", ["{}", "[]", "null", '{"step": 3, "steps": 0}', '{"step": "3", "steps": 4}', "{"])
def test_damaged_progress_of_an_earlier_launch_spares_no_time(tmp_path, trainings, left):
    records = Records(tmp_path / "results")
    found = planned(tmp_path, records, **TOY)
    launch, pretrained = Launch(found, records, 0, None, lambda event: None, until=1.0), found.runs[0]
    (records.make_work_folder(pretrained.id) / worker.PROGRESS).write_text(left)
    assert launch.seconds_to_make(pretrained) == pytest.approx(launch.planned_seconds(pretrained.id))


def test_what_is_left_for_want_of_time_is_no_failure_and_is_made_later(tmp_path, trainings):
    made, obstacle = trainings
    records = Records(tmp_path / "results")
    short = execute(planned(tmp_path, records, **TOY), records, "inline", until=time.monotonic())
    assert (made, short.left, short.failures, short.problems) == ([], 2, [], [])
    assert "2 runs left" in str(short)
    obstacle[""] = lambda run: signal.raise_signal(signal.SIGALRM) if run[0] == "pretrain" else None
    rung = execute(planned(tmp_path, records, **TOY), records, "inline", until=time.monotonic() + 1000)
    assert (rung.left, rung.outcomes) == (1, {"done": 1, "missing": 1})  # the active one had come to its end
    whole = execute(planned(tmp_path, records, **TOY), records, "inline", until=time.monotonic() + 1000)
    assert (whole.left, whole.outcomes) == (0, {"done": 2})
    assert [kind for kind, *_ in made] == ["pretrain", "finetune"]


def test_a_failure_is_told_also_where_time_is_short(tmp_path, trainings):
    def fail(run):
        raise ValueError("not today")

    trainings[1][""] = fail
    records = Records(tmp_path / "results")
    found = planned(tmp_path, records, **TOY)
    summary = execute(found, records, "inline", retries=0, until=time.monotonic() + 1000)
    assert (summary.left, summary.outcomes, len(summary.failures)) == (0, {"failed": 1, "missing": 1}, 1)


def test_a_plan_says_what_a_time_makes(tmp_path, trainings):
    found = replace(planned(tmp_path, Records(tmp_path / "results"), **{**TOY, "seeds": 2}), slots=1)
    seconds = [costing.seconds([found.costs[run.id]], found.speed) for run in found.runs]
    assert "4 of 4 runs end." in estimate.within(found, sum(seconds))
    assert "3 of 4 runs end." in estimate.within(found, sum(seconds[:3]))
    part = estimate.within(found, 0.9 * max(seconds))
    assert "0 of 4 runs end" in part, "no child of what is made in part"
    assert "1 longer" in part
