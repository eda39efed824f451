"""Weights that are kept with the records serve a clone, whose cache is empty; damaged ones never do."""

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.disk import kept_weights
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.estimate import notes
from ablations.running.execute import execute
from lightning_modules.data.text import tokenizer
from lightning_modules.training.weights import WEIGHTS
from tests import tiny

START = "training.start: {training.steps: 6, objectives.mlm.masking.rate: 0.15}"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A grid whose arm continues a trunk that is kept, in a clone: the cache is empty, the arm has no record."""
    file = tiny.grid(tmp_path, rates="[0.4]", seeds=1, steps=4, extra="claims: []\n")
    file.write_text(file.read_text().replace("set:\n", f"set:\n  {START}\n", 1))
    file.write_text(file.read_text().replace("baseline: {objectives.mlm.masking.rate: 0.15}\n", ""))
    records = Records(tmp_path / "results")
    grid = grids.read(file)
    found = plan(grid, "smoke", records=records)
    assert execute(found, records, "inline").outcomes == {"done": 2}
    (trunk,), arm = found.trunks, found.cells[0].runs[0]
    measured = records.get(arm.id).metrics
    assert command("keep", trunk.id[:8], records).exit_code == 0
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "elsewhere"))
    records.path(arm.id).unlink()
    return grid, records, trunk, arm, measured


def command(*words):
    *words, records = words
    return CliRunner().invoke(app, [*map(str, words), "--results-dir", str(records.folder)])


def said(result):
    return " ".join((result.output + result.stderr).split())


def test_what_starts_from_kept_weights_trains_nothing_again(clone):
    grid, records, trunk, arm, measured = clone
    found = plan(grid, "smoke", records=records)
    assert not any("trained again" in line for line in notes(found, records))
    assert execute(found, records, "inline").executed == 1
    assert records.get(arm.id).metrics == measured
    assert not (records.work_folder(trunk.id) / WEIGHTS).exists()


def test_altered_ones_are_named_and_the_run_is_trained_again(clone):
    grid, records, trunk, arm, measured = clone
    assert command("verify", records).exit_code == 0
    path = records.folder / "weights" / trunk.id / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    answer = command("verify", records)
    assert answer.exit_code == 1
    assert f"weights/{trunk.id}/{WEIGHTS}: is missing or not as it was written" in said(answer)
    assert "1 of 1 records are sound" in said(answer)
    assert any("trained again" in line for line in notes(plan(grid, "smoke", records=records), records))
    execute(plan(grid, "smoke", records=records), records, "inline")
    assert records.get(arm.id).metrics == measured
    assert (records.work_folder(trunk.id) / WEIGHTS).exists()


def test_a_clone_asks_a_kept_model_without_training_anything(clone, monkeypatch):
    _, records, trunk, _, _ = clone
    monkeypatch.setattr(tokenizer, "train", lambda *_: pytest.fail("the tokenizer is trained again"))
    answer = command("fill-mask", trunk.id, "the [MASK] sees a dog", "--format", "json", records)
    assert answer.exit_code == 0, answer.output
    assert '"probability"' in answer.output


def test_what_belongs_to_no_finished_run_is_named(clone):
    _, records, trunk, _, _ = clone
    (records.folder / "weights" / "ffffffffffffffff").mkdir()
    (records.folder / "weights" / trunk.id / "tokenizer.json").unlink()
    answer = said(command("verify", records))
    assert "weights/ffffffffffffffff: holds weights of no finished run" in answer
    assert f"weights/{trunk.id}/tokenizer.json: is missing" in answer


def test_what_cannot_be_kept_is_refused(clone, monkeypatch):
    _, records, trunk, arm, _ = clone
    assert "no runs start with" in said(command("keep", arm.id, records))
    execute(plan(clone[0], "smoke", records=records), records, "inline")
    monkeypatch.setenv("ABLATIONS_CACHE", str(records.folder.parent / "third"))
    assert "add --train" in said(command("keep", arm.id, records))
    monkeypatch.setattr(kept_weights, "LARGEST", 10)
    assert "weights are kept up to 0 MB" in said(command("keep", trunk.id, records))
    assert [path.name for path in (records.folder / "weights").iterdir()] == [trunk.id]
