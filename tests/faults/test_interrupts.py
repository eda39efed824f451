"""Ctrl-C: once for a checkpoint, twice for an end."""

import signal
import time

import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from tests import tiny
from tests.faults.support import attempts, contents, family, gone, wait_for

STEPS = 600
STORY = ["1 started", "1 interrupted", "1 started", "1 done"]


def test_interrupted_once_a_run_goes_on_from_its_checkpoint(cached, launch):
    grid = tiny.grid(cached, rates="[0.15]", steps=STEPS, seeds=1)
    reference = Records(cached / "reference")
    execute(plan(grids.read(grid), "smoke", records=reference), reference, "inline")

    records = Records(cached / "results")
    process = launch(grid)
    wait_for(process, "progress")
    below = family(process.pid)
    process.send_signal(signal.SIGINT)
    wait_for(process, "interrupted")
    assert process.wait() == 130
    assert gone(below) == []
    (folder,) = records.work_folders()
    assert (folder / "last.ckpt").exists()
    assert list(records.all()) == []
    assert not records.is_locked(folder.name)

    process = launch(grid)
    wait_for(process, "executed 1")
    assert process.wait() == 0
    assert contents(records) == contents(reference)
    assert [line.split(";")[0] for line in attempts(records)[folder.name]] == STORY
    assert not (folder / "last.ckpt").exists()


def test_interrupted_inline_it_goes_on_as_well(cached):
    grid = tiny.grid(cached, rates="[0.15]", steps=STEPS, seeds=1)
    reference, records = Records(cached / "reference"), Records(cached / "results")
    execute(plan(grids.read(grid), "smoke", records=reference), reference, "inline")
    usual = signal.getsignal(signal.SIGINT)

    def tell(event):
        if event.kind == "progress" and 0 < event.progress["step"] < STEPS:
            signal.raise_signal(signal.SIGINT)

    found = plan(grids.read(grid), "smoke", records=records)
    with pytest.raises(KeyboardInterrupt):
        execute(found, records, "inline", on_event=tell)
    assert signal.getsignal(signal.SIGINT) is usual
    assert list(records.all()) == []
    assert execute(found, records, "inline").outcomes == {"done": 1}
    assert contents(records) == contents(reference)
    assert [line.split(";")[0] for line in attempts(records)[found.runs[0].id]] == STORY


def test_interrupted_twice_it_ends_at_once(cached, launch):
    process = launch(tiny.grid(cached, rates="[0.15]", steps=100_000, seeds=1))
    wait_for(process, "progress")
    below = family(process.pid)
    for worker in below:
        if worker.ppid() != process.pid:  # below the fork server: a worker, which now answers no more
            worker.suspend()
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert gone(below) == []
