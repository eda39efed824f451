"""Slips on the command line and in the environment: each is answered with what is wrong and what to do, at once."""

import shutil

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.planning import grids
from tests import tiny
from tests.messages import names


@pytest.fixture
def answer(tmp_path):
    """The exit code and the words of a command; a traceback is raised."""

    def answered(*words, **environment):
        ended = CliRunner().invoke(app, [str(word) for word in words], env=environment)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended.exit_code, " ".join(ended.output.split())

    return answered


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ("results_dir=/elsewhere", "--results-dir"),
        ("scale=laptop", "--scale"),
        ("seeds=7", "--seeds"),
        ("filters={a: 1}", "--filter"),
        ("executor=inline", "--executor"),
        ("grid=embedding_size", "argument"),
    ],
)
def test_a_parameter_of_the_notebook_does_not_contradict_the_command(answer, tmp_path, given, option):
    """Else one grid is trained and another is shown, or trained in another folder."""
    code, said = answer("run", "masking_ratio", "-s", "smoke", "-p", given, "--results-dir", tmp_path / "results")
    assert code == 2
    assert names(said, "-p", given.partition("=")[0], option)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("words", [["verify"], ["tables"], ["show", "abc"]])
def test_reading_makes_no_folder_of_results(answer, tmp_path, words):
    code, said = answer(*words, "--results-dir", tmp_path / "reslts")
    assert code == 2
    assert names(said, "--results-dir", str(tmp_path / "reslts"))
    assert not (tmp_path / "reslts").exists()


@pytest.mark.parametrize("prefix", ["fff", ""])
def test_a_run_is_named_by_its_first_digits(answer, tmp_path, prefix):
    for digits in ("0123456789abcdef", "0223456789abcdef"):
        file = tmp_path / "records" / digits[:2] / f"{digits}.json"
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    for words in (["show", prefix], ["export", prefix, tmp_path / "out"], ["ask", prefix, "[MASK]"]):
        code, said = answer(*words, "--results-dir", tmp_path)
        assert code == 2
        assert names(said, f"'{prefix}'", "2" if not prefix else "no")
        assert ("0123456789abcdef" in said) == (not prefix)


def test_a_file_with_the_name_of_a_grid_does_not_take_its_page(answer, tmp_path):
    shutil.copy(grids.locate("masking_ratio"), tmp_path)
    code, said = answer("plan", tmp_path / "masking_ratio.yaml", "--scale", "smoke")
    assert code == 2
    assert names(said, "'masking_ratio'", "Rename")
    assert answer("plan", grids.locate("masking_ratio"), "--scale", "smoke")[0] == 0, "the file of the grid itself"


@pytest.mark.parametrize("made", [False, True])
def test_a_folder_of_data_that_is_none_is_told_as_such(answer, tmp_path, made):
    data = tmp_path / "data"
    if made:
        data.write_text("a file")
    for words in (["data", "verify", "rte"], ["data", "--format", "names"]):
        assert names(answer(*words, ABLATIONS_DATA=str(data))[1], "ABLATIONS_DATA", str(data), "no folder")
    run = answer("run", "masking_ratio", "-s", "laptop", "--no-notebook", "--results-dir", tmp_path / "results",
                 ABLATIONS_DATA=str(data))  # fmt: skip
    assert run[0] == 2
    assert names(run[1], "'novels'", "ABLATIONS_DATA", str(data), "no folder")


@pytest.mark.slow
@pytest.mark.usefixtures("embedded")
def test_a_notebook_that_fails_is_told_by_cell_and_error(answer, tmp_path, monkeypatch):
    import nbformat

    from ablations.core import notebooks

    notebook = nbformat.read(notebooks.find("masking_ratio", "grid"), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("study.tabel()"))
    nbformat.write(notebook, tmp_path / "failing.ipynb")
    monkeypatch.setattr(notebooks, "find", lambda *_: tmp_path / "failing.ipynb")
    options = ["-s", "smoke", "--executor", "inline", "--results-dir", tmp_path / "results"]
    code, said = answer("run", tiny.grid(tmp_path / "own", steps=2, seeds=1), *options)
    assert code == 2
    assert names(said, "failing.ipynb", "AttributeError", "notebook.ipynb")
    assert (tmp_path / "results/tiny/smoke/table.md").exists()
