"""Searches made, stopped, resumed and published; and what is wrong with a search, said with file and line."""

import itertools
import json

import pytest

from ablations.claims import judging
from ablations.core import machine, strict_yaml
from ablations.core.store import Records
from ablations.measurements.measurements import Measurements
from ablations.planning import new_grid
from ablations.running import estimate
from ablations.schema.grid import Search
from ablations.study import Study
from lightning_modules import cached
from lightning_modules import pretraining as fitting
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.training.callbacks import CHECKPOINT, Diverged, Fitted
from lightning_modules.training.weights import WEIGHTS
from tests.messages import names, naming
from tests.unit.planning.test_search import LR, RATE, read, written

TWO = f"search:\n  axes: {{{LR}: [1.0e-3, 3.0e-3]}}\n  metric: heldout.loss\n  seeds: 2\n"
CLAIM = f"""\
claims:
  - id: more
    statement: More is better.
    source: Table 1
    metric: heldout.loss
    a: {{{RATE}: 0.4}}
    b: {{{RATE}: 0.15}}
"""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", dict)


@pytest.fixture
def trainings(monkeypatch):
    """Trainings that take no time: what was made, and a function of the run that may raise in its place."""
    made, obstacle = [], {"": lambda run: None}

    def fit(system, seed, folder, **_):
        run = (system.get(RATE), system.get(LR), seed)
        made.append(run)
        obstacle[""](run)
        cached.write(folder / WEIGHTS, lambda file: None)
        (folder / CHECKPOINT).touch()
        better = 3e-3 if system.get(RATE) == 0.15 else 1e-3
        loss = 4.0 + 0.1 * (system.get(LR) != better) + seed % 10 / 50 + system.get(RATE) * (1 + seed % 10 / 100)
        metrics = {"heldout.loss": loss, "heldout.bigram_loss": 6.0, "heldout.plateau": False}
        return Fitted(metrics=metrics, cost={"flops": 1e6, "seconds": 2.0, "tokens": 64.0})

    monkeypatch.setattr(fitting, "fit", fit)
    return made, obstacle


def study(folder, *args, **options):
    return Study(written(folder, *(args or (TWO,)), **options), "smoke", results_dir=folder / "results")


def test_one_call_makes_both_phases(tmp_path, trainings):
    made, _ = trainings
    summary = study(tmp_path).run("inline")
    assert (summary.outcomes, summary.executed) == ({"done": 12}, 12)
    assert [seed for *_, seed in made] == [1000] * 4 + [1001] * 4 + [0, 0, 1, 1]
    assert {(rate, lr) for rate, lr, seed in made if seed < 1000} == {(0.15, 3e-3), (0.4, 1e-3)}
    again = study(tmp_path).run("inline")
    assert (again.outcomes, again.executed) == ({"done": 12}, 0)


@pytest.mark.parametrize("stop", [1, 5, 8, 9, 12])
def test_an_interruption_changes_nothing(tmp_path, trainings, stop):
    made, obstacle = trainings

    def interrupt(run):
        if len(made) == stop:
            raise KeyboardInterrupt

    obstacle[""] = interrupt
    with pytest.raises(KeyboardInterrupt):
        study(tmp_path).run("inline")
    obstacle[""] = lambda run: None
    assert study(tmp_path).run("inline").outcomes == {"done": 12}
    assert len(made) == 13
    assert {(rate, lr) for rate, lr, seed in made if seed < 1000} == {(0.15, 3e-3), (0.4, 1e-3)}


def test_a_search_that_lost_a_record_is_completed_and_chooses_the_same(tmp_path, trainings):
    made, _ = trainings
    one = study(tmp_path)
    one.run("inline")
    kept, records = {run.id for run in one.resolve().runs}, Records(tmp_path / "results")
    records.path(one.resolve().cells[1].search[1].runs[0].id).unlink()
    found = one.resolve()
    assert [cell.label for cell in found.open] == ["rate=0.4"]
    assert len(found.pending) == 1
    made.clear()
    assert one.run("inline").outcomes == {"done": 12}
    assert made == [(0.4, 3e-3, 1000)]
    assert {run.id for run in one.resolve().runs} == kept


