"""A full disk: what was there stays whole, the message names path and bytes, nothing is tried for ever."""

import errno
import os
import resource
import shutil
import signal
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records, StoreError, write
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules import pretraining as fitting
from lightning_modules.cached import CacheError
from lightning_modules.training.execution import Execution
from tests import finished, tiny
from tests.faults.support import contents
from tests.messages import naming


@contextmanager
def room_for(size):
    """Lets this process write files of at most so many bytes; a longer one is cut short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, usual)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_whatever_step_fails_the_old_file_stays(tmp_path, monkeypatch, call):
    path = tmp_path / "file.json"
    write(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StoreError, match=naming("file.json", "No space left on device")):
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


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A results folder with one page and its records, and a copy of it where one record more is gone."""
    known = grids.available()
    monkeypatch.setattr(grids, "available", lambda *_: {"masking_ratio": known["masking_ratio"]})
    old, new = finished.records(tmp_path / "old", "masking_ratio"), Records(tmp_path / "new")
    tables(old.folder)
    old.files()[0].unlink()
    shutil.copytree(old.folder, new.folder)
    tables(new.folder)
    return old.folder, new.folder


def tables(folder):
    return CliRunner().invoke(app, ["tables", "--results-dir", str(folder)])


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_pages_are_whole_on_a_disk_that_fills_up_while_they_are_written(published):
    old, new = published
    before, after = files(old), files(new)
    with room_for(6_000):
        done = tables(old)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2
    assert "File too large" in done.output
    assert "some space" in done.output
    assert str(old) in done.output
    found = files(old)
    assert found.keys() == before.keys()
    assert all(content in (before[name], after[name]) for name, content in found.items())
    assert tables(old).exit_code == 0
    assert files(old) == after


@pytest.mark.parametrize("room", [100, 1_000, 4_000, 20_000, 60_000])
def test_whatever_a_run_writes_when_the_disk_is_full_it_says_where(cached, monkeypatch, room):
    """The text, the cache, checkpoints, weights or the record: the path is named, and a rerun has the same numbers."""
    grid = grids.read(tiny.grid(cached, rates="[0.15]", steps=6, seeds=1))
    reference, records = Records(cached / "reference"), Records(cached / "results")
    monkeypatch.setenv("ABLATIONS_CACHE", str(cached / "another"))
    execute(plan(grid, "smoke", records=reference), reference, "inline")
    monkeypatch.setenv("ABLATIONS_CACHE", str(cached / "cache"))
    found, fit = plan(grid, "smoke", records=records), fitting.fit
    with monkeypatch.context() as patched, room_for(room):
        often = {"execution": Execution(checkpoint_seconds=0.0)}
        patched.setattr(fitting, "fit", lambda *given, **named: fit(*given, **named | often))
        try:
            said = str(execute(found, records, "inline"))
        except CacheError as error:
            said = str(error)
            assert "ABLATIONS_CACHE" in said
    assert str(cached) in said
    assert "full" in said or "File too large" in said
    assert not list(cached.rglob("*.tmp"))
    assert not list((cached / "cache").glob("stores/*/*.building-*"))
    assert execute(plan(grid, "smoke", records=records), records, "inline").outcomes == {"done": 1}
    assert contents(records) == contents(reference)
