"""Launchers on one results folder know of each other: none makes another's runs with other code."""

import errno

import pytest

from ablations.core import provenance
from ablations.core.store import Records
from ablations.running import launchers
from ablations.running.launchers import registered
from lightning_modules.config import ConfigError

RUNS = ["0" * 16, "1" * 16]


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path)


@pytest.fixture
def code(monkeypatch):
    """Sets the fingerprint of this process's code."""
    return lambda digits: monkeypatch.setattr(provenance, "fingerprint", lambda: digits)


def notes(records):
    return sorted((records.folder / ".locks" / "launchers").iterdir())


def test_other_code_on_the_same_runs_is_refused_and_named(records, code):
    code("a" * 16)
    with registered(records, RUNS):
        code("b" * 16)
        refused = pytest.raises(ConfigError, match=rf"makes 1 of these runs .*{'a' * 16}, here .*{'b' * 16}")
        with refused, registered(records, [RUNS[1], "2" * 16]):
            raise AssertionError("it was let in")
        with registered(records, ["2" * 16]):
            assert len(notes(records)) == 4, "other runs are no conflict"
    with registered(records, RUNS):
        assert len(notes(records)) == 2, "the first one has ended"


def test_a_launcher_that_was_killed_is_forgotten(records, code):
    with registered(records, RUNS):
        (note,) = [path for path in notes(records) if path.suffix == ".json"]
        left = note.read_bytes()
    dead = note.with_stem("d" * 16)
    dead.write_bytes(left)
    code("b" * 16)
    with registered(records, RUNS):
        assert not dead.exists()


def test_a_full_disk_is_left_to_the_runs_to_report(records, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(launchers, "write", full)
    with registered(records, RUNS):
        pass
    assert notes(records) == []
