"""A worker that has lost its lock and does not know it: whatever it has made comes too late."""

import os
import shutil
import signal

import psutil
import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import worker
from ablations.running.execute import execute
from tests import tiny
from tests.faults.support import attempts, until


def is_stopped(note):
    number = note.read_text() if note.exists() else ""  # it may be there and not yet written
    return bool(number) and psutil.Process(int(number)).status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("earlier", ["nothing", "an attempt"])
def test_a_worker_stopped_before_its_record_and_continued_too_late_says_so(cached, begin, earlier):
    grid, note = tiny.grid(cached, rates="[0.15]", seeds=1), cached / "note"
    records = Records(cached / "results")
    (run,) = plan(grids.read(grid), "smoke", records=records).runs
    if earlier == "an attempt":
        assert worker.keep(run, records, {"outcome": "killed"}, "long ago", 1)
    child = begin("stop_at_the_end", grid, records.folder, note)
    until(lambda: is_stopped(note))
    stopped = int(note.read_text())
    try:
        assert records.is_locked(run.id)
        shutil.rmtree(records.folder / ".locks")  # as a file server does that forgets a client it no longer hears
        summary = execute(plan(grids.read(grid), "smoke", records=records), records, "inline")
        assert (summary.executed, summary.duplicates, summary.outcomes) == (1, 0, {"done": 1})
        path = records.path(run.id)
        before = {file: file.read_bytes() for file in path.parent.iterdir()}
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert child.wait() == 0
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    assert [path.stem for path in records.files()] == [run.id]
    assert records.verify() == []
    assert "1 of them after another process had recorded the run" in note.read_text()
    assert note.read_text().startswith("1 done")
    told = attempts(records)[run.id]
    assert [line for line in told if "too late" in line] == told[-1:]
