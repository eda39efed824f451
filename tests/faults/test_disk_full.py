"""A full disk: what was there stays whole, the message names path and bytes, nothing is tried for ever."""

import errno
import os
import subprocess
import sys

import pytest

from ablations.core.store import Records, StoreError, write
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from tests import tiny
from tests.unit.core.test_store import make_record

# A limit on the size of files is a disk that fills up: writes stop half-way with an OSError.
LIMITED = """
import resource, signal, sys
from ablations.core.store import Records, StoreError
records = Records(sys.argv[1])
(record,) = records.all()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    records.put(record.model_copy(update={"metrics": {"heldout.loss": 1.0}}))
except StoreError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_record_cut_short_by_the_disk_leaves_the_old_one(tmp_path):
    records = Records(tmp_path / "results")
    stored = records.put(make_record())
    path = records.path(stored.id)
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(records.folder)],
        env=tiny.environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "File too large" in done.stdout
    assert "the file is unchanged" in done.stdout
    assert str(path) in done.stdout
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert records.verify() == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_whatever_step_fails_the_old_file_stays(tmp_path, monkeypatch, call):
    path = tmp_path / "file.json"
    write(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StoreError, match=r"No space left on device.*file\.json"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]


def test_a_grid_on_a_full_disk_says_so_and_stops(cached, monkeypatch):
    records = Records(cached / "results")
    grid = grids.read(tiny.grid(cached, steps=4, seeds=1))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    found = plan(grid, "smoke", records=records)
    with monkeypatch.context() as patched:
        patched.setattr(Records, "put", lambda self, record: full())
        summary = execute(found, records, "inline", retries=5)
    assert summary.executed == 2
    assert not summary.complete
    assert all(problem.startswith("disk full: ") for problem in summary.problems)
    assert summary.outcomes == {"missing": 2}
    assert execute(plan(grid, "smoke", records=records), records, "inline").outcomes == {"done": 2}
