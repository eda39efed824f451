"""The check of a file system's locks, with locks that fail in each way."""

import os
import sys

import pytest
from filelock import Timeout

from ablations.core.disk import locks
from lightning_modules.config import ConfigError


class OfOneProcess:
    """A lock that other processes do not see, as on a file system that pretends to lock."""

    held: set[str] = set()

    def __init__(self, path):
        self.path = path

    def acquire(self, timeout):
        if self.path in self.held:
            raise Timeout(self.path)
        self.held.add(self.path)

    def release(self):
        self.held.discard(self.path)


class Surviving:
    """A lock that stays when its holder dies: a file that is there."""

    def __init__(self, path):
        self.path, self.own = f"{path}.held", False

    def acquire(self, timeout):
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise Timeout(self.path) from None
        self.own = True

    def release(self):
        if self.own:
            os.unlink(self.path)
        self.own = False


class Refusing(Surviving):
    def acquire(self, timeout):
        raise OSError(37, "No locks available")


class Softened(Surviving):
    """What filelock becomes where the file system has no locks."""

    def acquire(self, timeout):
        self.__class__ = Surviving


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (OfOneProcess, "a second process got a lock that the first one held"),
        (Surviving, "a lock stays when the process that holds it has died"),
        (Refusing, "No locks available"),
        (Softened, "the file system has no locks"),
    ],
)
def test_a_lock_that_does_not_lock_is_caught(tmp_path, kind, said):
    assert said in locks.between_processes(tmp_path, kind)


def test_a_python_that_cannot_be_started_is_no_fault_of_the_locks(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("")  # and without permission to run it
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(locks, "_sound", set())
    folder = tmp_path / "results"
    folder.mkdir()
    with pytest.raises(ConfigError) as raised:
        locks.check(folder)
    assert str(python) in str(raised.value)
    assert "Permission denied" in str(raised.value)
    assert "locks do not work" not in str(raised.value)
    assert list(folder.iterdir()) == []


def test_locks_that_work_are_passed_and_leave_nothing(tmp_path):
    assert locks.between_processes(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


TABLE = """\
/dev/vda / ext4 rw 0 0
files:/home {folder} nfs rw,vers=3,{options} 0 0
files:/other {folder}er nfs rw,nolock 0 0
"""


@pytest.mark.parametrize("option", ["nolock", "local_lock=all", "local_lock=flock"])
def test_a_network_folder_without_locks_is_refused_by_its_option(tmp_path, monkeypatch, option):
    folder = tmp_path / "my results"
    folder.mkdir()
    table = tmp_path / "mounts"
    table.write_text(TABLE.format(folder=str(tmp_path).replace(" ", "\\040"), options=option))
    monkeypatch.setattr(locks, "_MOUNTS", table)
    monkeypatch.setattr(locks, "_sound", set())
    with pytest.raises(ConfigError) as raised:
        locks.check(folder)
    assert all(word in str(raised.value) for word in (str(folder), option, "files:/home", "--results-dir"))


@pytest.mark.parametrize("options", ["lock,local_lock=none", "local_lock=posix"])
def test_a_network_folder_with_locks_is_none_of_these(tmp_path, options):
    mount = locks.mounted(tmp_path, TABLE.format(folder=tmp_path, options=options))
    assert mount.source == "files:/home"
    assert locks.shared_without_locks(mount) == ""


def test_names_with_spaces_and_the_innermost_mount_are_found(tmp_path):
    inner = tmp_path / "a b" / "c"
    inner.mkdir(parents=True)
    shown = str(tmp_path / "a b").replace(" ", "\\040")
    table = f"one / ext4 rw 0 0\ntwo {tmp_path} nfs rw 0 0\nthree {shown} fuse.sshfs rw 0 0\nodd line\n"
    assert locks.mounted(inner, table).source == "three"
    assert "fuse.sshfs" in locks.shared_without_locks(locks.mounted(inner, table))
    assert locks.mounted(tmp_path, table).source == "two"
    assert locks.mounted(inner, "") is None
