"""The executor of Slurm on a real one of two nodes, which `slurm_cluster.sh start` makes on this machine; skipped where
none runs.

Its partition `low` gives way to `high`: jobs are told to write their checkpoint, and are put back in the queue.
"""

import shutil
import subprocess
import time

import pytest

from ablations.core.store import Records
from ablations.running.engines.slurm import Slurm
from ablations.running.execute import execute
from lightning_modules.training.execution import Execution
from tests import tiny
from tests.engines.conftest import in_the_middle, interrupt, planned
from tests.faults.support import attempts, contents

pytest.importorskip("submitit")


def answer(*command: str) -> str:
    """What a command of Slurm prints; empty where there is none, or no controller."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()


pytestmark = pytest.mark.skipif(
    answer("sinfo", "--noheader", "--format=%P", "--partition=high") != "high",
    reason="no Slurm with partitions low and high: sh tests/engines/slurm_cluster.sh start",
)
LOW = {"kind": "slurm", "partition": "low"}


@pytest.fixture
def records(tmp_path_factory, monkeypatch) -> Records:
    """A store with a cache of its own; no job of these tests is left in the queue."""
    folder = tmp_path_factory.mktemp("slurm")
    monkeypatch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
    monkeypatch.setattr(Slurm, "turn", 0.0)  # a job for each run, so that two of them are disturbed
    yield Records(folder / "results")
    answer("scancel", "--partition=low", "--partition=high")


def left(seconds: float = 60.0) -> str:
    """The jobs that are still in the queue after some seconds: a job that was told to stop takes its time to end."""
    until = time.monotonic() + seconds
    while (jobs := answer("squeue", "--noheader", "--array", "--format=%P %T")) and time.monotonic() < until:
        time.sleep(1)
    return jobs


def pre_empt():
    """Needs all cores of both nodes for five seconds."""
    answer("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 5")


def test_a_pre_empted_job_is_put_back_and_goes_on_to_the_same_bits(undisturbed, records):
    grid, _, expected = undisturbed
    summary = execute(planned(grid, records), records, LOW, retries=0, on_event=in_the_middle(pre_empt))
    assert (summary.outcomes, summary.executed) == ({"done": 2}, 2)
    assert contents(records) == expected
    for told in attempts(records).values():
        assert told == ["1 started", "1 interrupted", "1 started", "1 done"]


def test_a_run_that_two_nodes_share_is_pre_empted_and_goes_on_to_the_same_bits(records, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # both nodes are this machine, whose name may be unknown to it
    grid, undisturbed = tiny.grid(tmp_path, rates="[0.15]", seeds=1, steps=600), Records(tmp_path / "undisturbed")
    execute(planned(grid, undisturbed), undisturbed, execution=Execution(devices=2))
    two, warned = Execution(nodes=2), in_the_middle(pre_empt, runs=1)
    summary = execute(planned(grid, records), records, LOW, retries=0, on_event=warned, execution=two)
    assert summary.outcomes == {"done": 1}, str(summary)
    assert contents(records) == contents(undisturbed)
    (record,), (told,) = records.all(), attempts(records).values()
    assert (record.provenance["devices"], record.provenance["nodes"]) == (2, 2)
    assert told == ["1 started", "1 interrupted", "1 started", "1 done"]
    assert (records.work_folder(record.id) / "log-node-1.txt").exists()
    assert left() == ""


def test_an_interrupted_command_leaves_no_job_and_goes_on_later(undisturbed, records):
    grid, _, expected = undisturbed
    with pytest.raises(KeyboardInterrupt):
        execute(planned(grid, records), records, LOW, on_event=in_the_middle(interrupt))
    assert left() == ""
    assert all((records.work_folder(run.id) / "last.ckpt").exists() for run in planned(grid, records).runs)
    assert execute(planned(grid, records), records, LOW).outcomes == {"done": 2}
    assert contents(records) == expected


def test_jobs_cancelled_by_hand_write_checkpoints_and_are_submitted_again(undisturbed, records):
    grid, _, expected = undisturbed
    cancel = in_the_middle(lambda: answer("scancel", "--partition=low"))
    summary = execute(planned(grid, records), records, LOW, retries=0, on_event=cancel)
    assert summary.outcomes == {"done": 2}
    assert contents(records) == expected
