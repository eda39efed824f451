"""The long table of a grid, its dictionary, and that no record is read twice for a page."""

import io
import os
import re
import subprocess
import sys
from collections import Counter

import pandas as pd
import pytest
from typer.testing import CliRunner

import ablations
from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.measurements.dictionary import dictionary, lines, meaning, unit
from ablations.pages import publishing, runs_table
from ablations.planning import grids
from lightning_modules.places import project
from tests import finished

DOCUMENT = project() / "docs" / "records.md"
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def results(finished_results):
    """A results folder whose grids are of pretrainings and of fine-tunings."""
    return finished_results


def printed(grid, results):
    """What the command of the page prints."""
    options = ["--scale", "laptop", "--format", "csv", "--results-dir", str(results)]
    ended = CliRunner().invoke(app, ["show", grid, *options], catch_exceptions=False)
    assert ended.exit_code == 0
    return ended.stdout


@pytest.fixture(scope="module")
def runs(results):
    tables = [io.StringIO(printed(grid, results)) for grid in finished.SHARED]
    return pd.concat([pd.read_csv(table, keep_default_na=False) for table in tables], ignore_index=True)


def test_each_record_is_read_once(tmp_path, monkeypatch):
    count = len(finished.records(tmp_path, "masking_ratio").files())
    known = grids.available()
    monkeypatch.setattr(grids, "available", lambda *_: {"masking_ratio": known["masking_ratio"]})
    reads, read = Counter(), Records._read
    monkeypatch.setattr(Records, "_read", lambda self, path: (reads.update([path.name]), read(self, path))[1])
    assert publishing.republish(tmp_path) == [tmp_path / "masking_ratio" / "laptop"]
    assert len(reads) == count
    assert set(reads.values()) == {1}
    reads.clear()
    here = pd.read_csv(io.StringIO(printed("masking_ratio", tmp_path)))
    assert here["run"].nunique() == count == len(reads)


def test_it_has_every_number_of_every_record(runs, results):
    kept = {(row.run, row.metric): float(row.value) for row in runs.itertuples()}
    for record in Records(results).all():
        numbers = {**record.metrics, **{f"cost.{name}": value for name, value in record.cost.items()}}
        for name, value in numbers.items():
            assert kept[record.id, name] == value
    assert not runs.duplicated(["grid", "scale", "cell", "run", "metric"]).any()
    assert list(runs.columns) == list(runs_table.Row._fields)


def test_every_metric_is_in_the_dictionary_with_its_unit(runs):
    for metric, printed in runs[["metric", "unit"]].drop_duplicates().itertuples(index=False):
        assert meaning(metric).unit == printed


def test_the_document_has_every_column():
    columns = re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text().partition("## Names")[0], re.MULTILINE)
    assert columns == list(runs_table.Row._fields)
    with pytest.raises(KeyError, match="dictionary"):
        meaning("heldout.unheard_of_metric")


def test_a_name_falls_under_its_own_line():
    for one in dictionary():
        if "<" not in one.pattern:
            assert meaning(one.pattern) == one
    assert meaning("stsb.dev_loss").unit == unit("stsb.dev_loss") == "squared error"
    assert {unit(f"{task}.dev_loss") for task in ("sst2", "gap", "wnut17", "copa", "squad2")} == {"nats"}
    assert unit("of.another_version") == ""
    assert meaning("rte.dev_loss").unit == "nats"
    assert meaning("cola.matthews.tfidf").unit == "correlation"
    assert meaning("cost.seconds").unit == "s"


def example(number, folder):
    """What an example of the document prints."""
    code = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[number]
    environment = {**os.environ, "LC_ALL": "C"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=True).stdout


def test_the_example_of_the_document_runs(results, tmp_path):
    (tmp_path / "runs.csv").write_text(printed("masking_ratio", results))
    assert "rate=0.4" in example(0, tmp_path)


@pytest.mark.nightly
def test_the_example_of_the_names_prints_the_dictionary():
    assert example(1, project()).splitlines() == lines()


def test_the_example_of_a_verdict_runs():
    assert "upper" in example(2, project())


def test_curves_are_rows_of_step_and_tokens(results):
    found = ablations.frame("masking_ratio", scale="laptop", results_dir=results, curves=True)
    ends = ablations.frame("masking_ratio", scale="laptop", results_dir=results)
    assert list(found.columns) == list(runs_table.Point._fields)
    assert found.groupby(["run", "metric"])["tokens"].is_monotonic_increasing.all()
    known = ends.query("kind == 'pretrain' and outcome == 'done' and metric == 'cost.tokens'").set_index("run")["value"]
    last = found.groupby("run")["tokens"].max()
    assert len(last)
    assert (last == known[last.index]).all()
