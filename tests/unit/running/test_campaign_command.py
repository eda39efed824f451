"""``ablations campaign`` and ``run --for``, with trainings that take no time."""

import json
import os

import pytest
from typer.testing import CliRunner

from ablations.commands import campaign
from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.running.launch import Launch
from lightning_modules.config import ConfigError, Problem
from tests import tiny
from tests.messages import names
from tests.unit.run_graphs import RATE

pytestmark = pytest.mark.slow


@pytest.fixture
def call(tmp_path, trainings, monkeypatch):
    """Calls a command on one results folder; the queue asks for the second rate before the first."""
    grid = tiny.grid(tmp_path, extra="tasks: [toy]\n")
    rows = [f"slice: {{{RATE}: 0.4, tasks: []}}", f"slice: {{{RATE}: 0.15}}", "slice: {}"]
    queue = tmp_path / "queue.yaml"
    queue.write_text("rows:\n" + "".join(f"  - {{grid: {grid}, scale: smoke, reason: why, {row}}}\n" for row in rows))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(os, "nice", lambda more: None)
    monkeypatch.setattr(campaign, "_ALONE", "inline")

    def called(*words):
        alone = [str(grid), "--scale", "smoke", "--no-notebook", "--executor", "inline"]
        paths = ["--file", str(queue)] if words[0] == "campaign" else alone
        return CliRunner().invoke(app, [*words, *paths, "--results-dir", str(tmp_path / "results")])

    return called


def rows(call):
    return [(row["done"], row["core-hours"] > 0) for row in json.loads(call("campaign", "--format", "json").stdout)]


def test_rows_are_worked_off_in_their_order_and_nothing_twice(call, trainings, monkeypatch):
    monkeypatch.setattr("ablations.planning.cost.RUN_START", 3600.0)
    made, _ = trainings
    assert rows(call) == [("0 of 2 runs", True), ("0 of 4 runs", True), ("0 of 8 runs", True)]
    done = call("campaign", "run")
    assert done.exit_code == 0, done.output
    first, second = [("pretrain", 1, 0.4, seed) for seed in (0, 1)], [("pretrain", 1, 0.15, 0)]
    assert made[:3] == first + second
    assert [row[2] for row in made[-2:]] == [0.4, 0.4]  # the tasks that only the last row asks for
    assert len(made) == len({*made}) == 8
    assert rows(call) == [("2 of 2 runs", False), ("4 of 4 runs", False), ("8 of 8 runs", False)]
    assert call("campaign", "run").exit_code == 0
    assert len(made) == 8


def test_a_row_costs_what_rows_above_it_leave(call, monkeypatch):
    monkeypatch.setattr("ablations.planning.cost.RUN_START", 3600.0)
    told = json.loads(call("campaign", "--format", "json").stdout)
    assert [round(row["core-hours"]) for row in told] == [2, 4, 2]


def test_a_page_is_published_where_all_runs_of_a_row_have_ended(call, tmp_path, trainings):
    def fail(run):
        if run[2] == 0.15:
            raise ValueError("not today")

    trainings[1][""] = fail
    done = call("campaign", "run")
    assert done.exit_code == 1
    assert names(done.output, "failed", "ValueError")
    assert (tmp_path / "results/tiny/smoke/README.md").exists()  # of the first row
    assert rows(call)[0] == ("2 of 2 runs", False)


def test_a_page_that_cannot_be_made_stops_no_row_behind_it(call, trainings, monkeypatch):
    def refuse(study):
        raise ConfigError([Problem("T2", "two rows of it match")])

    monkeypatch.setattr("ablations.study.Study.publish", refuse)
    done = call("campaign", "run")
    assert done.exit_code == 1
    assert names(done.output, "row 1", "tiny", "T2", "two rows of it match")
    assert len(trainings[0]) == 8
    assert rows(call) == [("2 of 2 runs", False), ("4 of 4 runs", False), ("8 of 8 runs", False)]


@pytest.mark.parametrize("words", [("campaign", "run"), ("run",)], ids=" ".join)
def test_runs_that_do_not_fit_the_time_are_left_and_are_no_failure(call, words, trainings, monkeypatch):
    made, _ = trainings
    monkeypatch.setattr(Launch, "seconds_to_make", lambda launch, run: launch.until - launch.started)
    done = call(*words, "--for", "20m")
    assert done.exit_code == (75 if words == ("run",) else 0), done.output
    assert names(done.output, "left", "time")
    assert made == []
    monkeypatch.setattr(Launch, "seconds_to_make", lambda launch, run: 1.0)
    assert call(*words, "--for", "2.5h").exit_code == 0
    assert len(made) == 8


@pytest.mark.parametrize("said", ["20 m", "m", "0s", "-5m", "1e3s", "5d", "00", "9999999h"])
def test_what_is_no_time_is_refused(call, said, tmp_path):
    for words in (("campaign", "run"), ("run",)):
        done = call(*words, "--for", said)
        assert done.exit_code == 2
        assert names(done.output, "--for", said, "20m"), done.output
    assert not list(Records(tmp_path / "results").all())
