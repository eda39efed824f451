"""Files of pages that are damaged: named, left out of the overviews, and every other page is written."""

import json
import warnings

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.planning import grids
from tests import finished
from tests.depth import some

GARBAGE = {"nothing": "", "no JSON": "{", "another thing": "[1, 2]", "a deep nest": "[" * 100_000, "a folder": None}
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The records of two pages that were not published yet, among others."""
    known = grids.available()
    chosen = {name: known[name] for name in ("masking_ratio", "layer_similarity")}
    monkeypatch.setattr(grids, "available", lambda *_: chosen)
    finished.records(tmp_path, *chosen)
    return tmp_path


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if content is None else path.write_text(content)


def tables(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, ["tables", "--results-dir", str(folder)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_cards_of_other_pages_that_are_none(results):
    for number, (name, content) in enumerate(GARBAGE.items()):
        put(results / "another" / f"scale{number}" / "page.json", content)
    put(results / "another" / "odd" / "page.json", '{"question": "?", "finished": 1, "planned": 1, "claims": 3}')
    claim = {"effect": None, "n": 1, "runs": []}
    claim |= dict.fromkeys(("claim", "asked", "statement", "sentence", "metric"), "x") | {"outcome": "contradicts"}
    old = {"question": "?", "finished": 1, "planned": 1, "verdicts": "", "claims": [claim]}  # of an older version
    put(results / "another" / "old" / "page.json", json.dumps(old))
    put(results / "essays" / "odd" / "notebook.ipynb", "{}")
    done = tables(results)
    assert done.exit_code == 0
    for place in (*(f"scale{number}" for number in range(len(GARBAGE))), "odd", "old"):
        assert f"another/{place}/page.json" in done.stderr
    index = (results / "README.md").read_text()
    assert "masking_ratio/laptop" in index
    assert "another" not in index
    assert "essays/odd" in index


@pytest.mark.parametrize("content", some([None, '{"measurements": [1]}', '{"measurements": [{"device": "cpu"}]}'], 2))
def test_measurements_of_inference_that_are_none(results, content):
    path = results / "masking_ratio" / "laptop" / "inference.json"
    put(path, content)
    done = tables(results)
    assert done.exit_code == 2
    assert str(path) in done.stderr
    assert "layer_similarity/laptop" in (results / "README.md").read_text()
    assert (results / "layer_similarity" / "laptop" / "table.csv").exists()


@pytest.mark.parametrize(
    "content",
    some(["[" * 100_000, None, '{"grid": "masking_ratio", "scale": "laptop", "axes": 3}',
          '{"grid": "masking_ratio", "scale": "laptop", "seeds": "two"}', '{"grid": 1}'], 2),
)  # fmt: skip
def test_requests_that_are_none(results, content):
    put(results / "masking_ratio" / "laptop-abc" / "request.json", content)
    done = tables(results)
    assert done.exit_code == 2
    assert "masking_ratio/laptop-abc" in done.stderr
    assert (results / "masking_ratio" / "laptop" / "README.md").exists()


def test_a_results_folder_whose_parts_are_files_is_refused_before_anything_runs(tmp_path):
    for part in ("records", "environments", ".locks"):
        folder = tmp_path / part.strip(".")
        put(folder / part, "a file")
        words = ["run", "masking_ratio", "--scale", "smoke", "--no-notebook", "--results-dir", str(folder)]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2
        assert f"cannot write results to {folder}: {part}: File exists" in done.stderr
    assert Records(tmp_path / "records").work_folders() == []
