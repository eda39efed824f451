"""Ctrl-C, SIGTERM and SIGHUP: once for a checkpoint, twice for an end."""

import math
import os
import signal
import time

import pytest

from ablations.core.provenance import now
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import worker
from ablations.running.execute import execute
from ablations.running.launch import Launch
from ablations.running.worker import keep
from lightning_modules.training.module import Pretrain
from tests import tiny
from tests.depth import some
from tests.faults.support import attempts, contents, family, gone, wait_for

STEPS = 16
STORY = ["1 started", "1 interrupted", "1 started", "1 done"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The grid whose run the tests below disturb, and what its record says if nothing does."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        records = Records(folder / "results")
        grid = tiny.grid(folder, rates="[0.15]", steps=STEPS, seeds=1)
        execute(plan(grids.read(grid), "smoke", records=records), records, "inline")
        return grid, contents(records)


@pytest.mark.parametrize(
    ("send", "number", "word", "code"),
    some(
        [
            (os.kill, signal.SIGINT, "interrupted", 130),
            (os.kill, signal.SIGTERM, "ended by SIGTERM", 143),
            (os.killpg, signal.SIGHUP, "ended by SIGHUP", 129),
            (os.killpg, signal.SIGTERM, "ended by SIGTERM", 143),
        ],
        2,
    ),
)
def test_interrupted_once_a_run_goes_on_from_its_checkpoint(cached, launch, undisturbed, send, number, word, code):
    """Schedulers and closing terminals send to the whole group: the fork server and the runs get the signal too."""
    (grid, expected), records = undisturbed, Records(cached / "results")
    (cached / "hold").write_text(str(STEPS // 2))
    process = launch(grid)
    wait_for(process, "progress")
    below = family(process.pid)
    send(process.pid, number)
    wait_for(process, word)
    assert process.wait() == code
    assert gone(below) == []
    (folder,) = records.work_folders()
    assert (folder / "last.ckpt").exists()
    assert list(records.all()) == []
    assert not records.is_locked(folder.name)

    (cached / "hold").unlink()
    process = launch(grid)
    wait_for(process, "executed 1")
    assert process.wait() == 0
    assert contents(records) == expected
    assert [line.split(";")[0] for line in attempts(records)[folder.name]] == STORY
    assert not (folder / "last.ckpt").exists()


@pytest.fixture
def unignored():
    """Signals as in a terminal: under nohup, or in the background of a script, some are ignored, and stay so."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("unignored")
@pytest.mark.parametrize(
    ("number", "error", "code"),
    [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGHUP, SystemExit, 129)],
    ids=["SIGINT", "SIGHUP"],
)
def test_interrupted_inline_it_goes_on_as_well(cached, monkeypatch, capfd, undisturbed, number, error, code):
    (grid, expected), records = undisturbed, Records(cached / "results")
    monkeypatch.setattr(worker, "_PROGRESS_EVERY", 0.0)
    usual = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def tell(event):
        if event.kind == "progress" and event.progress["step"] == STEPS // 2:
            signal.raise_signal(number)

    found = plan(grids.read(grid), "smoke", records=records)
    with pytest.raises(error) as raised:
        execute(found, records, "inline", on_event=tell)
    assert getattr(raised.value, "code", None) == code
    assert ("the command again" in capfd.readouterr().err) == (code is not None)
    assert {each: signal.getsignal(each) for each in usual} == usual
    assert list(records.all()) == []
    assert execute(found, records, "inline").outcomes == {"done": 1}
    assert contents(records) == expected
    assert [line.split(";")[0] for line in attempts(records)[found.runs[0].id]] == STORY


def test_an_ignored_signal_stays_ignored(cached, monkeypatch):
    """As under nohup; and the caller's own handlers are back after an execution."""
    records = Records(cached / "results")
    handlers = {signal.SIGHUP: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL}
    usual = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        found = plan(grids.read(tiny.grid(cached, rates="[0.15]", steps=40, seeds=1)), "smoke", records=records)
        sent = []

        def tell(event):
            if event.kind == "progress" and not sent:
                sent.append(signal.raise_signal(signal.SIGHUP))

        assert execute(found, records, "inline", on_event=tell).outcomes == {"done": 1}
        assert sent
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def test_ended_inline_in_the_middle_of_a_measurement(cached, monkeypatch):
    """Lightning has a handler of its own that would end it there, without a checkpoint."""
    records, asked = Records(cached / "results"), []
    step = Pretrain.validation_step

    def validation_step(self, *arguments):
        if not asked:
            asked.append(signal.raise_signal(signal.SIGTERM))
        return step(self, *arguments)

    monkeypatch.setattr(Pretrain, "validation_step", validation_step)
    found = plan(grids.read(tiny.grid(cached, rates="[0.15]", steps=8, seeds=1)), "smoke", records=records)
    with pytest.raises(SystemExit) as ended:
        execute(found, records, "inline")
    assert ended.value.code == 143
    assert list(records.all()) == []
    assert (records.work_folder(found.runs[0].id) / "last.ckpt").exists()


def test_interrupted_twice_it_ends_at_once(cached, launch):
    process = launch(tiny.grid(cached, rates="[0.15]", steps=100_000, seeds=1))
    wait_for(process, "progress")
    below = family(process.pid)
    for child in below:
        if child.ppid() != process.pid:  # below the fork server: a worker, which now answers no more
            child.suspend()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert gone(below) == []


def test_a_run_that_takes_longer_than_the_time_is_made_in_parts(cached, monkeypatch):
    """Also after an attempt that was killed: its record is no end of the run."""
    monkeypatch.setattr(Launch, "seconds_to_make", lambda launch, run: math.inf)
    file, whole, parts = (
        tiny.grid(cached, rates="[0.15]", seeds=1, steps=800),
        Records(cached / "a"),
        Records(cached / "b"),
    )
    execute(plan(grids.read(file), "smoke", records=whole), whole, "inline")

    def lease():
        return execute(plan(grids.read(file), "smoke", records=parts), parts, "inline", until=time.monotonic() + 1.5)

    leases = [lease()]
    (run,) = plan(grids.read(file), "smoke", records=parts).runs
    if leases[-1].left:
        keep(run, parts, {"outcome": "killed", "detail": "its process ended without a record"}, now(), 1, here=False)
    while leases[-1].left and len(leases) < 400:  # of a busy machine many make no step
        leases.append(lease())
    assert len(leases) > 1
    assert [(one.left, one.failures, one.outcomes) for one in leases[:-1]] == [(1, [], {"missing": 1})] * len(
        leases[1:]
    )
    assert contents(parts) == contents(whole)
