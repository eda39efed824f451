"""Publishing beside what cannot be read: a grid of one's own, a broken file, a text that is gone."""

import json
import re
import shutil
import threading

import pytest

from ablations.core.disk.publishing import turn
from ablations.pages import publishing
from ablations.planning import grids
from ablations.study import Study
from lightning_modules.config import ConfigError
from tests import tiny
from tests.messages import naming
from tests.unit.synthetic import make_record

pytestmark = pytest.mark.usefixtures("undrawn")
HYPOTHESIS = """\
claims:
  - id: less_is_more
    statement: Hiding less is better.
    metric: heldout.loss
    a: {objectives.mlm.masking.rate: 0.15}
    b: {objectives.mlm.masking.rate: 0.4}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of grids, of which two are the project's, with a grid of one's own."""
    folder = tmp_path / "grids"
    folder.mkdir()
    for name in ("masking_ratio", "embedding_size"):
        shutil.copy(grids.locate(name), folder)
    monkeypatch.setattr(grids, "FOLDER", folder)
    own = tiny.grid(tmp_path / "own", extra=HYPOTHESIS)
    shutil.copy(own, folder)
    return folder


def finished(name, scale, results):
    """A study whose runs are all done."""
    study = Study(name, scale, results_dir=results)
    for place, cell in enumerate(study.resolve().cells):
        for run in cell.runs:
            study.records.put(make_record(run, 4 + 0.1 * place + 0.01 * run.seed, config=run.to_dict()))
    study.resolve()
    return study


def test_a_hypothesis_is_on_its_page_by_name_and_on_no_row_of_the_board(folder, tmp_path):
    (folder / "tiny.yaml").write_text((folder / "tiny.yaml").read_text().replace("smoke:", "laptop:"))
    study = finished("tiny", "laptop", tmp_path / "results")
    stated = study.hypotheses()
    assert "own hypothesis" in str(stated)
    assert stated.data[["claim", "published claim"]].to_numpy().tolist() == [["less_is_more", ""]]
    study.publish()
    assert "| 1: Hiding less is better. |" in (study.folder / "README.md").read_text()
    assert "* Source (1): own hypothesis." in (study.folder / "details.md").read_text()
    assert "own hypothesis" in (study.folder / "claims.md").read_text()
    board = (study.records.folder / "claims.csv").read_text()
    assert "less_is_more" not in board
    assert "tiny" not in board
    assert study.folder in publishing.republish(study.records.folder)


def test_the_scoreboard_counts_runs_that_stand_behind_no_verdict(folder, tmp_path):
    study = finished("masking_ratio", "laptop", tmp_path / "results")
    finished("masking_ratio", "smoke", tmp_path / "results")
    study.publish()
    board = (tmp_path / "results" / "claims.md").read_text()
    everything = len(list(study.records.folder.glob("records/*/*.json")))
    behind = [int(count) for count in re.findall(r"(\d+) runs behind these verdicts", board)]
    assert re.findall(r"(\d+) runs of all scales", board) == [str(everything)]
    assert 0 < sum(behind) < everything


def test_a_file_that_cannot_be_read_stops_no_other_page(folder, tmp_path):
    study = finished("masking_ratio", "laptop", tmp_path / "results")
    broken = (folder / "tiny.yaml").read_text().replace("id: less_is_more", "claim: mask15.r.40_gt_15_mnly")
    (folder / "tiny.yaml").write_text(broken)
    with pytest.warns(publishing.GridWarning, match=naming("tiny.yaml:25", "mask15.r.40_gt_15_mnli")):
        study.publish()
    assert (study.folder / "README.md").exists()
    before = (study.folder / "table.md").read_bytes()
    (study.folder / "table.md").unlink()
    with pytest.raises(ConfigError, match=naming("tiny.yaml:25")):
        publishing.republish(study.records.folder)
    assert (study.folder / "table.md").read_bytes() == before
    assert (study.records.folder / "claims.md").exists()


