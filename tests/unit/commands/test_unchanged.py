"""What a command said is said again, until something changes that it follows from."""

import json
import os
import subprocess
import sys
import warnings

import pytest
from typer.testing import CliRunner

from ablations.commands import unchanged
from ablations.commands.cli import app
from ablations.core import machine
from ablations.core.store import RecordWarning
from ablations.pages.publishing import republish
from ablations.planning import checked, scale_files
from lightning_modules import cached, places
from lightning_modules.places import cache, note_elsewhere
from tests import finished

GRID = "masking_ratio"
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def nothing_elsewhere(monkeypatch):
    """Other tests of the process have read texts of their own."""
    monkeypatch.setattr(places, "_elsewhere", set())


@pytest.fixture
def results(tmp_path):
    """A results folder with a record, its losses, kept weights, a page of a grid, and one of a grid's file."""
    files = {
        "records/01/0123456789abcdef.json": "{}",
        "records/01/0123456789abcdef.heldout": "{}",
        "weights/0123456789abcdef/weights.safetensors": "weights",
        f"{GRID}/laptop/README.md": "# Page",
        "mine/smoke/request.json": '{"grid": "../grids/mine.yaml", "scale": "smoke"}',
    }
    for name, text in files.items():
        file = tmp_path / "results" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "grids").mkdir()
    (tmp_path / "grids" / "mine.yaml").write_text("question: Mine?")
    return tmp_path / "results"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Data sets, one of them behind a link."""
    home = tmp_path / "data"
    for folder in (home, tmp_path / "elsewhere"):
        folder.mkdir()
        (folder / "task.jsonl").write_text("{}")
    (home / "linked").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("ABLATIONS_DATA", str(home))
    return home


@pytest.fixture
def asked(results):
    """Asks for a plan, and says whether it was made anew."""

    def asked(command="plan", **request):
        made = []

        def make():
            made.append(command)
            return [f"answer to {command}", "«more»"]

        given = {"grid": GRID, "scale": "laptop"} | request
        assert unchanged.said(command, given, results, make) == [f"answer to {command}", "«more»"]
        return bool(made)

    return asked


def as_before(file):
    """Changes the content of a file, and neither its size nor its time."""
    text, state = file.read_text(), file.stat()
    file.write_text(text.swapcase() if text.swapcase() != text else "[]"[: len(text)])
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))


def other_scale(monkeypatch, folder):
    (folder / "scales").mkdir()
    for path in scale_files.FOLDER.iterdir():
        (folder / "scales" / path.name).write_text(path.read_text() + "\n# another line\n")
    monkeypatch.setattr(scale_files, "FOLDER", folder / "scales")


def with_work(results):
    weights = cached.work_home(results) / "0123456789abcdef" / "weights.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_text("w")


CHANGES = {
    "a record": lambda at, patch: as_before(at / "records/01/0123456789abcdef.json"),
    "its losses": lambda at, patch: as_before(at / "records/01/0123456789abcdef.heldout"),
    "a new record": lambda at, patch: (at / "records/01/0123456789abcdee.json").write_text("{}"),
    "no record": lambda at, patch: (at / "records/01/0123456789abcdef.json").unlink(),
    "an edited page": lambda at, patch: as_before(at / GRID / "laptop/README.md"),
    "a deleted page": lambda at, patch: (at / GRID / "laptop/README.md").unlink(),
    "the folder of a page": lambda at, patch: (at / GRID / "smoke").mkdir(),
    "kept weights": lambda at, patch: as_before(at / "weights/0123456789abcdef/weights.safetensors"),
    "weights in the cache": lambda at, patch: with_work(at),
    "the grid of a page": lambda at, patch: as_before(at.parent / "grids/mine.yaml"),
    "a scale": lambda at, patch: other_scale(patch, at.parent),
    "the code": lambda at, patch: patch.setattr(checked, "code", lambda: "other code"),
    "a data set": lambda at, patch: as_before(at.parent / "data/task.jsonl"),
    "a data set behind a link": lambda at, patch: as_before(at.parent / "elsewhere/task.jsonl"),
    "the folder of data sets": lambda at, patch: patch.delenv("ABLATIONS_DATA"),
    "a GPU": lambda at, patch: patch.setattr(machine, "listed", lambda: ("NVIDIA H100",)),
    "the processors": lambda at, patch: patch.setattr(machine, "cores", lambda: 99),
    "the working directory": lambda at, patch: patch.chdir(at),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_makes_it_anew(what, asked, results, data, monkeypatch):
    assert asked()
    assert not asked()
    CHANGES[what](results, monkeypatch)
    assert asked()
    assert not asked()


def test_a_grids_own_file_is_one_of_them(asked, tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("question: One?")
    assert [asked(grid=str(file)) for _ in range(2)] == [True, False]
    as_before(file)
    assert asked(grid=str(file))


def test_figures_depend_on_the_settings_of_matplotlib(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert [asked() for _ in range(2)] == [True, False]
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "matplotlibrc").write_text("lines.linewidth: 9")
    assert asked()


@pytest.mark.parametrize("harm", [lambda text: text.replace("answer", "Answer"), lambda text: "", lambda text: "{"])
def test_a_damaged_answer_is_made_anew(asked, harm):
    asked()
    (kept,) = (cache() / "shown").glob("*.json")
    kept.write_text(harm(kept.read_text()))
    assert asked()
    assert not asked()


def said(results, make):
    return unchanged.said("plan", {"grid": GRID}, results, make)


def warned():
    warnings.warn("set aside", RecordWarning, stacklevel=2)


@pytest.mark.parametrize("what", [warned, lambda: note_elsewhere("text:/a/*.txt")])
def test_what_may_change_unseen_is_kept_by_nobody(what, results):
    made = []

    def make():
        made.append(what())
        return []

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            said(results, make)
    assert len(made) == 2
    assert len(shown) == 2 * (what is warned)


def test_what_changes_meanwhile_is_kept_once_it_has_not(results):
    """As pages are, which a call writes where they are missing."""
    made, page = [], results / "README.md"

    def make():
        made.append(1)
        page.write_text("all pages")
        return []

    said(results, make)
    page.unlink()
    said(results, make)
    assert page.exists()
    for _ in range(2):
        said(results, make)
    assert len(made) == 3


def test_a_pipe_among_the_records_is_left_to_the_command(asked, results):
    os.mkfifo(results / "records" / "01" / "0123456789abcdee.json")
    assert [asked() for _ in range(2)] == [True, True]


def test_a_cache_that_cannot_be_written_is_done_without(asked, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "file" / "cache"))
    assert [asked() for _ in range(2)] == [True, True]


def here(*arguments):
    """What a command prints in this process, in which everything is imported."""
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout.splitlines()


def run(*arguments):
    """What a command prints in a process of its own, and what it imported."""
    code = "import sys, json; from ablations.commands.cli import app; app(sys.argv[1:], standalone_mode=0)"
    command = [sys.executable, "-c", f"{code}; print(json.dumps(list(sys.modules)))", *arguments]
    *lines, modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return lines, set(json.loads(modules))


HEAVY = {"torch", "scipy", "pandas", "matplotlib"}


@pytest.mark.slow
@pytest.mark.usefixtures("embedded")
def test_a_plan_that_nothing_changed_is_shown_without_torch(tmp_path):
    arguments = "plan", GRID, "--results-dir", str(tmp_path / "results")
    first = here(*arguments)
    second, modules = run(*arguments)
    assert second == first
    assert any("rate=0.15" in line for line in second)
    assert not HEAVY & modules
    rows = json.loads("".join(here(*arguments, "--format", "json")))
    assert rows == json.loads("".join(here(*arguments, "--format", "json")))
    assert len(rows) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("embedded")
def test_pages_that_nothing_changed_stay_and_others_are_rebuilt(tmp_path):
    folder = tmp_path / "results"
    finished.records(folder, GRID)
    republish(folder)
    page = folder / GRID / "laptop" / "README.md"
    published = page.read_bytes()
    arguments = "tables", GRID, "--results-dir", str(folder)
    first = here(*arguments)
    second, modules = run(*arguments)
    assert first == second == [str(page.parent)]
    assert not HEAVY & modules
    for harm in (lambda: page.write_bytes(published.replace(b"Results", b"results")), page.unlink):
        harm()
        assert here(*arguments) == first
        assert page.read_bytes() == published
