"""`ablations clean`: what the project made in its cache goes, and nothing else does; what is in use stays."""

import contextlib
import json
import os
import pty
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from lightning_modules import cached, places
from lightning_modules.cached import CacheError
from lightning_modules.config import identity

RUN, OTHER = "0123456789abcdef", "fedcba9876543210"
STORE = "stores/0123456789abcdef01234567"
SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"  # of https://bford.info/cachedir


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder that is named as cache, not yet made."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(path: Path, text: str = "x" * 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write(part: str = STORE) -> None:
    """Writes to the cache as the project does."""
    cached.write(places.cache() / part / "tokenizer.json", lambda file: file.write(b"x" * 1000))


def there(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def clean(*words, folder: Path):
    done = CliRunner().invoke(app, ["clean", *words, "--results-dir", str(folder)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def told(done) -> str:
    return " ".join(done.output.split())


FOREIGN = {
    "a home": [".ssh/id", "notes.txt", "stores/mine.bin"],
    "runs of another program": ["runs/Nov26_21-23-37_3f2a9c1d7e5b/events.out.tfevents.1"],
    "stores of another program": ["stores/us-east/index.json"],
    "a run that is none": ["runs/0123abcd/notes/today.txt"],
    "a file with the name of a part": ["stores"],
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_of_others_is_no_cache(home, tmp_path, files):
    for name in [*files, f"{STORE}/meta.json"][: None if files != ["stores"] else 1]:
        put(home / name)
    before = there(home)
    done = clean("--all", "--yes", folder=tmp_path / "results")
    assert done.exit_code == 2
    for word in ("ABLATIONS_CACHE", str(home), files[0].split("/")[0]):
        assert word in told(done)
    with pytest.raises(CacheError, match="ABLATIONS_CACHE"):
        write()
    with pytest.raises(CacheError, match="ABLATIONS_CACHE"):
        Records(tmp_path / "results").make_work_folder(RUN)
    assert there(home) == before


def test_links_make_no_cache(home, tmp_path):
    """No earlier version made links: a folder with one is somebody's."""
    put(tmp_path / "elsewhere" / "kept")
    home.mkdir()
    (home / "stores").symlink_to(tmp_path / "elsewhere")
    assert clean("--all", folder=tmp_path / "results").exit_code == 2
    assert (home / "stores" / "kept").exists()


def test_the_mark_of_another_program_is_not_ours(home, tmp_path):
    put(home / "CACHEDIR.TAG", f"{SIGNATURE}\n# This file is a cache directory tag created by pip.\n")
    put(home / STORE / "meta.json")
    assert clean("--all", folder=tmp_path / "results").exit_code == 2
    with pytest.raises(CacheError):
        write()
    assert (home / STORE / "meta.json").exists()


def test_an_empty_or_new_folder_is_marked_when_something_is_written(home, tmp_path):
    for made in (False, True):
        if made:
            home.mkdir()
        write()
        assert (home / "CACHEDIR.TAG").read_text().splitlines()[0] == SIGNATURE
        put(home / "notes.txt")
        put(home / "runs" / "mine" / "notes.txt")
        write("stores/111111111111111111111111")
        done = clean("--all", folder=tmp_path / "results")
        assert done.exit_code == 0
        assert there(home) == ["CACHEDIR.TAG", "notes.txt", "runs/mine/notes.txt"]
        assert "notes.txt" in done.output
        for path in ("notes.txt", "runs/mine/notes.txt", "CACHEDIR.TAG"):
            (home / path).unlink()
        (home / "runs/mine").rmdir()
        (home / "runs").rmdir()
        home.rmdir()


@pytest.mark.parametrize("place", ["tasks/65a1b2c3d4e5f60718293a4b.json", "features/IMG-2020123112345678.jpg",
                                   "stores/65a1b2c3d4e5f60718293a4b/thesis.tex"])  # fmt: skip
def test_a_name_alone_makes_no_file_the_projects(home, place):
    put(home / place)
    with pytest.raises(CacheError, match="which is no cache of ablations"):
        write()
    done = CliRunner().invoke(app, ["clean", "--all"])
    assert done.exit_code == 2
    assert (home / place).exists()


def test_reading_writes_no_mark_and_is_never_refused(home, tmp_path):
    put(home / "notes.txt")
    (tmp_path / "results" / "records").mkdir(parents=True)
    for words in (["list"], ["plan", "masking_ratio", "--scale", "smoke"], ["clean"]):
        more = ["--results-dir", str(tmp_path / "results")] if words != ["list"] else []
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 0, done.output
    assert there(home) == ["notes.txt"]


def test_the_usual_cache_is_the_projects_without_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("ABLATIONS_CACHE")
    monkeypatch.setattr(places, "checkout", lambda: tmp_path)
    put(tmp_path / ".cache" / "plugin" / "theirs")
    write()
    assert capsys.readouterr() == ("", "")
    assert clean("--all", folder=tmp_path / "results").exit_code == 0
    assert there(tmp_path / ".cache") == ["CACHEDIR.TAG", "plugin/theirs"]


@pytest.fixture
def full(home, tmp_path):
    """A cache with a store, and a work folder of each of two runs of two results folders."""
    write()
    for folder in ("results", "others"):
        for run in (RUN, OTHER):
            put(Records(tmp_path / folder).make_work_folder(run) / "last.ckpt")
    return home


@pytest.mark.parametrize("folder", ["results", "others"])
def test_a_run_that_trains_now_stays_with_what_it_may_read(full, tmp_path, folder):
    records = Records(tmp_path / folder)
    with records.lock(RUN):
        done = clean("--all", "--format", "json", folder=tmp_path / "results")
        assert done.exit_code == 0
        assert (records.work_folder(RUN) / "last.ckpt").exists()
        assert (full / STORE / "tokenizer.json").exists()
        left = {item["path"] for item in json.loads(done.stdout)["left"]}
        assert {str(records.work_folder(RUN)), str(full / "stores")} <= left
    assert len(list(full.glob("runs/*/????????????????"))) == 1
    assert clean("--all", folder=tmp_path / "results").exit_code == 0
    assert there(full) == ["CACHEDIR.TAG"]


def test_of_finished_runs_one_that_trains_again_stays(full, tmp_path):
    records = Records(tmp_path / "results")
    for run in (RUN, OTHER):
        records.path(run).parent.mkdir(parents=True, exist_ok=True)
        records.path(run).write_text("{}")
    with records.lock(RUN):
        done = clean(folder=records.folder)
    assert "removed 1 folders" in done.output
    assert str(records.work_folder(RUN)) in told(done)
    assert [path.name for path in records.work_folders()] == [RUN]
    assert len(Records(tmp_path / "others").work_folders()) == 2


def test_a_store_that_is_being_built_stays(full, tmp_path):
    with FileLock(full / "stores" / "111111111111111111111111.lock"):
        done = clean("--all", folder=tmp_path / "results")
    assert (full / STORE / "tokenizer.json").exists()
    assert not list(full.glob("runs/*/????????????????"))
    assert "stores/111111111111111111111111" in told(done)


def test_no_link_is_followed(full, tmp_path):
    kept = put(tmp_path / "elsewhere" / "0123456789abcdef01234567" / "kept")
    for place in ("features", "pieces/0123456789abcdef01234567", f"{STORE}/link"):
        (full / place).parent.mkdir(exist_ok=True)
        (full / place).symlink_to(tmp_path / "elsewhere")
    (full / "notes").symlink_to(tmp_path / "elsewhere")
    assert clean("--all", folder=tmp_path / "results").exit_code == 0
    assert kept.exists()
    assert there(full) == ["CACHEDIR.TAG"]
    assert (full / "notes").is_symlink()


def test_links_hide_no_work_folders(full, tmp_path):
    """Somebody's folder that only looks like that of a finished run."""
    records = Records(tmp_path / "results")
    put(records.path(RUN), "{}")
    (full / "runs").rename(tmp_path / "elsewhere")
    (full / "runs").symlink_to(tmp_path / "elsewhere")
    assert clean(folder=records.folder).exit_code == 0
    assert len(list((tmp_path / "elsewhere").glob("*/????????????????"))) == 4


@pytest.mark.parametrize(("typed", "more", "goes"), [("n\n", [], False), ("y\n", [], True), ("", ["--yes"], True)])
def test_on_a_terminal_it_asks(full, tmp_path, typed, more, goes):
    pid, terminal = pty.fork()
    if pid == 0:
        sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, range(3), "rww")  # not those of the test
        code = 9
        try:
            app(["clean", "--all", *more, "--results-dir", str(tmp_path / "results")])
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.write(terminal, typed.encode())
    said = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while part := os.read(terminal, 1000):
            said += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (0 if goes else 1), said
    assert (b"[y/N]" in said) == bool(typed)
    assert (full / STORE).exists() != goes


def test_what_cannot_be_removed_is_said(full, tmp_path, monkeypatch):
    remove = os.unlink
    stuck = full / STORE / "tokenizer.json"

    def unlink(path, *, dir_fd=None):
        if os.path.basename(path) == stuck.name:
            raise PermissionError(13, "Permission denied", str(path))
        remove(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    done = clean("--all", "--format", "json", folder=tmp_path / "results")
    assert done.exit_code == 1
    assert "Permission denied" in told(done)
    answer = json.loads(done.stdout)
    assert str(full / "stores") not in answer["folders"]
    assert str(full / "runs") in answer["folders"]
    assert str(full / STORE) in {item["path"] for item in answer["left"]}


def test_a_work_folder_says_whose_it_is_also_after_a_move(home, tmp_path):
    one, other = Records(tmp_path / "one"), Records(tmp_path / "other")
    one.make_work_folder(RUN).parent.rename(other.work_folder(RUN).parent)
    other.make_work_folder(RUN)
    with other.lock(RUN):
        clean("--all", folder=tmp_path / "third")
    assert other.work_folder(RUN).exists()
    assert identity(str(other.folder))[:8] == other.work_folder(RUN).parent.name
