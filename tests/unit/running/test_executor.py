"""What engines share: runs are submitted while there is room, put back, tried again, stopped. The engine is made up."""

import json
import os
import signal
from pathlib import Path

import pytest

from ablations.core import provenance
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import attempts, keeper, worker, worker_process
from ablations.running.executor import Executor
from ablations.running.exit_codes import INTERRUPTED, RECORDED, UNFIT
from ablations.running.job import Job
from ablations.running.keeper import Ending
from ablations.running.launch import Launch
from ablations.running.ranks import memory
from ablations.schema.run import Run
from lightning_modules.config import ConfigError, Settings, knob
from lightning_modules.training.execution import Execution
from tests import tiny
from tests.unit.synthetic import RATE, make_cell


class Made(Executor):
    """An engine whose jobs end as a script says: run id -> endings of its attempts, the last of them for all others."""

    class Options(Settings):
        width: int = knob(2, "Jobs at once.", ge=1)

    def __init__(self, options):
        super().__init__(options)
        self.script, self.submitted, self.told, self.opened = {}, [], [], []
        self.turn = 0.0  # a run a job

    def open(self, launch):
        self.opened.append(True)
        self.records = launch.records

    def room(self):
        return self.options.width

    def submit(self, launch, turns):
        self.submitted.append([Path(path).parent.name for one in turns for path in one.configs])
        return [one.configs[0] for one in turns]

    def ending(self, job):
        run_id = Path(job).parent.name
        rest = self.script.get(run_id, [Ending(RECORDED)])
        ending = rest.pop(0) if len(rest) > 1 else rest[0]
        if ending is not None and ending.code == RECORDED and not ending.detail:
            data = Job.load(job)
            with self.records.lock(run_id):
                worker.keep(Run.read(data.run), self.records, {"outcome": "done"}, "", 1)
        return ending

    def send(self, jobs, number):
        self.told += [(number, Path(job).parent.name) for job in jobs]

    def close(self):
        self.opened.append(False)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Executes a grid of four runs on the engine; returns engine, launch and the runs' ids."""
    monkeypatch.setattr(Made, "poll", 0.001)
    monkeypatch.setattr(Made, "grace", 0.0)
    records = Records(tmp_path / "results")
    found = plan(grids.read(tiny.grid(tmp_path)), "smoke", records=records)
    (records.folder / "records").mkdir(parents=True)
    ids = [run.id for run in found.runs]

    def start(script=None, *, retries=1, deadline=None, width=2, patience=0.0, on_event=lambda event: None):
        engine = Made(Made.Options(width=width))
        engine.patience = patience
        engine.script = {ids[number]: endings for number, endings in (script or {}).items()}
        launch = Launch(found, records, retries, deadline, on_event)
        return engine, launch, ids

    return start


def test_runs_are_submitted_together_while_there_is_room(made):
    engine, launch, ids = made(width=3)
    engine.run(launch)
    assert engine.submitted == [ids[:3], ids[3:]]
    assert launch.finish().outcomes == {"done": 4}
    assert (launch.summary.executed, launch.summary.elsewhere) == (4, 0)
    assert engine.opened == [True, False]
    assert launch.seconds_left() in (0.0, None)


def test_a_run_that_is_put_back_is_submitted_again_and_not_counted(made):
    engine, launch, ids = made({0: [Ending(INTERRUPTED)] * 5 + [Ending(RECORDED)]}, retries=0)
    engine.run(launch)
    assert [ids[0] in batch for batch in engine.submitted].count(True) == 6
    summary = launch.finish()
    assert (summary.outcomes, summary.executed) == ({"done": 4}, 4)
    assert launch.records.get(ids[0]).provenance["attempts"] == 1


def test_an_attempt_of_a_node_that_was_lost_does_not_count_unless_its_process_lives(made):
    _, launch, ids = made()
    for run_id in ids[:2]:
        attempts.begin(launch.records, run_id, 1, "")
        launch.begin(launch.todo.pop(run_id))
    with launch.records.lock(ids[1]):
        for run in launch.plan.runs[:2]:
            launch.conclude(run, INTERRUPTED)
    assert [attempts.count(launch.records, run_id) for run_id in ids[:2]] == [0, 1]


def test_a_run_that_is_put_back_for_ever_is_given_up(made):
    engine, launch, ids = made({0: [Ending(INTERRUPTED)]}, retries=0)
    engine.run(launch)
    assert launch.finish().outcomes == {"done": 3, "failed": 1}
    assert 10 < len([batch for batch in engine.submitted if ids[0] in batch]) < 50


def test_a_lost_process_is_recorded_and_tried_again(made):
    lost = Ending(-signal.SIGKILL, "job 7 ended without a result")
    engine, launch, ids = made({1: [lost, Ending(RECORDED)], 2: [lost]})
    engine.run(launch)
    assert launch.finish().outcomes == {"done": 3, "killed": 1}
    record = launch.records.get(ids[2])
    assert (record.detail, record.provenance["attempts"]) == ("job 7 ended without a result", 2)


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize(("count", "outcome"), [([4, 5, 5, 6], "oom"), ([4, 4, 4, 4], "killed")])
def test_a_process_that_a_node_kills_for_memory_is_recorded_so_and_tried_again(
    made, monkeypatch, tmp_path, count, outcome
):
    """The node tells by what its kernel counts; the launcher's own counts nothing."""
    engine, launch, ids = made({})
    counted = iter(count)
    with monkeypatch.context() as patched:
        patched.setattr(memory, "kills", lambda: next(counted))
        patched.setattr(worker_process, "main", killed)
        path = launch.prepare(launch.todo[ids[0]], 1, {})
        keeper.Keeper(".", 1.0, 0)(keeper.Turns((str(path),), str(tmp_path / "diary")))
    *_, (_, *said, again) = map(json.loads, (tmp_path / "diary").read_text().splitlines())
    assert not again
    ending = Ending(*said)
    assert ("memory" in ending.detail) == (outcome == "oom")
    engine.script = {ids[0]: [ending, Ending(RECORDED)], ids[1]: [ending]}
    engine.run(launch)
    assert launch.finish().outcomes == {"done": 3, outcome: 1}
    assert launch.records.get(ids[1]).provenance["attempts"] == 2


