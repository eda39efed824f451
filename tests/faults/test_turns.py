"""Jobs of an engine make runs in turn, and outlive their launcher. The engine is made up: a job is a process here."""

import json
import os
import pickle
import signal
import time
from collections import Counter

import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import attempts, keeper, phases, worker
from ablations.running.execute import execute
from ablations.running.executor import Executor
from ablations.running.exit_codes import AGAIN, FOUND, HELD, INTERRUPTED, RECORDED, SPENT
from ablations.running.launch import Launch
from ablations.running.launchers import registered
from lightning_modules.config import Settings
from lightning_modules.tasks import TASKS, pins
from lightning_modules.training.callbacks import Fitted, Interrupted
from tests import tiny
from tests.depth import some
from tests.faults.support import contents, until
from tests.forking import forked
from tests.toy import toy_task
from tests.unit.run_graphs import planned

SEARCH = "search:\n  axes: {optimizer.peak_lr: [1.0e-3, 3.0e-3]}\n  metric: heldout.loss\n  seeds: 2\n"
RATES = "[0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6]"


class Forked(Executor):
    """An engine whose jobs are processes of this machine that live on when their launcher dies."""

    class Options(Settings):
        pass

    def __init__(self, width=4):
        super().__init__()
        self.width, self.jobs = width, []

    def room(self):
        return self.width

    def submit(self, launch, turns):
        job = keeper.Keeper(".", 60.0, launch.retries, further=phases.told(launch, 1, {}, self.turn))
        self.jobs += [forked(lambda one=one: job(one)[0]) for one in turns]
        return self.jobs[-len(turns) :]

    def ending(self, job):
        found, status = os.waitpid(job, os.WNOHANG)
        return keeper.Ending(os.waitstatus_to_exitcode(status)) if found else None

    def send(self, jobs, number):
        for job in jobs:
            os.kill(job, number)


@pytest.fixture
def quick(cached, monkeypatch):
    """Runs that train nothing: what a worker tells of each attempt, and what happens in place of the training."""
    told, obstacles = cached / "told.txt", {}
    monkeypatch.setattr(Executor, "poll", 0.05)

    def made(run, records, watch):
        with told.open("a") as file:
            file.write(f"{run.id} {os.getpid()}\n")
        obstacles.get(run.id, lambda watch: None)(watch)
        return Fitted(metrics={"heldout.loss": float(run.seed)})

    monkeypatch.setattr(worker, "_made", made)
    return told, obstacles


def of(told):
    """The runs that were made, in their order, with the processes that made them."""
    return [line.split() for line in told.read_text().splitlines()] if told.exists() else []


def die(watch):
    os.kill(os.getpid(), signal.SIGSEGV)


def written(launch, folder, runs=None):
    """The turns of a job that makes these runs of a launch, by default all."""
    paths = [launch.prepare(run, 1, {}) for run in runs or launch.plan.runs]
    return keeper.Turns(tuple(map(str, paths)), str(folder / "diary.jsonl"))


def diary(turns):
    with open(turns.diary) as file:
        return [(run_id, code, again) for run_id, code, _, again in map(json.loads, file)]


def started(cached, retries=1, **options):
    records = Records(cached / "results")
    found = plan(grids.read(tiny.grid(cached, **options)), "smoke", records=records)
    (records.folder / "records").mkdir(parents=True, exist_ok=True)
    return Launch(found, records, retries, None, lambda event: None), records


def test_one_worker_makes_all_runs_of_a_job_in_their_order(cached, quick):
    launch, records = started(cached)
    turns = written(launch, cached)
    assert keeper.Keeper(".", 5.0, 1)(turns) == (RECORDED, "")
    runs, workers = zip(*of(quick[0]), strict=True)
    assert list(runs) == [run.id for run in launch.plan.runs]
    assert len(set(workers)) == 1
    assert diary(turns) == [(run_id, RECORDED, False) for run_id in runs]
    assert {record.outcome for record in records.all()} == {"done"}


