"""What the executor asks of Slurm and makes of its answers; shell scripts stand for its commands."""

import pickle
import signal

import pytest

from ablations.running import worker
from ablations.running.engines import slurm
from ablations.running.execute import chosen, execute
from ablations.running.exit_codes import FAILED, INTERRUPTED, NO_MEMORY, UNFIT
from ablations.running.keeper import Ending, Turns
from ablations.running.launch import Launch
from lightning_modules.config import ConfigError
from lightning_modules.training.execution import ALONE, Execution
from tests import tiny
from tests.engines.conftest import planned

pytest.importorskip("submitit")

COMMANDS = {
    "sbatch": 'cp "$1" {0}/script; echo "Submitted batch job 42"',
    "srun": "true",
    "squeue": "cat {0}/queue",
    "scancel": 'echo "$@" >> {0}/cancelled',
    "scontrol": "echo JobId=42 JobState=$(cat {0}/state) Reason=None",
}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder with what the commands were told and what they answer."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    for name, body in COMMANDS.items():
        (folder / name).write_text(f"#!/bin/sh\n{body.format(folder)}\n")
        (folder / name).chmod(0o755)
    (folder / "queue").write_text("42_0\n42_1\n")
    (folder / "state").write_text("RUNNING")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(slurm, "_LISTING", 0.0)
    monkeypatch.setattr(slurm, "_LATE", 0.0)
    return folder


@pytest.fixture
def submitted(cluster, records, tmp_path):
    """Submits two runs; returns the executor and their jobs."""

    def start(execution=ALONE, **options):
        found = planned(tiny.grid(tmp_path, seeds=1), records)
        (records.folder / "records").mkdir(parents=True)
        launch = Launch(found, records, 1, None, lambda event: None, execution)
        engine = chosen({"kind": "slurm", **options})
        engine.open(launch)
        turns = [Turns((str(launch.prepare(run, 1, {})),), str(tmp_path / run.id)) for run in found.runs]
        return engine, engine.submit(launch, turns)

    return start


def test_an_array_is_submitted_with_what_was_asked(cluster, submitted):
    submitted(partition="gpu", account="lab", gpus=1, cpus=4, memory=1.5, parallel=8, setup=["module load cuda"])
    script = (cluster / "script").read_text().splitlines()
    asked = {line.removeprefix("#SBATCH --") for line in script if line.startswith("#SBATCH")}
    assert asked >= {"partition=gpu", "account=lab", "gpus-per-node=1", "cpus-per-task=4", "mem=1500M", "array=0-1%2"}
    assert asked >= {"requeue", "signal=USR2@120", "time=30", "open-mode=append"}
    assert "module load cuda" in script


def test_each_device_of_a_run_has_what_was_asked(cluster, submitted):
    submitted(Execution(devices=2), gpus=1, cpus=4)
    script = (cluster / "script").read_text().splitlines()
    assert {"#SBATCH --gpus-per-node=2", "#SBATCH --cpus-per-task=8"} <= set(script)


def test_each_node_of_a_run_has_a_task_and_all_end_when_one_fails(cluster, submitted):
    submitted(Execution(devices=2, nodes=3), gpus=1, cpus=4)
    script = (cluster / "script").read_text().splitlines()
    assert {"#SBATCH --nodes=3", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=2"} <= set(script)
    assert any("srun" in line and "--kill-on-bad-exit=1" in line for line in script)


def test_a_further_node_that_cannot_take_part_ends_the_job_with_its_reason(cluster, submitted):
    engine, (job, _) = submitted(Execution(nodes=2))
    second = job.task(1).paths.result_pickle
    second.write_bytes(pickle.dumps(("success", (UNFIT, "node b: the cache cannot be read"))))
    assert engine.ending(job) == Ending(UNFIT, "node b: the cache cannot be read")
    assert (cluster / "cancelled").read_text() == "--signal=KILL 42_0\n"


def test_a_further_node_that_fails_ends_the_job_and_its_reason_is_told_once(cluster, submitted):
    engine, (job, _) = submitted(Execution(nodes=2))
    second = job.task(1).paths.result_pickle
    second.write_bytes(pickle.dumps(("success", (-9, "node b: what takes part there ended with code -9"))))
    assert engine.ending(job) == Ending(FAILED, "node b: what takes part there ended with code -9")
    assert (cluster / "cancelled").read_text() == "--signal=KILL 42_0\n"


def test_what_is_not_asked_is_left_to_the_cluster(cluster, submitted):
    submitted()
    script = (cluster / "script").read_text()
    assert not any(word in script for word in ("partition", "account", "gpus", "mem", "constraint"))


@pytest.mark.parametrize(
    ("state", "code", "timed_out"),
    [
        ("PREEMPTED", INTERRUPTED, False),
        ("NODE_FAIL", INTERRUPTED, False),
        ("TIMEOUT", -signal.SIGKILL, True),
        ("OUT_OF_MEMORY", NO_MEMORY, False),
    ],
)
def test_a_job_that_left_the_queue_without_a_result_ended_as_the_controller_says(
    cluster, submitted, records, state, code, timed_out
):
    engine, (first, second) = submitted()
    assert engine.ending(first) is None
    (cluster / "queue").write_text("42_1\n")
    (cluster / "state").write_text(state)
    first.paths.stderr.write_text("slurmstepd: error: something\n")
    engine.ending(first)
    ending = engine.ending(first)
    assert "slurmstepd: error: something" in ending.said
    assert (ending.code, ending.timed_out) == (code, timed_out)
    assert ending.detail == f"job 42_0 ended without a result: {state}"
    assert engine.ending(second) is None
    logs = [(folder / worker.LOG).read_text() for folder in records.work_folders()]
    assert ["submitted in job 42_0" in log for log in logs].count(True) == 1


def test_a_job_that_was_cancelled_in_the_queue_is_not_waited_for_as_one_whose_result_may_come(
    cluster, submitted, monkeypatch
):
    monkeypatch.setattr(slurm, "_LATE", 60.0)
    engine, (first, second) = submitted()
    second.paths.stdout.write_text("it has begun\n")
    (cluster / "queue").write_text("")
    (cluster / "state").write_text("CANCELLED")
    assert engine.ending(second) is None
    assert engine.ending(first) is not None


def test_while_the_controller_does_not_answer_no_job_is_given_up(cluster, submitted):
    engine, jobs = submitted()
    assert engine.ending(jobs[0]) is None
    (cluster / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert [engine.ending(job) for job in jobs * 3] == [None] * 6
    (cluster / "squeue").write_text("#!/bin/sh\ntrue\n")
    engine.ending(jobs[0])
    assert engine.ending(jobs[0]) is not None


def test_jobs_are_stopped_and_killed(cluster, submitted):
    engine, jobs = submitted()
    engine.send(jobs, signal.SIGTERM)
    engine.send(jobs[:1], signal.SIGKILL)
    assert (cluster / "cancelled").read_text() == "42_0 42_1\n--signal=KILL 42_0\n"


def test_a_refusal_of_slurm_is_passed_on(cluster, records, tmp_path):
    (cluster / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gqu' >&2; exit 1\n")
    with pytest.raises(ConfigError, match="invalid partition specified: gqu"):
        execute(planned(tiny.grid(tmp_path), records), records, {"kind": "slurm", "partition": "gqu"})
    assert list(records.all()) == []


def test_without_slurm_it_says_where_to_go(records, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"sbatch, srun, squeue not found.*cluster=local"):
        execute(planned(tiny.grid(tmp_path), records), records, "slurm")
