"""What has passed its checks is read from the cache, until something that the checks read changes."""

import subprocess
import sys
from functools import lru_cache

import pytest

from ablations.planning import checked, grids, reading, scale_files, scales
from lightning_modules.config import ConfigError
from lightning_modules.places import cache
from tests import tiny


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """This process remembers nothing, and other tests what they have read."""
    monkeypatch.setattr(grids, "_read", lru_cache(grids._read.__wrapped__.__wrapped__))
    monkeypatch.setattr(checked, "cache", cache)


@pytest.fixture
def counted(monkeypatch):
    """The files that were checked."""
    found, check = [], reading.checked

    def checking(file):
        found.append(file.stem)
        return check(file)

    monkeypatch.setattr(reading, "checked", checking)
    return found


def read(source):
    """A grid, as a new process reads it."""
    grids._read.cache_clear()
    scales._lineage.cache_clear()
    return grids.read(source)


@pytest.mark.nightly
def test_every_grid_is_read_as_it_was_checked_and_listed_without_torch(counted):
    names = list(grids.available())
    before = {name: read(name) for name in names}
    assert counted == names
    after = {name: read(name) for name in names}
    assert counted == names
    assert after == before
    assert [repr(grid) for grid in after.values()] == [repr(grid) for grid in before.values()]
    assert {name: scales.lineage(name) for name in scales.available()}
    code = "import sys; from ablations.commands.cli import app; app(['list'], standalone_mode=0); print(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {*listed.stdout.splitlines()[-1].split()}
    assert "ablations.planning.grids" in modules
    assert not {"torch", "scipy", "pandas"} & modules


def changed_grid(file, monkeypatch, tmp_path):
    file.write_text(file.read_text().replace("question: ", "question: Or "))


def changed_scale(file, monkeypatch, tmp_path):
    (tmp_path / "scales").mkdir()
    for path in scale_files.FOLDER.iterdir():
        (tmp_path / "scales" / path.name).write_text(path.read_text() + "\n# another line\n")
    monkeypatch.setattr(scale_files, "FOLDER", tmp_path / "scales")


def changed_code(file, monkeypatch, tmp_path):
    monkeypatch.setattr(checked, "code", lambda: "other code")


def altered_answer(file, monkeypatch, tmp_path):
    (kept,) = (cache() / "checked").glob(f"{file.stem}-*.json")
    kept.write_text(kept.read_text().replace("0.15", "0.25"))


@pytest.mark.parametrize("change", [changed_grid, changed_scale, changed_code, altered_answer])
def test_a_change_is_checked(counted, tmp_path, monkeypatch, change):
    file = tiny.grid(tmp_path)
    before = read(file)
    assert read(file) == before
    assert len(counted) == 1
    change(file, monkeypatch, tmp_path)
    after = read(file)
    assert len(counted) == 2
    assert (after == before) is (change is not changed_grid)
    assert read(file) == after
    assert len(counted) == 2


def test_a_wrong_grid_is_refused_each_time(tmp_path):
    file = tiny.grid(tmp_path)
    file.write_text(file.read_text().replace("seeds:", "seads:"))
    for _ in range(2):
        with pytest.raises(ConfigError, match="Did you mean 'seeds'"):
            read(file)