@pytest.mark.parametrize("retries", [0, 2])
def test_a_run_that_kills_its_worker_costs_the_job_no_other_though_no_launcher_lives(cached, quick, retries):
    launch, records = started(cached, retries, rates="[0.1, 0.15]")
    told, obstacles = quick
    poison = launch.plan.runs[1].id
    obstacles[poison] = die
    turns = written(launch, cached)
    assert keeper.Keeper(".", 5.0, retries)(turns) == (RECORDED, "")
    record = records.get(poison)
    assert (record.outcome, record.detail) == ("killed", "the process died of signal 11")
    assert record.provenance["attempts"] == retries + 1 == [run for run, _ in of(told)].count(poison)
    assert Counter(one.outcome for one in records.all()) == {"done": 3, "killed": 1}
    lines = [line[1:] for line in diary(turns) if line[0] == poison]
    assert lines == [(-signal.SIGSEGV, True)] * (retries + 1) + [(SPENT, False)]
    assert list(attempts.known(records)) == []


def test_a_job_that_is_put_back_goes_on_with_its_own_run_and_repeats_no_attempt(cached, quick):
    launch, records = started(cached)
    told, obstacles = quick
    first, poison, own, last = (run.id for run in launch.plan.runs)
    obstacles[poison] = die

    def stopped(watch):
        raise Interrupted

    obstacles[own] = stopped
    turns = written(launch, cached)
    assert keeper.Keeper(".", 5.0, 1)(turns)[0] == INTERRUPTED
    del obstacles[own]
    assert keeper.Keeper(".", 5.0, 1)(turns)[0] == RECORDED
    assert [run for run, _ in of(told)] == [first, poison, poison, own, own, last]
    assert diary(turns)[-4:] == [
        (first, FOUND, False),
        (poison, SPENT, False),
        (own, RECORDED, False),
        (last, RECORDED, False),
    ]
    assert records.get(own).provenance["attempts"] == 1


@pytest.mark.parametrize(("restarts", "counted"), [(0, 2), (1, 1), (20, 1), (21, 2)])
def test_an_attempt_on_a_node_that_was_lost_does_not_count_unless_that_happens_often(
    cached, quick, monkeypatch, restarts, counted
):
    """Slurm puts the job back by itself: the process that made the run is gone without a word."""
    launch, records = started(cached, rates="[0.15]", seeds=1)
    turns = written(launch, cached)
    attempts.begin(records, launch.plan.runs[0].id, 1, "")
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
    keeper.Keeper(".", 5.0, 1)(turns)
    (record,) = records.all()
    assert (record.outcome, record.provenance["attempts"]) == ("done", counted)


def test_a_run_whose_process_fails_is_tried_again_by_a_new_worker(cached, quick):
    launch, records = started(cached, rates="[0.15]")
    told, obstacles = quick
    failing = launch.plan.runs[0].id

    def fail(watch):
        raise ValueError("of the run")

    obstacles[failing] = fail
    turns = written(launch, cached)
    keeper.Keeper(".", 5.0, 1)(turns)
    processes = [process for run, process in of(told) if run == failing]
    assert len(processes) == len(set(processes)) == 2
    assert [line[1:] for line in diary(turns)][:3] == [(AGAIN, True), (AGAIN, True), (SPENT, False)]
    assert records.get(failing).outcome == "failed"


def test_runs_behind_their_parent_are_made_in_the_same_job_and_put_back_if_it_has_no_weights(
    cached, quick, monkeypatch
):
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    records = Records(cached / "results")
    (records.folder / "records").mkdir(parents=True)
    launch = Launch(planned(cached, records, extra="tasks: [toy]\n", seeds=2), records, 0, None, lambda event: None)
    (turns,) = launch.turns(3600.0)
    assert [(run.kind, run.seed) for run in turns] == [
        ("pretrain", 0),
        ("finetune", 0),
        ("pretrain", 1),
        ("finetune", 1),
    ]
    parent, child, *_ = turns
    quick[1][parent.id] = lambda watch: (_ for _ in ()).throw(ValueError("of the run"))
    given = written(launch, cached, turns)
    keeper.Keeper(".", 5.0, 0)(given)
    codes = {run_id: code for run_id, code, _ in diary(given)}
    assert (codes[parent.id], codes[child.id]) == (SPENT, HELD)
    assert child.id not in [run for run, _ in of(quick[0])]
    assert Counter(record.outcome for record in records.all()) == {"failed": 1, "done": 2}


