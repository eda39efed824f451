"""A run that two processes share: stopped and killed, it ends as if undisturbed."""

import signal

import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.config import ConfigError
from lightning_modules.training.execution import Execution
from tests import tiny
from tests.faults.support import contents, family, gone, kill, wait_for


def test_stopped_and_killed_it_ends_in_the_same_numbers(cached, launch):
    """To the bit, dropout on: a checkpoint has the noise and the losses of both."""
    grid = tiny.grid(cached, rates="[0.15]", steps=300, seeds=1)
    reference, records = Records(cached / "reference"), Records(cached / "results")
    execute(plan(grids.read(grid), "smoke", records=reference), reference, execution=Execution(devices=2))
    (expected,) = reference.all()
    assert expected.outcome == "done", expected.detail
    for file in reference.work_folder(expected.id).iterdir():
        file.unlink()

    process = launch(grid, devices=2)
    wait_for(process, "progress")
    below = family(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert gone(below) == []
    assert (records.work_folder(expected.id) / "last.ckpt").exists()

    process = launch(grid, devices=2)
    wait_for(process, "progress")
    assert kill(process) == []

    process = launch(grid, devices=2)
    wait_for(process, "executed 1")
    assert process.wait(timeout=60) == 0
    assert contents(records) == contents(reference)


@pytest.mark.parametrize(
    ("execution", "executor", "naming"),
    [
        (Execution(devices=3), "local", "training.batch_size 4"),
        (Execution(devices=64), "local", "64 are asked for"),
        (Execution(devices=2), "inline", "local"),
    ],
)
def test_what_cannot_be_shared_is_refused_before_anything_trains(cached, execution, executor, naming):
    records = Records(cached / "results")
    found = plan(grids.read(tiny.grid(cached, seeds=1)), "smoke", records=records)
    with pytest.raises(ConfigError, match=naming):
        execute(found, records, executor, execution=execution)
    assert not list(records.files())