def test_a_search_that_fails_evaluates_nothing_and_says_so(tmp_path, trainings):
    made, obstacle = trainings

    def fail(run):
        if run == (0.4, 1e-3, 1001):
            raise ValueError("not today")

    obstacle[""] = fail
    one = study(tmp_path, TWO + CLAIM)
    summary = one.run("inline", retries=0)
    assert not summary.complete
    assert "not evaluated, search unfinished: rate=0.4" in str(summary)
    assert {rate for rate, _, seed in made if seed < 1000} == {0.15}
    assert one.resolve().counts == {"done": 9, "failed": 1}
    (verdict,) = judging.verdicts(Measurements(one.grid, one.resolve().cells, one.records))
    assert (verdict.outcome, verdict.n) == ("open", 0)
    assert list(one.runs()["outcome"]) == ["done", "done", "not run", "not run"]
    one.publish()
    card = json.loads((one.folder / "page.json").read_text())
    assert (card["finished"], card["planned"], card["claims"][0]["outcome"]) == (9, 12, "not run")
    assert "9 of 12 runs finished" in (one.folder / "README.md").read_text()
    assert "2 not run (search unfinished)" in (one.folder / "table.md").read_text()
    assert "waits for rate=0.4, peak_lr=0.001 search 1001 (failed)" in one.plan().text.replace("\\", "")


def test_diverging_in_a_search_is_an_answer(tmp_path, trainings):
    _, obstacle = trainings

    def diverge(run):
        if run[1] == 3e-3:
            raise Diverged(3)

    obstacle[""] = diverge
    one = study(tmp_path)
    assert one.run("inline").outcomes == {"done": 8, "diverged": 4}
    assert [cell.chosen[LR] for cell in one.resolve().cells] == [1e-3, 1e-3]
    assert one.resolve().is_finished
    one.publish()
    assert "**12 of 12 runs finished.**" in (one.folder / "README.md").read_text()


def test_the_search_is_charged_to_its_cell(tmp_path, trainings):
    one = study(tmp_path, TWO + CLAIM)
    assert "8 of 8 runs to train and 4 that follow their searches" in estimate.cost(one.resolve())
    planned = one.plan().text
    assert "+ search" in planned
    assert "4 runs, 3.07 k tokens" in planned
    one.run("inline")
    one.publish()
    rows = [line.split(" | ") for line in (one.folder / "table.md").read_text().splitlines() if line.startswith("|")]
    cells = [dict(zip(rows[0], row, strict=True)) for row in rows[2:4]]
    assert [cell["chosen peak_lr"] for cell in cells] == ["0.003", "0.001"]
    for cell in cells:
        named = ("search runs", "search tokens", "search FLOPs", "search time")
        assert [cell[name] for name in named] == ["4 of 4", "256", "4 M", "8 s"]
    assert names((one.folder / "README.md").read_text(), "searches", "8 runs", "16 s", "512 tokens", "8 M")
    same = "Every cell makes the same search: 2 combinations (peak_lr 0.001, 0.003), each from seeds 1000 to 1001"
    assert same in (one.folder / "details.md").read_text()
    (verdict,) = judging.verdicts(Measurements(one.grid, one.resolve().cells, one.records))
    assert verdict.n == 2
    evaluated = {run.id for cell in one.resolve().cells for run in cell.runs}
    assert {run for pair in verdict.runs for run in pair} <= evaluated


def test_page_and_sidecars_name_the_runs_of_searches(tmp_path, trainings):
    one = study(tmp_path)
    one.run("inline")
    one.publish()
    found = one.resolve()
    ids = [[run.id for run in trial.runs] for cell in found.cells for trial in cell.search]
    for name, key in (("table", "cells"), ("search", "searches")):
        told = json.loads((one.folder / f"{name}.json").read_text())[key]
        assert [trial["runs"] for cell in told for trial in cell["search"]] == ids
        assert [cell["chosen"] for cell in told] == [{LR: 3e-3}, {LR: 1e-3}]
    assert (one.folder / "search.md").read_text().count("| chosen |") == 2


# --- what is wrong with a search

