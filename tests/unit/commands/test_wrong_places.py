"""Names and folders that are wrong are refused at once, with what is meant; relative paths start where one is."""

import pytest
from typer.testing import CliRunner

from ablations.commands import cli
from ablations.core.store import Records
from tests.messages import names


def told(*words, code=2):
    ended = CliRunner().invoke(cli.app, [*words], catch_exceptions=False)
    assert ended.exit_code == code, ended.output
    return ended.output


@pytest.mark.parametrize(
    "words",
    [
        ["clean"],
        ["status"],
        ["stop"],
        ["claims"],
        ["verify"],
        ["tables"],
        ["show", "masking_ratio"],
        ["figures", "masking_ratio"],
        ["compare", "masking_ratio", "--equal", "steps"],
    ],
)
def test_a_folder_that_holds_no_results_is_named(words, tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("nowhere", "photos"):
        assert names(told(*words, "--results-dir", str(tmp_path / name)), "--results-dir", str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.parametrize("command", ["stop", "status"])
def test_a_misspelt_grid_gets_the_nearest(command):
    assert names(told(command, "masking_rato"), "masking_ratio")


def test_a_relative_results_folder_lies_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Records("mine").folder == tmp_path / "mine"
    assert str(tmp_path / "mine") in told("verify", "--results-dir", "mine")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--logger", "tensorbord"], ["--logger", "tensorboard"]),
        (["--executor", "inlin"], ["inline"]),
        (["--executor", "slurm", "--jobs", "2"], ["--jobs", "slurm"]),
        (["--executor", "inline", "--jobs", "2"], ["--jobs", "inline"]),
    ],
)
def test_what_no_grid_allows_is_refused_before_a_grid_is_planned(options, words, monkeypatch):
    def planned(*_, **__):
        raise AssertionError("it was planned first")

    monkeypatch.setattr("ablations.study.Study", planned)
    output = told("run", "masking_ratio", "--scale", "smoke", *options)
    assert names(output, *words)
    assert output.count("mlflow") <= 1, "a list is printed once"


def test_one_run_at_a_time_may_be_asked_of_the_executor_that_makes_one(tmp_path):
    options = ["--executor", "inline", "--jobs", "1", "--dry-run", "--no-notebook", "--results-dir", str(tmp_path)]
    assert names(told("run", "masking_ratio", "--scale", "smoke", *options, code=0), "1 at a time")