def test_a_scale_that_does_not_count_leaves_the_scoreboard_alone(folder, tmp_path):
    finished("masking_ratio", "laptop", tmp_path / "results").publish()
    before = (tmp_path / "results" / "claims.md").stat()
    study = finished("masking_ratio", "demo-scratch", tmp_path / "results")
    study.publish()
    assert (study.folder / "README.md").exists()
    assert "masking_ratio/demo-scratch" in (tmp_path / "results" / "README.md").read_text()
    after = (tmp_path / "results" / "claims.md").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_page_whose_text_is_gone_stays_as_it_was_and_is_named(folder, tmp_path):
    results = tmp_path / "results"
    own, other = finished("tiny", "smoke", results), finished("masking_ratio", "smoke", results)
    own.publish()
    other.publish()
    table, rows = ((own.folder / name).read_bytes() for name in ("table.csv", "table.md"))
    shutil.rmtree(text := tmp_path / "own" / "text")
    with pytest.raises(ConfigError, match=naming("tiny/smoke", "No file matches", f"{text}/*.txt")):
        publishing.republish(results)
    assert (own.folder / "table.md").read_bytes() == rows
    assert (own.folder / "table.csv").read_bytes() == table


def test_cells_of_equal_scores_are_compared(folder, tmp_path):
    results = tmp_path / "results"
    study = Study("tiny", "smoke", results_dir=results)
    for run in study.resolve().runs:
        study.records.put(make_record(run, 4.0, config=run.to_dict()))
    assert study.folder in publishing.republish(results)


def test_a_page_whose_runs_are_no_longer_planned_says_so(folder, tmp_path):
    """As when a row of one's own data has changed: the old numbers are those of other runs."""
    results = tmp_path / "results"
    study = finished("tiny", "smoke", results)
    study.publish()
    assert "**4 of 4 runs finished.**" in (study.folder / "README.md").read_text()
    grid = folder / "tiny.yaml"
    grid.write_text(grid.read_text().replace("training.steps: 12", "training.steps: 13"))
    publishing.republish(results)
    page = (study.folder / "README.md").read_text()
    assert "**0 of 4 runs finished.**" in page
    assert "4.0" not in (study.folder / "table.csv").read_text()


def test_of_two_that_publish_at_once_the_second_waits_and_shows_the_runs_of_both(folder, tmp_path):
    study = finished("tiny", "smoke", tmp_path / "results")
    held = [study.records.path(run.id) for run in study.resolve().runs][:1]
    content = held[0].read_bytes()
    held[0].unlink()
    second = threading.Thread(target=publishing.republish, args=(study.records.folder,))
    with turn(study.records.folder):
        second.start()
        second.join(timeout=1)
        assert second.is_alive()
        assert not study.folder.exists()
        held[0].write_bytes(content)
    second.join()
    assert (
        f"**{len(study.resolve().runs)} of {len(study.resolve().runs)} runs finished.**"
        in (study.folder / "README.md").read_text()
    )


def test_the_pages_of_one_grid_are_rebuilt_alone(folder, tmp_path):
    study, other = (finished(name, "smoke", tmp_path / "results") for name in ("masking_ratio", "embedding_size"))
    study.publish()
    publishing.republish(study.records.folder, "masking_ratio")
    whole = {path: path.read_bytes() for path in study.records.folder.rglob("*") if path.is_file()}
    for path in (study.folder / "table.md", study.records.folder / "README.md"):
        path.write_text("spoilt")
    assert publishing.republish(study.records.folder, "masking_ratio") == [study.folder]
    assert {path: path.read_bytes() for path in whole} == whole
    assert not other.folder.exists()
    with pytest.raises(ConfigError, match=r"'embedding_size' has no page in .* `ablations run embedding_size"):
        publishing.republish(study.records.folder, "embedding_size")
    with pytest.raises(ConfigError, match="Did you mean 'masking_ratio'"):
        publishing.republish(study.records.folder, "masking_ratoi")


def test_a_request_makes_nobody_read_a_text(folder, tmp_path, monkeypatch):
    study, private = finished("masking_ratio", "smoke", tmp_path / "results"), tmp_path / "private.txt"
    study.publish()
    (folder / "tiny.yaml").unlink()
    private.write_text("A private text of two documents.\n\nThis is the other one.\n")
    page = study.records.folder / "masking_ratio" / "smoke-012345"
    page.mkdir()
    for corpus, said in ((f"text:{private}", str(private)), ("hub:nobody/nothing", "hub:nobody/nothing")):
        request = {"grid": "masking_ratio", "scale": "smoke", "set": {"data.corpora": [corpus]}}
        (page / "request.json").write_text(json.dumps(request))
        monkeypatch.setattr("lightning_modules.data.pins.measured", lambda name: pytest.fail(f"{name} is read"))
        with pytest.raises(
            ConfigError, match="masking_ratio/smoke-012345: stays as it was: nobody has read"
        ) as refused:
            publishing.republish(study.records.folder)
        assert said in str(refused.value)
