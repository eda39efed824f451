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
from tests.faults.support import attempts, contents, family, gone, kill, wait_for

TWO = Execution(devices=2)
STEPS = 12


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, nursery_process, request):
    """The grid whose run the tests below disturb, what its record says if nothing does, and how devices share it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    grid, records = tiny.grid(folder, rates="[0.15]", steps=STEPS, seeds=1), Records(folder / "results")
    process = nursery_process(folder, "launcher", grid, records.folder, "local", 2, request.param)
    with process.stdout:
        wait_for(process, "executed 1")
        assert process.wait() == 0
    return grid, contents(records), request.param


def ranks_of(launcher):
    """The two processes of the run, rank 0 first: it has started the other."""
    *_, other = family(launcher.pid)  # the youngest
    return other.parent(), other


@pytest.mark.nightly
@pytest.mark.parametrize("undisturbed", ["fsdp"], indirect=True)  # of ddp a process is killed below
def test_stopped_and_killed_it_ends_in_the_same_numbers(cached, launch, undisturbed):
    """To the bit, dropout on: a checkpoint has the noise and the losses of both."""
    (grid, expected, strategy), records = undisturbed, Records(cached / "results")
    (run_id,) = expected
    (cached / "hold").write_text(str(STEPS // 3))
    process = launch(grid, devices=2, strategy=strategy)
    wait_for(process, "progress")
    below = family(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert gone(below) == []
    assert (records.work_folder(run_id) / "last.ckpt").exists()

    process = launch(grid, devices=2, strategy=strategy)
    wait_for(process, "progress")
    assert kill(process) == []

    (cached / "hold").unlink()
    process = launch(grid, devices=2, strategy=strategy)
    wait_for(process, "executed 1")
    assert process.wait(timeout=60) == 0
    assert contents(records) == expected


@pytest.mark.parametrize("undisturbed", ["ddp"], indirect=True)  # who notices a dead process is the same
@pytest.mark.parametrize(
    ("rank", "detail", "said"),
    [
        (0, "the process died of signal 9", ["1 started", "2 started", "2 done"]),
        (1, "rank 1: the process died of signal 9", ["1 started", "1 killed", "2 started", "2 done"]),
    ],
)
def test_one_of_the_two_killed_alone_ends_the_other_and_the_retry_makes_the_run(
    cached, launch, undisturbed, rank, detail, said
):
    (grid, expected, strategy), records = undisturbed, Records(cached / "results")
    (run_id,) = expected
    (cached / "hold").write_text(str(STEPS // 3))
    process = launch(grid, devices=2, strategy=strategy)
    wait_for(process, "progress")
    ranks = ranks_of(process)
    ranks[rank].kill()
    wait_for(process, f"started {run_id}")
    assert gone(list(ranks)) == []
    first = records.get(run_id)
    (cached / "hold").unlink()  # so far the retry stands still
    assert (first.outcome, first.detail) == ("killed", detail)
    wait_for(process, "executed")
    assert process.wait(timeout=60) == 0
    assert contents(records) == expected
    assert records.get(run_id).provenance["attempts"] == 2
    assert attempts(records)[run_id] == said
    assert not list(records.work_folder(run_id).glob("ranks-*"))


@pytest.mark.parametrize(
    ("execution", "executor", "naming"),
    [
        (Execution(devices=3), "local", "training.batch_size 4"),
        (Execution(devices=64), "local", "64 are needed"),
        (TWO, "inline", "local"),
    ],
)
def test_what_cannot_be_shared_is_refused_before_anything_trains(cached, execution, executor, naming):
    records = Records(cached / "results")
    found = plan(grids.read(tiny.grid(cached, seeds=1)), "smoke", records=records)
    with pytest.raises(ConfigError, match=naming):
        execute(found, records, executor, execution=execution)
    assert not list(records.files())
