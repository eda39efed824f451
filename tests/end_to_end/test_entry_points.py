"""The entry points people use: the command line, notebooks under papermill, and rebuilding results from records."""

import ast
import filecmp
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
import pytorch_lightning
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core import notebooks
from ablations.core.store import Records
from ablations.pages import parameters_page
from ablations.pages.publishing import republish
from ablations.planning import checked, grids
from ablations.planning.plan import plan
from ablations.study import Study
from lightning_modules.places import project
from tests import finished, tiny
from tests.depth import NIGHTLY, some
from tests.end_to_end import cells

pytestmark = pytest.mark.usefixtures("embedded")
RATES = "objectives.mlm.masking.rate"


@pytest.fixture
def command(monkeypatch):
    """Runs a command in this process and returns its result."""
    runner = CliRunner()
    return lambda *words: runner.invoke(app, [str(word) for word in words], catch_exceptions=True)


def test_listings_come_for_people_and_for_programs(command):
    assert "masking_ratio" in command("list").output
    listed = json.loads(command("list", "--format", "json").output)
    assert [row["grid"] for row in listed] == list(grids.available())
    assert command("list", "--format", "names").output.split() == list(grids.available())
    changes = json.loads(command("diff", "roberta_base", "roberta_large", "--format", "json").output)
    assert {"knob": "model.num_layers", "roberta_base": 12, "roberta_large": 24} in changes
    assert "124,695,129" in command("params", "roberta_base").output
    assert {"mask15_large", "xlm"} <= set(command("systems").output.split())
    assert "model.languages" in command("params", "xlm").output
    languages = json.loads(command("diff", "bert_base", "xlm", "--format", "json").output)
    assert {"knob": "model.languages", "bert_base": [], "xlm": ["de", "en", "es", "zh"]} in languages


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["diff", "roberta_bose", "roberta_base"], "Did you mean 'roberta_base'?"),
        (["plan", "masking_ratio", "--scale", "smoke", "--filter", "rate"], "not of the form name=value"),
        (["run", "masking_ratio", "--scale", "smoke", "-p", "raets=[0.15]"], "Did you mean 'rates'?"),
        (["run", "masking_ratio", "--scale", "smoke", "--notebook", "quickstrat"], "Did you mean 'quickstart'?"),
        (
            ["run", "zero_shot", "--scale", "smoke", "--notebook", "zero_shot"],
            "grid.ipynb shows this grid: ablations run zero_shot, without --notebook",
        ),
        (
            ["run", "zero_shot", "-s", "smoke", "-p", "sizes=[1 x 64]"],
            "axes={size: [...]}. This grid has size, length, shots",
        ),
        (
            ["plan", "masking_ratio", "-s", "smoke", "--filter", f"{RATES}=0.15", "--filter", f"{RATES}=0.4"],
            f"one list: '{RATES}=[0.15, 0.4]'",
        ),
        (["new", "x", "--axis", "model.num_layers=2,4", "--axis", "model.num_layers=3,4"], "is given twice"),
        (["new", "x", "--axis", "model.num_layers=2"], "compares nothing"),
        (["new", "masking_ratio", "--axis", "model.num_layers=2,4"], "already a grid 'masking_ratio'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(command, words, hint):
    result = command(*words)
    assert result.exit_code == 2
    assert hint in " ".join((result.output + result.stderr).split())
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("undrawn")
def test_a_new_grid_runs_without_another_edit(command, monkeypatch, tmp_path):
    folder = tmp_path / "grids"
    shutil.copytree(grids.FOLDER, folder)
    monkeypatch.setattr(grids, "FOLDER", folder)
    results = ["--results-dir", tmp_path / "results"]
    text = [f'data.corpora=["{tiny.text(tmp_path / "text")}"]', "data.tokenizer.vocab_size=300", "training.steps=6"]
    axes = ["--axis", "model.num_layers=1,2", "--axis", "model.hidden_size=16,32"]
    made = command("new", "depth_vs_width", *axes, *(word for knob in text for word in ("--set", knob)))
    assert made.exit_code == 0, made.output
    assert command("check", "depth_vs_width").exit_code == 0
    assert "8 of 8 runs to train" in command("plan", "depth_vs_width", *results, "--scale", "smoke").output
    options = ["--scale", "smoke", "--no-notebook", "--executor", "inline", "--results-dir", tmp_path / "results"]
    first = command("run", "depth_vs_width", *options, "--filter", "model.hidden_size=16")
    assert first.exit_code == 0, first.output
    assert len(list((tmp_path / "results/records").glob("*/*.json"))) == 4
    whole = command("run", "depth_vs_width", *options)
    assert whole.exit_code == 0
    assert "4 of 8 runs to train" in whole.output
    again = command("run", "depth_vs_width", *options)
    assert "nothing to train" in again.output
    assert (tmp_path / "results/depth_vs_width/smoke/table.md").exists()
    shown = command("show", "depth_vs_width", "--scale", "smoke", "--results-dir", tmp_path / "results")
    assert "2 of 2" in shown.output
    record = next((tmp_path / "results/records").glob("*/*.json")).stem
    assert json.loads(command("show", record[:8], "--results-dir", tmp_path / "results").output)["outcome"] == "done"
    assert "8 of 8 records are sound" in command("verify", "--results-dir", tmp_path / "results").output
    assert "removed 8 folders" in command("clean", "--results-dir", tmp_path / "results").output


def test_a_notebook_runs_under_papermill_and_by_command_alike(tmp_path, command):
    """The rates a list first, and then the text that papermill's -p makes of one; the command does so in a kernel."""
    results = tmp_path / "results"
    source = notebooks.find("masking_ratio")
    parameters = {"scale": "smoke", "seeds": 2, "executor": "inline", "results_dir": str(results)}
    shown = cells.execute(source, parameters | {"rates": [0.15, 0.4]})
    assert any("text/markdown" in output for output in shown)
    (page,) = (results / "masking_ratio").iterdir()
    assert page.name.startswith("smoke-"), "other rates than the grid's are another page"
    table, before = (page / "table.md").read_bytes(), _files(results)

    (page / "table.md").unlink()
    rates = ["-p", "rates=[0.15, 0.4]"]
    ran = command("run", "masking_ratio", "--scale", "smoke", "--seeds", 2, *rates, "--results-dir", results)
    assert ran.exit_code == 0, ran.output
    assert "nothing to train" in ran.output
    assert [name for name in _files(results) if not name.endswith("notebook.ipynb")] == before, "the same runs and page"
    assert (page / "table.md").read_bytes() == table
    executed = nbformat.read(page / "notebook.ipynb", as_version=4).cells
    assert any("svg" in str(output) for cell in executed for output in cell.get("outputs", []))
    assert str(project()) not in (page / "notebook.ipynb").read_text(), "no path of this machine is published"


HANDS_ON = {  # these train no grid
    "masking_gallery": {}, "permutations": {"steps": 8}, "read_the_records": {}, "five_dropouts": {},
    "fading_gradients": {"steps": 2, "seeds": 2}, "train_by_hand": {"steps": 4},
}  # fmt: skip


@pytest.mark.parametrize(("name", "parameters"), some(HANDS_ON.items(), 2))
def test_every_notebook_without_a_grid_runs(finished_results, monkeypatch, name, parameters):
    few = functools.partial(pytorch_lightning.Trainer, limit_val_batches=2)  # where a notebook says no number itself
    monkeypatch.setattr(pytorch_lightning, "Trainer", few)
    if name == "read_the_records":
        parameters = {"results_dir": str(finished_results)}
    assert cells.execute(project() / "notebooks" / f"{name}.ipynb", parameters)


OWN = [name for name in grids.available() if notebooks.find(name).stem == name and name != "masking_ratio"]  # run above
KINDS = ["static_vs_dynamic", "albert_more_data", "zero_shot"]  # pretraining, fine-tuning, measuring
OTHERS = [name for name in grids.available() if name not in (*OWN, *KINDS, "masking_ratio")] if NIGHTLY else []


@pytest.mark.parametrize(
    ("grid", "notebook"),
    [(name, None) for name in (*some(OWN, 1), *some(KINDS, 1), *OTHERS)]
    + some([("masking_ratio", "quickstart"), ("masking_ratio", "inside_a_model")], 1),
)
def test_the_notebook_of_a_grid_runs_at_smoke_scale(tmp_path, grid, notebook):
    source = notebooks.find(grid, notebook)
    asked = {"scale": "smoke", "seeds": 1, "executor": "inline", "results_dir": str(tmp_path / "results")}
    if grid in OWN and not NIGHTLY:  # shown from records; by night trained, as the others are
        finished.records(tmp_path / "results", grid, scale="smoke", seeds=1)
    shown = cells.execute(source, notebooks.checked(source, grid, asked))
    assert any("text/markdown" in output for output in shown)
    filters = ast.literal_eval(papermill.inspect_notebook(str(source))["filters"]["default"])
    planned = {run.id for run in plan(grids.read(grid), "smoke", seeds=1, filters=filters).runs}
    assert {path.stem for path in (tmp_path / "results/records").glob("*/*.json")} == planned
    assert all(record.outcome == "done" for record in Records(tmp_path / "results").all())


def test_the_notebook_for_any_grid_shows_what_was_searched_and_set(tmp_path, command, monkeypatch):
    """A grid by its path, with a search and a knob that the command sets: the notebook trains nothing more."""
    search = "search: {axes: {optimizer.peak_lr: [1.0e-3, 3.0e-3]}, metric: heldout.loss}\nabout: Hide *more*.\n"
    file, results, shown = tiny.grid(tmp_path, seeds=1, extra=search), tmp_path / "results", []

    def execute(source, parameters, output, runs):
        before = _files(results / "records")
        shown.extend(cells.execute(source, parameters))
        assert _files(results / "records") == before

    monkeypatch.setattr(notebooks, "execute", execute)
    words = ["--executor", "inline", "-p", "set={training.steps: 6}", "--results-dir", results]
    ran = command("run", file, "--scale", "smoke", *words)
    assert ran.exit_code == 0, ran.output
    assert {record.config["system"]["training"]["steps"] for record in Records(results).all()} == {6}
    assert len(list(Records(results).all())) == 6, "two rates of learning to choose from, for each of two cells"
    text = "\n".join(output.get("text/markdown", "") for output in shown)
    assert "Hide *more*." in text
    assert "`training.steps` = 6 in every cell" in text
    assert any("image/svg+xml" in output for output in shown), "curves"


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.nightly
def test_pages_are_rebuilt_byte_for_byte_from_records_alone(tmp_path):
    """Everything but records and requests deleted, another locale, time zone and hash seed, no corpus at hand."""
    results = tmp_path / "results"
    parameters_page.publish(results)
    finished.records(results, "masking_ratio", scale="smoke")
    for axes, seeds in ((None, None), ({RATES: [0.15, 0.75]}, 1)):  # the second is trained in part
        study = Study("masking_ratio", "smoke", axes=axes, seeds=seeds, results_dir=results)
        study.run(executor="inline")
        study.publish()
    republish(results)  # the scoreboard, too
    before = tmp_path / "before"
    shutil.copytree(results, before)
    for path in results.glob("*/*/*"):
        if path.parent.parent.name != "records" and path.name != "request.json":
            path.unlink()
    shutil.rmtree(results / "published")
    (results / "README.md").unlink()
    shutil.copytree(checked.cache() / "checked", tmp_path / "nothing" / "checked")  # the grids, which were read above
    environment = os.environ | {
        "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "ABLATIONS_CACHE": str(tmp_path / "nothing"),
    }  # fmt: skip
    code = "import sys; from ablations.pages.publishing import republish; republish(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(results)], env=environment, check=True, cwd=tmp_path)
    assert _files(results) == _files(before)
    _, different, broken = filecmp.cmpfiles(before, results, _files(before), shallow=False)
    assert not different + broken


@pytest.mark.usefixtures("undrawn")
def test_a_grid_without_a_comparison_gets_no_page(tmp_path):
    """Runs that a grid shares with another one leave it a page only where they make two cells."""
    finished.records(tmp_path, "masking_ratio", scale="smoke", axes={RATES: [0.15]}, seeds=1)
    assert republish(tmp_path) == []
    finished.records(tmp_path, "masking_ratio", scale="smoke", axes={RATES: [0.4]}, seeds=1)
    assert republish(tmp_path) == [tmp_path / "masking_ratio" / "smoke"]


def test_what_is_committed_is_what_the_records_say(tmp_path):
    """Two pages of the project's own results, rebuilt elsewhere from records; `make oracle` does all."""
    here = project() / "results"
    rebuilt = ("embedding_size/", "task_distillation/")
    listed = subprocess.run(["git", "ls-files", "results"], cwd=project(), capture_output=True, text=True, check=False)
    pages = {name.removeprefix("results/") for name in listed.stdout.split()}
    for name in pages:  # not what was run here since; a page links to its notebook
        if name.startswith(("records/", "bars/")) or name.endswith(("notebook.ipynb", "request.json")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here / name, tmp_path / name)
    for grid in rebuilt:
        (tmp_path / grid / "laptop").mkdir(parents=True)
        republish(tmp_path, grid=grid.rstrip("/"))
    for name in pages:
        if name.startswith(rebuilt):
            assert (tmp_path / name).read_bytes() == (here / name).read_bytes(), name
