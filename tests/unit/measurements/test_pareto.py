"""Which models are worth their cost, and which fits a budget."""

import json
import math
import random

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.statistics import mean_interval
from ablations.core.store import Records
from ablations.measurements import pareto
from ablations.measurements.pareto import Cost, front
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running import inference
from ablations.schema.record import Record


def scored(**means):
    return {label: mean_interval([mean - 0.1, mean + 0.1]) for label, mean in means.items()}


def test_a_front_has_what_no_other_beats():
    cost = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0, "e": 9.0}
    score = scored(a=0.5, b=0.4, c=0.7, d=0.6, e=0.7)
    assert front(cost, score, "higher") == ["a", "c"]
    assert front(cost, score, "lower") == ["a", "b"]
    assert front({"a": 1.0, "b": 1.0}, scored(a=0.5, b=0.5), "higher") == ["a", "b"]  # neither beats the other
    assert front(cost | {"unscored": 0.0}, scored(a=0.5), "higher") == ["a"]
    assert front(cost, {}, "higher") == []


def test_a_front_is_that_of_every_pair():
    draw = random.Random(3)
    for _ in range(50):
        cost = {str(n): draw.randrange(5) for n in range(8)}
        score = scored(**{str(n): draw.randrange(5) / 10 for n in range(8)})
        on = set(front(cost, score, "higher"))
        for one in cost:
            beaten = any(
                cost[other] <= cost[one]
                and score[other].mean >= score[one].mean
                and (cost[other], score[other].mean) != (cost[one], score[one].mean)
                for other in cost
            )
            assert (one in on) != beaten


@pytest.fixture(scope="module")
def models():
    return plan(grids.read("small_models"), "smoke")


def test_the_best_within_all_limits_is_chosen(models):
    cells = models.cells
    labels = [cell.label for cell in cells]
    size = Cost("MB", {label: 10.0 - n for n, label in enumerate(labels[:-1])}, {})
    time = Cost("ms", {label: float(n) for n, label in enumerate(labels[:-1])}, {})
    score = {label: mean_interval([0.9 - n / 10]) for n, label in enumerate(labels[:-2])}
    choice = pareto.choose(cells, score, "higher", [(size, 8.0), (time, 3.0)])
    assert [cell.label for cell in choice.fits] == labels[2:4]
    assert [cell.label for cell in choice.ordered] == labels
    assert [cell.label for cell in choice.unmeasured] == labels[-1:]
    assert choice.nearest is None
    none = pareto.choose(cells, score, "higher", [(size, 1.0)])
    assert none.fits == ()
    assert none.nearest is not None
    assert none.nearest.label == labels[-3]
    assert [cell.label for cell in pareto.choose(cells, score, "higher", [(size, 8.0)]).unscored] == labels[-2:-1]
    assert pareto.choose(cells, score, "lower", []).fits[0].label == labels[-3]


def kept(models, folder):
    """Records of two models and a measurement of all, in a folder of results."""
    for cell, accuracy in zip(models.cells, (0.7, 0.6), strict=False):
        for run in cell.work:
            metrics = {f"{run.task}.accuracy": accuracy + run.seed / 100} if run.task else {"heldout.loss": 3.0}
            record = Record(id=run.id, kind=run.kind, config=run.to_dict(), outcome="done", metrics=metrics)
            Records(folder).put(record)
    rows = {
        cell.label: {
            "parameters": 5,
            "flops": 7.0,
            "file_mb": 3.0 - n,
            "1": {"ms": 2.0 - n, "low": 0, "high": 9, "mb": 1},
        }
        for n, cell in enumerate(models.cells)
    }
    machine = {"device": "A processor", "threads": 1, "turns": 3, "clock": "wall", "torch": "2", "commit": None}
    machine |= {"measured": "2026-01-02T03:04:05+00:00", "length": 32, "batches": [1], "cells": rows}
    place = folder / "small_models" / "smoke"
    place.mkdir(parents=True)
    inference.keep(place, machine)


def test_pick_names_a_model_within_a_budget(models, tmp_path):
    kept(models, tmp_path)

    def asked(*words):
        ended = CliRunner().invoke(app, ["pick", "--scale", "smoke", "--results-dir", str(tmp_path), *words])
        return ended.exit_code, " ".join(ended.output.split())

    first, second = (cell.label for cell in models.cells[:2])
    assert f"Best: {first} (" in asked()[1]
    code, said = asked("--mb", "2", "--ms", "1")
    assert code == 0
    assert f"Best within 2 MB and 1 ms: {second} (" in said
    assert "1 MB and 1 ms too many" in said
    assert said.count("no record") == len(models.cells) - 2
    assert said.count("fits, no score yet") == len(models.cells) - 2
    code, said = asked("--mb", "0.5")
    assert code == 1
    assert f"No model that has a score fits within 0.5 MB. Nearest: {second}, 1.5 MB too many." in said
    assert asked("--mb", "2", "--ms", "1", "--format", "names") == (0, second)
    assert asked("--mb", "0.5", "--format", "names") == (1, "")
    code, said = asked("--threads", "2")
    assert code == 2
    assert "--batches 1 --threads 2" in said
    assert "Measured: --threads 1." in said
    code, said = asked("--metric", "bigram_shift.acuracy")
    assert code == 2
    assert "bigram_shift.accuracy" in said
    rows = json.loads(
        CliRunner().invoke(app, ["pick", "--scale", "smoke", "--results-dir", str(tmp_path), "--format", "json"]).output
    )
    assert [row["model"] for row in rows][:2] == [first, second]
    assert math.isclose(float(rows[0]["MB"]), 3.0)