def test_a_run_that_ends_elsewhere_before_its_process_looks_is_not_counted(made):
    engine, launch, _ = made()
    runs, submit = dict(launch.todo), engine.submit

    def submitted(launch, turns):  # the launcher has looked, the process has not
        for path in submit(launch, turns):
            with launch.records.lock(name := Path(path).parent.name):
                worker.keep(runs[name], launch.records, {"outcome": "done"}, "", 1)
        return [one.configs[0] for one in turns]

    engine.submit, engine.ending = submitted, lambda job: Ending(worker.attempt(Job.load(job), lambda: False))
    engine.run(launch)
    summary = launch.finish()
    assert (summary.outcomes, summary.executed, summary.elsewhere) == ({"done": 4}, 0, 4)


def test_an_engine_s_time_limit_is_a_time_out(made):
    engine, launch, ids = made({0: [Ending(1, "reached its time limit 4 times", timed_out=True)]})
    engine.run(launch)
    assert launch.finish().outcomes == {"done": 3, "timeout": 1}
    assert launch.records.get(ids[0]).detail == "reached its time limit 4 times"


def test_an_unfit_node_ends_the_launch_before_anything_is_written(made):
    engine, launch, ids = made({0: [Ending(UNFIT, "node n1: its code is not the launcher's")]}, width=4, patience=1.0)
    engine.script |= {run_id: [None, Ending(INTERRUPTED)] for run_id in ids[1:]}
    with pytest.raises(ConfigError, match="node n1"):
        engine.run(launch)
    assert [kind for kind, _ in engine.told] == [signal.SIGTERM] * 3
    assert list(launch.records.all()) == []
    assert engine.opened == [True, False]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_interrupted_the_jobs_are_stopped_and_those_that_stay_are_killed(made, error):
    def tell(event):
        if event.kind == "progress":
            raise error

    engine, launch, ids = made({0: [None]}, patience=0.05, width=2, on_event=tell)
    engine.script[ids[1]] = [None, None, Ending(INTERRUPTED)]
    begin = launch.begin

    def begun(run):
        begin(run)
        progress = {"step": 1, "steps": 2, "loss": 3.0, "tokens_per_second": 4.0}
        (launch.records.work_folder(run.id) / worker.PROGRESS).write_text(json.dumps(progress))

    launch.begin = begun
    with pytest.raises(error):
        engine.run(launch)
    assert engine.told == [(signal.SIGTERM, ids[0]), (signal.SIGTERM, ids[1]), (signal.SIGKILL, ids[0])]
    assert list(launch.records.all()) == []


def test_a_deadline_counts_from_the_lock_and_not_in_the_queue(made):
    engine, launch, ids = made({0: [None] * 50 + [Ending(RECORDED)]}, deadline=1e-6, width=4)
    engine.run(launch)
    assert engine.told == [], "nobody held the lock"
    assert launch.finish().outcomes == {"done": 4}

    engine, launch, ids = made({0: [None] * 50 + [Ending(INTERRUPTED)]}, deadline=1e-6, width=4)
    launch.records.path(ids[0]).unlink()
    launch.todo = {run.id: run for run in launch.plan.runs if run.id == ids[0]}
    submit, lock = engine.submit, launch.records.lock(ids[0])

    def submitted(*given):
        lock.acquire()
        return submit(*given)

    def told(jobs, number, send=engine.send):
        send(jobs, number)
        lock.release()

    engine.submit, engine.send = submitted, told
    engine.run(launch)
    assert engine.told[:2] == [(signal.SIGTERM, ids[0]), (signal.SIGKILL, ids[0])]
    assert launch.records.get(ids[0]).outcome == "timeout"


def test_a_node_that_cannot_make_runs_says_why(tmp_path, made, monkeypatch):
    _, launch, _ = made()
    run, folder = next(iter(launch.todo.values())), launch.records.folder
    assert "ABLATIONS_CACHE" in keeper.unfit(str(tmp_path / "elsewhere" / "run.json"))
    path = launch.prepare(run, 1, {})
    assert keeper.unfit(str(path)) == ""
    monkeypatch.setattr(provenance, "fingerprint", lambda: "0123456789abcdef")
    path = launch.prepare(run, 1, {})
    assert "0123456789abcdef" in keeper.unfit(str(path))
    code, detail = keeper.Keeper(str(tmp_path), 1.0, 1)(keeper.Turns((str(path),), str(tmp_path / "diary")))
    assert code == UNFIT
    assert detail.startswith("node ")
    folder.rename(folder.with_name("moved"))
    assert str(folder) in keeper.unfit(str(path))
    assert list(Records(folder.with_name("moved")).all()) == []


def test_the_record_of_a_pretraining_alone_says_on_how_many_devices_it_was_made(tmp_path):
    cell, records = make_cell({RATE: 0.4}, 1, task="rte"), Records(tmp_path)
    for run, devices in ((cell.runs[0], 4), (cell.finetunings[0], None)):
        with records.lock(run.id):
            worker.keep(run, records, {"outcome": "done"}, "", 1, execution=Execution(devices=2, nodes=2))
        assert records.get(run.id).provenance.get("devices") == devices
