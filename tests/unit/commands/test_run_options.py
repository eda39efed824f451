"""``run`` and ``plan`` with knobs of one's own, and what is shown before anything runs."""

import json

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from tests import tiny
from tests.messages import names

pytestmark = pytest.mark.slow


@pytest.fixture
def said(tmp_path):
    def answered(*words, code=0):
        options = ["--results-dir", str(tmp_path / "results")] if words[0] != "knobs" else []
        ended = CliRunner().invoke(app, [*map(str, words), *options], catch_exceptions=False)
        assert ended.exit_code == code, ended.output
        return ended.output

    return answered


def cells(output):
    return {row["cell"]: row for row in json.loads(output)}


def test_axes_and_knobs_change_the_plan(said):
    usual = cells(said("plan", "masking_ratio", "-s", "smoke", "--format", "json"))
    axis = ["--axis", "objectives.mlm.masking.rate=0.2,0.3"]
    other = cells(said("plan", "masking_ratio", "-s", "smoke", *axis, "--format", "json"))
    assert {*other} == {"rate=0.2", "rate=0.3"}
    larger = ["--set", "model.num_layers=6"]
    larger = cells(said("plan", "masking_ratio", "-s", "smoke", *axis, *larger, "--format", "json"))
    assert {*larger} == {*other}
    assert larger["rate=0.2"] != other["rate=0.2"]
    assert {*usual} != {*other}


def test_a_dry_run_trains_nothing_and_names_the_folder(said, tmp_path):
    output = said("run", "masking_ratio", "-s", "smoke", "--set", "model.num_layers=1", "--dry-run")
    assert names(output, "runs to train", str(tmp_path / "results" / "masking_ratio"))
    assert not (tmp_path / "results" / "records").exists()


def test_a_dry_run_counts_as_many_runs_at_once_as_the_executor_makes(said):
    words = "run", "masking_ratio", "-s", "smoke", "--dry-run"
    assert "1 at a time" in said(*words, "--executor", "inline")
    cluster = said(*words, "--executor", "slurm", "--executor-option", "parallel=8")
    assert names(cluster, "Slurm", "parallel=8")
    assert "at a time" not in cluster


def test_a_part_of_a_grid_is_no_knob(said):
    wrong = said("run", "masking_ratio", "-s", "smoke", "--set", "tasks=[rte]", "--dry-run", code=2)
    assert names(wrong, "tasks", "the grid's file")


def test_a_run_with_a_knob_of_its_own_has_a_page_of_its_own(said, tmp_path):
    grid = tiny.grid(tmp_path / "own", steps=2, seeds=1)
    said("run", grid, "-s", "smoke", "--no-notebook", "--set", "training.batch_size=2", "--jobs", 1)
    (page,) = (tmp_path / "results" / "tiny").iterdir()
    assert page.name != "smoke"
    assert "training.batch_size" in (page / "README.md").read_text()


def test_a_cell_is_shown_before_it_runs(said):
    rows = json.loads(said("show", "masking_ratio", "rate=0.4", "-s", "smoke", "--format", "json"))
    assert {"knob": "objectives.mlm.masking.rate", "value": 0.4} in rows
    wrong = said("show", "masking_ratio", "rate=0.04", "-s", "smoke", code=2)
    assert "'rate=0.4'" in wrong


@pytest.mark.parametrize(
    ("word", "knob"),
    [
        ("alibi", "model.positions"),
        ("learning_rate", "optimizer.peak_lr"),
        ("hidden_dropout_prob", "model.dropout"),
        ("num_train_epochs", "finetuning.epochs"),
        ("dynamic quantisation", "finetuning.quantization"),
    ],
)
def test_a_knob_is_found_by_what_others_call_it(said, word, knob):
    assert knob in said("knobs", word, "--format", "names").split()
