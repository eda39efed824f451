"""Files of others are read only if they are plain; files are written without following what lies in wait."""

import os
import socket
from pathlib import Path

import pytest

from lightning_modules.files import Refused, open_plain, read, write_atomically


@pytest.fixture
def folder(tmp_path):
    """A folder, with a file outside of it."""
    (tmp_path / "outside.txt").write_bytes(b"secret")
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def pipe(path):
    os.mkfifo(path)


def listening(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # its whole address may be too long


ODD = {
    "a pipe": pipe,
    "a socket": listening,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_plain_file_is_refused_at_once(folder, kind):
    ODD[kind](folder / "odd")
    with pytest.raises(Refused, match="where a file should be"):
        read(folder / "odd", 10)


def test_the_bound_is_of_what_is_read(folder):
    (folder / "file").write_bytes(b"1234")
    assert read(folder / "file", 4) == b"1234"
    with pytest.raises(Refused, match="holds more than 3 bytes"):
        read(folder / "file", 3)


@pytest.mark.skipif(not os.path.exists("/proc/self/cmdline"), reason="no file says a wrong size")
def test_the_size_that_a_file_is_said_to_have_bounds_nothing():
    said = Path("/proc/self/cmdline")
    assert said.stat().st_size == 0
    assert read(said) == said.read_bytes() != b""
    with pytest.raises(Refused, match="holds more than 3 bytes"):
        read(said, 3)


def test_links_lead_anywhere_unless_they_must_stay_within(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_bytes(b"inside")
    (folder / "inward").symlink_to("sub/file")
    (folder / "outward").symlink_to("../outside.txt")
    (folder / "around").symlink_to(folder.parent)
    assert read(folder / "inward", 10, folder) == b"inside"
    assert read(folder / "outward", 10) == b"secret"
    for name in ("outward", "around/outside.txt", "../outside.txt"):
        with pytest.raises(Refused, match="is a link out of"):
            read(folder / name, 10, folder)


def test_the_folder_itself_may_be_reached_by_a_link(folder):
    (folder / "file").write_bytes(b"inside")
    linked = folder.parent / "linked"
    linked.symlink_to(folder)
    assert read(linked / "file", 10, linked) == read(linked / "file", 10, folder) == b"inside"


@pytest.mark.parametrize("within", [False, True])
def test_errors_of_the_system_stay_what_they_are(folder, within):
    (folder / "loop").symlink_to("loop")
    with pytest.raises(FileNotFoundError):
        open_plain(folder / "none", folder if within else None)
    with pytest.raises(OSError, match="Too many levels"):
        open_plain(folder / "loop", folder if within else None)


def test_writing_follows_no_link_and_clears_what_the_killed_left(folder):
    victim = folder.parent / "outside.txt"
    for name in (".page.tmp", ".page.0123abcd.tmp"):
        (folder / name).symlink_to(victim)
    (folder / ".page.of.another.tmp").write_bytes(b"stays")
    os.mkfifo(folder / ".page.89abcdef.tmp")
    write_atomically(folder / "page", lambda file: file.write(b"new"))
    assert victim.read_bytes() == b"secret"
    assert (folder / "page").read_bytes() == b"new"
    assert {path.name for path in folder.iterdir()} == {"page", ".page.of.another.tmp"}


def test_a_link_at_the_place_is_replaced_and_its_target_stays(folder):
    (folder / "page").symlink_to("../outside.txt")
    write_atomically(folder / "page", lambda file: file.write(b"new"))
    assert (folder / "page").read_bytes() == b"new"
    assert (folder.parent / "outside.txt").read_bytes() == b"secret"