@pytest.mark.parametrize(
    ("seconds", "sizes"), [(0.0, [1, 1, 1, 1]), (2.0, [2, 2]), (1.6, [2, 2]), (1.4, [1, 1, 1, 1]), (99.0, [4])]
)
def test_the_runs_of_a_job_fill_its_time(cached, seconds, sizes):
    launch, _ = started(cached)
    launch.planned_seconds = lambda run_id: 1.0
    assert [len(turns) for turns in launch.turns(seconds)] == sizes
    assert not launch.todo


def test_what_can_begin_is_found_without_reading_the_records_of_all(cached, monkeypatch):
    """A look at the work list reads what it takes, however many runs wait."""
    launch, _ = started(cached, rates=RATES)
    looked = []
    monkeypatch.setattr(Records, "examine", lambda self, run_id: looked.append(run_id))
    monkeypatch.setattr(Records, "get", lambda self, run_id: looked.append(run_id))
    taken = next(launch.takeable())
    assert looked == [taken.id]


@pytest.mark.parametrize("executor", some(["local", "engine"], 1))
def test_a_run_that_always_dies_leaves_the_others_whole_though_its_launcher_dies(cached, quick, executor):
    """Jobs of an engine go on; workers of this machine end, and the next launcher makes the rest."""
    launch, records = started(cached, rates=RATES)
    told, obstacles = quick
    poison = launch.plan.runs[7].id
    obstacles[poison] = die
    for run in launch.plan.runs:
        obstacles.setdefault(run.id, lambda watch: time.sleep(0.05))

    def run():
        if executor == "local":
            execute(launch.plan, records, {"kind": "local", "slots": 4}, retries=1)
        else:
            Forked().run(launch)

    child = forked(run)
    until(lambda: len(of(told)) >= 6)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if executor == "engine":
        until(lambda: Counter(one.outcome for one in records.all()) == {"done": 23, "killed": 1})
        until(lambda: not list(attempts.known(records)))
        assert Counter(run for run, _ in of(told)) == {run.id: 1 for run in launch.plan.runs} | {poison: 2}
    again = plan(launch.plan.grid, "smoke", records=records)
    summary = execute(again, records, {"kind": "local", "slots": 4}, retries=1)
    assert summary.outcomes == {"done": 23, "killed": 1}
    finished = [run for run, _ in of(told) if run != poison]
    assert len(finished) <= 23 + 4  # those that died with their launcher


