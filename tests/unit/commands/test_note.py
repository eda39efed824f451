"""Notes on runs: beside the records, in the long table, and in no record."""

import shutil

import pytest
from typer.testing import CliRunner

import ablations
from ablations.commands.cli import app
from ablations.core.disk import notes
from ablations.core.store import Records
from lightning_modules.config import ConfigError


@pytest.fixture
def results(finished_results, tmp_path):
    return shutil.copytree(finished_results, tmp_path / "results")


def noted(results, *words):
    return CliRunner().invoke(app, ["note", *words, "--results-dir", str(results)])


def frame(results):
    return ablations.frame("masking_ratio", scale="laptop", results_dir=results)


def test_a_note_of_a_run_stands_in_its_rows_and_in_no_record(results):
    before = {path: path.read_bytes() for path in Records(results).files()}
    run, other = frame(results)["run"].unique()[:2]
    assert noted(results, run, "for the talk").exit_code == 0
    rows = frame(results).set_index("run")["note"]
    assert set(rows[run]) == {"for the talk"}
    assert set(rows[other]) == {""}
    assert {path: path.read_bytes() for path in Records(results).files()} == before
    assert noted(results, run, "").exit_code == 0
    assert set(frame(results)["note"]) == {""}


def test_a_note_of_a_cell_is_of_all_its_runs_and_shown(results):
    assert noted(results, "masking_ratio", "rate=0.4", "the best").exit_code == 0
    rows = frame(results)
    assert set(rows.query("note == 'the best'")["cell"]) == {"rate=0.4"}
    assert set(rows.query("cell == 'rate=0.4'")["note"]) == {"the best"}
    shown = CliRunner().invoke(app, ["show", "masking_ratio", "--results-dir", str(results)])
    assert "the best" in shown.output


def test_a_cell_that_is_not_there_is_named_with_the_nearest(results):
    ended = noted(results, "masking_ratio", "rate=0.41", "what?")
    assert ended.exit_code == 2
    assert "rate=0.4" in ended.output


def test_a_file_that_holds_no_notes_is_named(tmp_path):
    (tmp_path / notes.FILE).write_text("[1]")
    with pytest.raises(ConfigError, match=r"notes\.json"):
        notes.notes(tmp_path)
