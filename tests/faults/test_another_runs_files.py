"""Files of another run in a run's place, their digests with them: found, made again, and no number moves."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.schema.kinds import KINDS, Watch
from lightning_modules.tasks import TASKS, pins
from lightning_modules.training.callbacks import CHECKPOINT, Interrupted
from lightning_modules.training.weights import WEIGHTS
from tests import tiny
from tests.faults.support import contents
from tests.toy import toy_task

TUNED = """\
tasks: [toy]
claims: []
"""


@pytest.fixture
def made(cached, monkeypatch):
    """A grid of two pretrainings of the same shapes, each with a fine-tuning: its file, its records, what they say."""
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    file = tiny.grid(cached, steps=4, seeds=1, extra=TUNED)
    file.write_text(file.read_text().replace("set:\n", "set:\n  finetuning.steps: 2\n  finetuning.max_length: 16\n", 1))
    records = Records(cached / "results")
    assert executed(file, records).outcomes == {"done": 4}
    return file, records, contents(records)


def executed(file, records):
    return execute(plan(grids.read(file), "smoke", records=records), records, "inline", retries=0)


def pretrainings(records):
    return [record.run() for record in records.all() if record.kind == "pretrain"]


def verified(records):
    answer = CliRunner().invoke(app, ["verify", "--results-dir", str(records.folder)])
    return answer.exit_code, " ".join((answer.output + answer.stderr).split())


def exchange(one: Path, other: Path):
    aside = one.with_name("aside")
    shutil.move(one, aside)
    shutil.move(other, one)
    shutil.move(aside, other)


def exchange_with_digests(one: Path, other: Path):
    exchange(one, other)
    exchange(one.with_name(f"{one.name}.sha256"), other.with_name(f"{other.name}.sha256"))


def checkpoint(run, folder, step=2):
    """What an interrupted training of a run leaves in its folder."""
    asked = iter(range(1, 100))
    with pytest.raises(Interrupted):
        KINDS[run.kind].make(run, Watch(folder, {}, lambda progress: None, lambda: next(asked) == step))
    return folder / CHECKPOINT


def test_the_checkpoint_of_another_run_is_set_aside(made, tmp_path, capfd):
    file, records, expected = made
    one, other = pretrainings(records)
    for run in [record.run() for record in records.all()]:
        records.path(run.id).unlink()
    shutil.copy(checkpoint(one, tmp_path / one.id), records.work_folder(other.id) / CHECKPOINT)
    executed(file, records)
    assert contents(records) == expected
    assert f"it is of run {one.id}" in capfd.readouterr().err
    assert (records.work_folder(other.id) / "unusable.ckpt").exists()


def test_a_checkpoint_that_names_no_run_is_resumed(made, tmp_path):
    """As a version that did not write the run left it."""
    _, records, _ = made
    run, steps = pretrainings(records)[0], []
    path = checkpoint(run, tmp_path / run.id)
    held = torch.load(path, weights_only=True)
    torch.save({name: value for name, value in held.items() if value != run.id}, path)
    KINDS[run.kind].make(run, Watch(path.parent, {}, lambda progress: steps.append(progress.step), lambda: False))
    assert min(steps) > 2


def test_weights_of_another_run_in_the_cache_are_trained_again(made):
    file, records, expected = made
    one, other = (records.work_folder(run.id) / WEIGHTS for run in pretrainings(records))
    exchange_with_digests(one, other)
    for record in list(records.all()):
        if record.kind == "finetune":
            records.path(record.id).unlink()
    executed(file, records)
    assert contents(records) == expected


def test_weights_follow_a_results_folder_that_moves(made, cached):
    _, records, _ = made
    moved = Records(records.folder.rename(cached / "moved"))
    ids = [run.id for run in pretrainings(moved)]
    home = records.work_folder(ids[0]).parent.rename(moved.work_folder(ids[0]).parent)
    assert [moved.weights(run) for run in ids] == [home / run / WEIGHTS for run in ids]


def test_weights_hold_where_they_are_copied_with_their_digest(made):
    """From the cache to those kept with the records."""
    _, records, _ = made
    run = pretrainings(records)[0].id
    shutil.copytree(records.work_folder(run), kept := records.folder / "weights" / run)
    shutil.rmtree(records.work_folder(run))
    assert records.weights(run) == kept / WEIGHTS


def test_kept_weights_of_another_run_are_named_and_not_read(made):
    _, records, _ = made
    one, other = (run.id for run in pretrainings(records))
    for run in (one, other):
        assert CliRunner().invoke(app, ["keep", run, "--results-dir", str(records.folder)]).exit_code == 0
        shutil.rmtree(records.work_folder(run))
    assert verified(records)[0] == 0
    exchange(records.folder / "weights" / one, records.folder / "weights" / other)
    code, said = verified(records)
    assert code == 1
    assert {run for run in (one, other) if f"weights/{run}/{WEIGHTS}" in said} == {one, other}
    assert records.weights(one) is None


def test_digests_that_name_no_place_hold(made):
    """As a version that did not write the place left them."""
    _, records, _ = made
    path = records.work_folder(pretrainings(records)[0].id) / WEIGHTS
    digest = path.with_name(f"{path.name}.sha256")
    digest.write_text(digest.read_text().splitlines()[0] + "\n")
    assert records.weights(path.parent.name) == path


def test_sha256sum_reads_the_digests(made):
    _, records, _ = made
    path = records.work_folder(pretrainings(records)[0].id) / WEIGHTS
    check = ["sha256sum", "--check", "--strict", f"{path.name}.sha256"]
    done = subprocess.run(check, cwd=path.parent, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{path.name}: OK\n", "")