def test_a_new_launcher_watches_the_jobs_of_a_dead_one(cached, quick):
    launch, records = started(cached, rates="[0.1, 0.15]")
    told, obstacles = quick
    for run in launch.plan.runs:
        obstacles[run.id] = lambda watch: time.sleep(0.3)
    child = forked(lambda: Forked(1).run(launch))
    until(lambda: len(of(told)) >= 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    again = Launch(plan(launch.plan.grid, "smoke", records=records), records, 1, None, lambda event: None)
    Forked(1).run(again)
    assert again.finish().outcomes == {"done": 4}
    assert again.summary.elsewhere >= 1
    assert Counter(run for run, _ in of(told)) == {run.id: 1 for run in launch.plan.runs}


def searching(cached, **options):
    """A launch whose plan has an open search of four trials, and what makes the plan again."""
    launch, records = started(cached, extra=SEARCH, rates="[0.15]", **options)
    launch.again = {}
    return launch, records, lambda: plan(launch.plan.grid, "smoke", records=records)


def test_where_no_launcher_lives_a_job_goes_on_to_the_next_phase(cached, quick):
    launch, _, again = searching(cached)
    turns, further = written(launch, cached), phases.told(launch, 1, {}, 600.0)
    assert keeper.Keeper(".", 5.0, 1, further=further)(turns) == (RECORDED, "")
    assert again().is_finished
    runs = [run for run, _ in of(quick[0])]
    assert len(runs) == len(set(runs)) == 6


def test_it_goes_on_to_what_was_asked_of_the_plan_alone(cached, quick):
    launch, records = started(cached, extra=SEARCH, rates="[0.1, 0.15]")
    asked = {"seeds": 1}, {"objectives.mlm.masking.rate": 0.15}
    launch.plan = plan(launch.plan.grid, "smoke", records=records, **asked[0]).sliced(asked[1])
    launch.again = {**asked[0], "slice": asked[1]}
    turns, further = written(launch, cached), phases.told(launch, 1, {}, 600.0)
    assert keeper.Keeper(".", 5.0, 1, further=further)(turns) == (RECORDED, "")
    following = plan(launch.plan.grid, "smoke", records=records, **asked[0]).sliced(asked[1])
    assert following.is_finished
    assert {run for run, _ in of(quick[0])} == {run.id for run in following.runs}


def test_what_a_job_knows_is_data_that_runs_no_code(cached, tmp_path):
    class Made:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    launch, _, _ = searching(cached)
    assert json.loads(phases.told(launch, 1, {"A": "1"}, 600.0))
    with pytest.raises(ValueError):
        phases.further(pickle.dumps(Made()), ())
    assert not (tmp_path / "made").exists()


def test_while_a_launcher_of_the_grid_lives_it_alone_knows_what_follows(cached, quick):
    launch, records, _ = searching(cached)
    turns, further = written(launch, cached), phases.told(launch, 1, {}, 600.0)
    with registered(records, ["0" * 16], launch.plan.grid.name, "smoke"):
        keeper.Keeper(".", 5.0, 1, further=further)(turns)
    assert len(of(quick[0])) == len(launch.plan.runs) == 4


def test_jobs_that_find_the_same_make_each_run_once(cached, quick):
    """The launcher dies while the trials are made. A run of the next phase kills its process each time."""
    launch, records, again = searching(cached, seeds=4)
    told, obstacles = quick
    poison = launch.plan.awaited[0]
    for run in launch.plan.runs:
        obstacles[run.id] = lambda watch: time.sleep(0.1)
    obstacles[poison.id] = die
    child = forked(lambda: Forked(2).run(launch))
    until(lambda: len(of(told)) >= 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: Counter(one.outcome for one in records.all()) == {"done": 7, "killed": 1})
    until(lambda: not list(attempts.known(records)))
    assert Counter(run for run, _ in of(told)) == {run.id: 1 for run in again().runs} | {poison.id: 2}


def test_a_plan_that_cannot_be_made_again_costs_no_record(cached, quick):
    launch, records, _ = searching(cached)
    launch.again = {"filters": {"no.such.axis": 1}}
    turns, further = written(launch, cached), phases.told(launch, 1, {}, 600.0)
    assert keeper.Keeper(".", 5.0, 1, further=further)(turns) == (RECORDED, "")
    assert Counter(one.outcome for one in records.all()) == {"done": 4}


@pytest.mark.parametrize("width", some([3, 1], 1))
def test_records_do_not_depend_on_the_jobs(cached, width):
    """Real trainings, a run first or later in a job of an engine, or in a process of its own."""
    file = tiny.grid(cached, rates="[0.1, 0.15]", steps=6)
    fresh, jobs = Records(cached / "fresh"), Records(cached / "jobs")
    execute(plan(grids.read(file), "smoke", records=fresh), fresh, {"kind": "local", "slots": 1, "fresh_process": True})
    (jobs.folder / "records").mkdir(parents=True)
    launch = Launch(plan(grids.read(file), "smoke", records=jobs), jobs, 0, None, lambda event: None)
    Forked(width).run(launch)
    assert launch.finish().outcomes == {"done": 4}
    assert contents(jobs) == contents(fresh)
