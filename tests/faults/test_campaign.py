"""A campaign works with one process on one thread, behind everything else, and goes on after whatever ends it."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from tests import tiny
from tests.faults.support import attempts, contents, family, gone, until

STEPS = 300
RATE = "objectives.mlm.masking.rate"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The grid of the queue below, and what its records say if nothing disturbs them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        records = Records(folder / "results")
        grid = tiny.grid(folder, steps=STEPS, seeds=1)
        execute(plan(grids.read(grid), "smoke", records=records), records, "inline")
        return grid, contents(records)


@pytest.fixture
def queue(cached, undisturbed):
    rows = "".join(
        f"  - {{grid: {undisturbed[0]}, scale: smoke, slice: {{{RATE}: {rate}}}, reason: why}}\n"
        for rate in (0.4, 0.15)
    )
    (cached / "queue.yaml").write_text("rows:\n" + rows)
    return cached / "queue.yaml"


@pytest.fixture
def campaign(cached, queue):
    """Starts the command on ``results`` in the folder, in a session of its own."""
    started = []

    def start(*options):
        paths = ["--file", str(queue), "--results-dir", str(cached / "results")]
        environment = {name: value for name, value in tiny.environment(cached).items() if name != "OMP_NUM_THREADS"}
        process = subprocess.Popen(
            [sys.executable, "-m", "ablations", "campaign", "run", *paths, *options],
            env=environment, cwd=cached, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def progressed(records):
    return any((folder / "progress.json").exists() for folder in records.work_folders())


@pytest.mark.timeout(1800)  # three launches at the lowest priority
@pytest.mark.nightly
def test_killed_it_loses_nothing_and_at_the_end_of_its_time_it_ends_well(cached, campaign, undisturbed):
    records, expected = Records(cached / "results"), undisturbed[1]
    first, second = (run.id for run in reversed(plan(grids.read(undisturbed[0]), "smoke").runs))

    process = campaign("--for", "1h")
    until(lambda: progressed(records), 120)
    below = family(process.pid)
    assert {one.nice() for one in (psutil.Process(process.pid), *below)} == {19}
    assert [folder.name for folder in records.work_folders() if records.is_locked(folder.name)] == [first]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert gone(below) == []
    assert list(records.all()) == []

    (records.work_folder(first) / "progress.json").unlink()
    process = campaign("--for", "1h")
    until(lambda: progressed(records), 120)
    process.send_signal(signal.SIGALRM)  # the end of its time
    told, _ = process.communicate(timeout=240)
    assert process.returncode == 0, told
    assert "1 run left for want of time" in told
    assert {record.id for record in records.all()} == {second}  # whose estimate fitted
    assert (records.work_folder(first) / "last.ckpt").exists()

    process = campaign()
    told, _ = process.communicate(timeout=240)
    assert process.returncode == 0, told
    assert contents(records) == expected
    assert {record.provenance["threads"] for record in records.all()} == {1}
    begun = {run: [line.split(";")[0] for line in lines] for run, lines in attempts(records).items()}
    assert begun[second] == ["1 started", "1 done"]
    assert begun[first] == ["1 started", "1 started", "1 interrupted", "1 started", "1 done"]