FINE = f"""\
search:
  axes:
    {LR}: [1.0e-3, 3.0e-3]
  metric: heldout.loss
"""
MISTAKES = {
    "bad knob": ((LR, "optimizer.peak_rl"), naming("search.axes.optimizer.peak_rl", LR)),
    "also varied": ((LR, RATE), naming(f"search.axes.{RATE}", "axis")),
    "whole systems": ((LR, "system"), naming("search.axes.system", "axis")),
    "steps": ((LR, "training.steps"), naming("budget", "steps", "equal")),
    "more tokens a step": ((LR, "training.batch_size"), naming("training.batch_size", "budget", "steps", "equal")),
    "cost": (
        ("heldout.loss", "cost.seconds"),
        naming("search.metric", "cost.seconds"),
    ),
    "measurement": ((LR, "evaluation.sequences"), naming("evaluation.sequences", "measured")),
    "label": ((LR, "paper"), naming("search.axes.paper", "label")),
    "bad value": (("3.0e-3", "-3.0e-3"), naming("tiny.yaml:26", f"search.axes.{LR}.1")),
    "a value alone": (("[1.0e-3, 3.0e-3]", "0.001"), naming("list", "[1, 2]", "0.001")),
    "no knob": ((f"\n    {LR}: [1.0e-3, 3.0e-3]", " {}"), naming("search.axes", "empty")),
    "no value": (("[1.0e-3, 3.0e-3]", "[]"), naming(f"search.axes.{LR}", "value")),
    "twice": (("3.0e-3", "1.0e-3"), naming("0.001", "twice")),
    "unknown metric": (
        ("heldout.loss", "heldout.los"),
        naming("'heldout.los'", "'heldout.loss'?"),
    ),
    "no such task": (("heldout.loss", "rte.accuracy"), naming("search.metric", "'smoke'")),
    "zero seeds": (
        ("heldout.loss", "heldout.loss\n  seeds: 0"),
        naming("search.seeds", "1"),
    ),
    "misspelt key": (("metric:", "metrics:"), naming("search.metrics", "'metric'?")),
    "fine-tuning": ((LR, "finetuning.epochs"), naming("Fine-tuning", "'heldout.loss'")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(tmp_path, name):
    (old, new), message = MISTAKES[name]
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, FINE.replace(old, new))


@pytest.mark.parametrize(
    ("search", "scale", "message"),
    [
        ("", ", search: {seeds: 2}", naming("scales.smoke.search", "'search'")),
        (FINE, ", search: {seeds: 0}", naming("scales.smoke.search.seeds", "1")),
        (
            FINE.replace(LR, "objectives.sentence.weight"),
            "",
            naming("search", "objectives.sentence", "rate=0.15"),
        ),
    ],
)
def test_mistakes_of_scales_are_named(tmp_path, search, scale, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, search, scale=scale)


def test_a_knob_that_makes_no_difference_is_named(tmp_path):
    knob = "finetuning.optimizer.peak_lr"
    search = FINE.replace(LR, knob).replace("heldout.loss", "rte.accuracy")
    fixed = "set:\n  finetuning.rte.optimizer.peak_lr: 1.0e-5\n"
    file = written(tmp_path, "tasks: [rte]\n" + search)
    file.write_text(file.read_text().replace("set:\n", fixed, 1))
    with pytest.raises(ConfigError, match=naming(f"search.axes.{knob}", "'rte.accuracy'", "'smoke'")):
        Study(file, "smoke", results_dir=tmp_path / "results")


def test_the_example_of_new_grids_is_valid(tmp_path):
    lines = new_grid._text({"model.num_layers": [1, 2]}, SYSTEMS["mask15_large"], None, {}, True).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("# search:"))
    block = itertools.takewhile(lambda line: line.startswith("# "), lines[start:])
    example = [line.removeprefix("# ") for line in block]
    assert strict_yaml.value("\n".join(example)) is not None
    grid = read(tmp_path, "\n".join(example) + "\n")
    assert isinstance(grid.search, Search)


@pytest.mark.slow
@pytest.mark.usefixtures("embedded")
def test_a_recipe_is_chosen_on_the_training_set_and_judged_on_the_dev_set(tmp_path):
    search = (
        "tasks: [bigram_shift]\nsearch:\n  set: {finetuning.validation_share: 0.05}\n"
        "  axes: {finetuning.optimizer.peak_lr: [1.0e-4, 1.0e-3]}\n  metric: bigram_shift.accuracy\n"
    )
    file = written(tmp_path, search, rates="[0.15]", seeds=1, steps=2)
    file.write_text(file.read_text().replace("set:\n", "set:\n  finetuning.steps: 2\n", 1))
    one = Study(file, "smoke", results_dir=tmp_path / "results")
    assert one.run("inline").outcomes == {"done": 1 + 2 + 1 + 1}
    tuned = [run for run in one.resolve().runs if run.task]
    scored = [(run.seed, len(unpack(one.records.get(run.id).examples["right"]))) for run in tuned]
    assert scored == [(1000, 200), (1000, 200), (0, 500)]
