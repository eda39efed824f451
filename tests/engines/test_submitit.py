"""The executor of Slurm on submitit's stand-in for it: interrupted, pre-empted, out of time, to the same bits."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from ablations.core.store import Records
from ablations.running import attempts as running
from ablations.running.execute import execute
from ablations.study import Study
from lightning_modules.training.execution import Execution
from tests import own_study, tiny
from tests.engines.conftest import deadly, in_the_middle, interrupt, planned
from tests.faults.support import attempts, contents, gone, until
from tests.forking import forked

pytest.importorskip("submitit")
STAND_IN = {"kind": "slurm", "cluster": "local"}


def command(process: psutil.Process) -> str:
    """The command line of a process; empty if it has ended just now."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def jobs() -> list[psutil.Process]:
    """The processes of submitit's jobs with what is below them, without the controllers that stand for Slurm."""
    below = psutil.Process(os.getpid()).children(recursive=True)
    found = [process for process in below if "submitit.core._submit" in command(process)]
    return found + [process for job in found for process in job.children(recursive=True)]


def submitted(folder) -> list[str]:
    """What a run's log says of its jobs."""
    lines = (folder / "log.txt").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if "submitted in job" in line]


def warn():
    """What Slurm sends to all processes of a job before it ends it."""
    for process in jobs():
        process.send_signal(signal.SIGUSR2)


def test_interrupted_and_pre_empted_runs_go_on_to_the_same_bits(undisturbed, records):
    grid, _, expected = undisturbed
    found = planned(grid, records)
    with pytest.raises(KeyboardInterrupt):
        execute(found, records, STAND_IN, on_event=in_the_middle(interrupt))
    assert gone(jobs()) == []
    assert list(records.all()) == []
    assert all((records.work_folder(run.id) / "last.ckpt").exists() for run in found.runs)

    summary = execute(found, records, STAND_IN, retries=0, on_event=in_the_middle(warn))
    assert (summary.outcomes, summary.executed) == ({"done": 2}, 2)
    assert contents(records) == expected
    story = ["1 started", "1 interrupted", "1 started", "1 interrupted", "1 started", "1 done"]
    for told in attempts(records).values():
        assert told == story


def test_out_of_time_once_too_often_they_are_timed_out_and_go_on_later(undisturbed, records):
    grid, _, expected = undisturbed
    short = {**STAND_IN, "time": 10, "timeouts": 0}  # in its last ten minutes submitit takes the signal for the limit
    summary = execute(planned(grid, records), records, short, on_event=in_the_middle(warn))
    assert summary.outcomes == {"timeout": 2}
    assert {record.detail for record in records.all()} == {
        "reached its time limit once. Run the command again to continue"
    }
    assert execute(planned(grid, records), records, "local").outcomes == {"done": 2}
    assert contents(records) == expected


def test_a_run_that_always_dies_costs_its_job_no_other(undisturbed, records):
    grid, _, expected = undisturbed
    found = planned(grid, records)
    poison, other = (run.id for run in found.runs)
    one_job = {**STAND_IN, "parallel": 1}
    summary = execute(found, records, one_job, retries=1, on_event=deadly(records, poison))
    assert (summary.outcomes, summary.executed) == ({"done": 1, "killed": 1}, 3)
    record = records.get(poison)
    assert (record.detail, record.provenance["attempts"]) == ("the process died of signal 11", 2)
    assert contents(records)[other] == expected[other]
    (said,) = {line for folder in records.work_folders() for line in submitted(folder)}
    assert "submitted in job" in said


def test_a_job_whose_launcher_is_gone_continues_from_a_search_to_its_evaluation(records, tmp_path):
    search = "search:\n  axes: {optimizer.peak_lr: [1.0e-3, 3.0e-3]}\n  metric: heldout.loss\n  seeds: 1\n"
    grid = tiny.grid(tmp_path, rates="[0.15]", seeds=1, extra=search)
    study = Study(grid, "smoke", results_dir=records.folder)
    child = forked(lambda: study.run({**STAND_IN, "parallel": 1}))
    until(lambda: any(running.known(records)), 300)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not study.resolve().is_finished
    until(lambda: study.resolve().is_finished, 300)
    assert study.resolve().counts == {"done": 3}
    assert all(record.provenance["attempts"] == 1 for record in records.all())


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The file of a grid of one run, and what the local executor records where two processes share it."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        grid, records = tiny.grid(folder, rates="[0.15]", steps=250, seeds=1), Records(folder / "results")
        execute(planned(grid, records), records, execution=Execution(devices=2))
        return grid, contents(records)


@pytest.mark.parametrize("execution", [Execution(devices=2), Execution(nodes=2)], ids=["one node", "two nodes"])
def test_processes_that_share_a_run_are_pre_empted_together(records, monkeypatch, shared, execution):
    """All of them get the signal; the job goes on to the bits of an undisturbed run of the local executor."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # as a cluster's administrator says; this machine is all nodes
    grid, expected = shared
    warned = in_the_middle(warn, runs=1)
    summary = execute(planned(grid, records), records, STAND_IN, retries=0, on_event=warned, execution=execution)
    assert summary.outcomes == {"done": 1}, str(summary)
    assert contents(records) == expected
    (told,) = attempts(records).values()
    assert told == ["1 started", "1 interrupted", "1 started", "1 done"]
    assert gone(jobs()) == []
    (record,) = records.all()
    assert (record.provenance["devices"], record.provenance.get("nodes", 1)) == (2, execution.nodes)


def test_jobs_know_the_parts_of_a_study(tmp_path):
    own_study.parts(tmp_path / "study")
    words = ["run", "own", "--scale", "smoke", "--no-notebook", "--executor", "slurm"]
    call = [sys.executable, "-m", "ablations", *words, "--executor-option", "cluster=local"]
    subprocess.run(call, cwd=tmp_path / "study", env=tiny.environment(tmp_path), check=True)
    records = Records(tmp_path / "study" / "results" / "unpublished").all()
    assert [record.outcome for record in records] == ["done"] * 4
