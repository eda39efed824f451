"""A cache folder that cannot be used: one message that names it and its variable, at every command that needs it."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.study import Study
from lightning_modules.cached import CacheError
from lightning_modules.data import Data, open_store
from tests import tiny

COMMANDS = {
    "plan": ["plan", "GRID", "--scale", "smoke"],
    "run": ["run", "GRID", "--scale", "smoke", "--no-notebook", "--executor", "inline"],
    "run in processes": ["run", "GRID", "--scale", "smoke", "--no-notebook"],
    "show": ["show", "GRID", "--scale", "smoke"],
    "compare": ["compare", "GRID", "--scale", "smoke", "--equal", "tokens"],
    "benchmark inference": ["benchmark", "inference", "GRID", "--scale", "smoke"],
    "tables": ["tables"],
    "ask": ["ask", "RUN", "The [MASK] sees.", "--train"],
}
NEED_NONE = {"verify": ["verify"], "show a record": ["show", "RUN"], "clean": ["clean"]}
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A published page with one run on a text of the user's own, whose fingerprint is in the cache."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATIONS_CACHE", str(folder / "cache"))
        made = Study(tiny.grid(folder, rates="[0.15]", steps=2, seeds=1), "smoke", results_dir=folder / "results")
        made.run("inline")
        made.publish()
    return made


def a_file(folder: Path) -> Path:
    (folder / "file").write_text("kept")
    return folder / "file"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "cache"


def a_link_to_itself(folder: Path) -> Path:
    (folder / "loop").symlink_to("loop")
    return folder / "loop"


def read_only(folder: Path) -> Path:
    (folder / "closed").mkdir(mode=0o500)
    if os.access(folder / "closed", os.W_OK):
        pytest.skip("this user may write everywhere")
    return folder / "closed"


def whose_part_is_a_file(folder: Path) -> Path:
    """A folder where something else has a name that the cache needs."""
    for part in ("fingerprints", "runs"):
        (folder / part).write_text("kept")
    return folder


@pytest.fixture(params=[a_file, below_a_file, a_link_to_itself, read_only, whose_part_is_a_file])
def unusable(request, tmp_path, monkeypatch):
    place = request.param(tmp_path)
    monkeypatch.setenv("ABLATIONS_CACHE", str(place))
    return place


def said(study: Study, words: list[str]):
    given = {"GRID": study.source, "RUN": study.records.files()[0].stem}
    done = CliRunner().invoke(
        app, [given.get(word, word) for word in words] + ["--results-dir", str(study.records.folder)]
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_every_command_that_needs_it_says_so(study, unusable):
    for name, words in COMMANDS.items():
        done = said(study, words)
        assert done.exit_code == 2, name
        (line,) = done.output.strip().splitlines()[-1:]
        assert "ABLATIONS_CACHE" in line, name
        assert str(unusable) in line, name
    for path in unusable.rglob("*") if unusable.is_dir() else [unusable][: unusable.is_file()]:
        assert path.read_text() == "kept"


def test_commands_that_need_none_do_without(study, unusable):
    for name, words in NEED_NONE.items():
        assert said(study, words).exit_code == 0, name


def test_in_python_it_is_an_error_with_the_same_words(unusable, text_file):
    with pytest.raises(CacheError, match="ABLATIONS_CACHE") as raised:
        open_store(Data(corpora=(f"text:{text_file}",)), "train")
    assert str(unusable) in str(raised.value)
