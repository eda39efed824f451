"""What these tests share: their marks, and a grid with what the local executor makes of it."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import Plan, plan
from ablations.running import attempts as running
from ablations.running.execute import execute
from ablations.study import Study
from tests import tiny
from tests.faults.support import contents

HERE = Path(__file__).parent
STEPS = 1000  # so many that a run can be disturbed in its middle


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    """They are slow too: `make quick` says `-m "not slow"`, which takes the place of the usual `-m "not engines"`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The file of a grid of two runs, and what the local executor records of them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        grid, records = tiny.grid(folder, steps=STEPS, seeds=1), Records(folder / "results")
        summary = execute(planned(grid, records), records, "local")
        assert summary.outcomes == {"done": 2}
        return grid, records.folder, contents(records)


def planned(grid: Path, records: Records) -> Plan:
    """The plan of a grid."""
    return plan(grids.read(grid), "smoke", records=records)


def in_the_middle(act, runs=2):
    """An ``on_event`` that acts once, when so many runs have begun."""
    begun, acted = set(), []

    def tell(event):
        if event.kind == "progress":
            begun.add(event.run_id)
        if len(begun) == runs and not acted:
            acted.append(True)
            act()

    return tell


def interrupt():
    """What Ctrl-C does."""
    raise KeyboardInterrupt


def deadly(records: Records, run_id: str):
    """An ``on_event`` that lets a run die of SIGSEGV whenever it trains."""

    def tell(event):
        if event.kind == "progress" and event.run_id == run_id and (made := running.of(records, run_id)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(made.pid, signal.SIGSEGV)

    return tell


def published(grid: Path, records: Records, folder: Path) -> dict[str, bytes]:
    """The bytes of all files that publishing a grid writes, from a copy of a store with measured times made equal.

    Tables name the seconds of runs, which no two executions share. Whatever else a record says stays as it was.

    Args:
        grid: The file of the grid, to which a page says the way from its results folder.
        records: The store.
        folder: For the copy; to be compared, copies lie side by side.
    """
    shutil.copytree(records.folder, folder, ignore=shutil.ignore_patterns(".locks"))
    copy, sources = Records(folder), set(records.folder.rglob("*"))
    for record in records.all():
        copy.path(record.id).unlink()
        copy.put(record.model_copy(update={"cost": {**record.cost, "seconds": 1.0, "tokens_per_second": 1.0}}))
    Study(grid, "smoke", results_dir=folder).publish()
    written = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in written.items() if records.folder / name not in sources}


@pytest.fixture
def records(tmp_path, monkeypatch) -> Records:
    """A store with a cache of its own."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    return Records(tmp_path / "results")
