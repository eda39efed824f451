"""A grid that leaves in a pack, is run where it was unpacked, and comes home: the records are those of a run here."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core import provenance
from ablations.core.disk import kept_weights
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from ablations.schema.run import Run
from lightning_modules.pretraining import fit
from lightning_modules.training.recorder import CHECKPOINT, Interrupted
from tests import tiny
from tests.faults.support import contents
from tests.translations import parallel_text, tiny_system

KEPT = {"training.kept_as": "bf16"}


def test_a_grid_is_run_where_its_pack_was_unpacked(tmp_path, monkeypatch):
    """One of its runs has begun here, and is resumed there. All are of those whose weights are to be kept."""
    file, here, away = tiny.grid(tmp_path / "grid", seeds=1), Records(tmp_path / "here"), Records(tmp_path / "away")
    planned = plan(grids.read(file), "smoke", records=here, set=KEPT)
    execute(planned, here, "inline")
    first, weights = planned.runs[0], {run.id: here.weights(run.id).read_bytes() for run in planned.runs}
    _begin(first, away)
    monkeypatch.setattr(provenance, "git", lambda *words: None)  # the code as it is, whether or not it is committed

    monkeypatch.chdir(tmp_path)
    asked = "--scale", "smoke", "--set", "training.kept_as=bf16"
    _call("pack", file, *asked, "--output", "pack.tar.xz", "--split", "500kB", "--results-dir", away.folder)
    said = _python("unpack.py", "pack.tar.xz", "--into", "there")
    there = tmp_path / "there" / "source"
    assert [line.split()[0] for line in said.splitlines()] == ["export", "cd", "python"]
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "there" / "cache"))
    assert (Records(there / "results").work_folder(first.id) / CHECKPOINT).exists()
    monkeypatch.chdir(there)
    _python(*shlex.split(said.splitlines()[-1])[1:], "--executor", "inline")
    _python("-m", "ablations", "pack", "tiny.yaml", *asked, "--results", "--output", str(tmp_path / "home.tar.xz"))

    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "home cache"))
    home = Records(tmp_path / "home")
    _call("unpack", tmp_path / "home.tar.xz", "--results-dir", home.folder)
    assert contents(home) == contents(here)
    assert home.verify() == []
    kept = {run_id: kept_weights.kept(home.folder, run_id, kept_weights.WEIGHTS) for run_id in weights}
    assert {run_id: path.read_bytes() for run_id, path in kept.items()} == weights
    attempts = {record.id: record.provenance["attempts"] for record in home.all()}
    assert attempts[first.id] == 1  # an interruption is no attempt


def test_translators_leave_in_a_pack_with_what_their_scores_are_compared_with(tmp_path, monkeypatch):
    """The held-out text and the simple methods come from the pack: where it is unpacked there is no parallel text."""
    own = tiny_system(
        parallel_text(tmp_path / "text"), **{"evaluation.translations": 4, "evaluation.beam": 2}
    ).to_dict()
    shown = {
        f"{part}.{name}": value for part in ("format", "training", "evaluation") for name, value in own[part].items()
    }
    shown |= {
        "data.corpora": own["data"]["corpora"],
        "data.tokenizer.vocab_size": own["data"]["tokenizer"]["vocab_size"],
    }
    grid = {
        "question": "Does attention help a tiny translator?",
        "base": "transformer_base",
        "set": shown | {"model.num_layers": 1, "model.hidden_size": 16},
        "axes": {"model": ["transformer", "LSTM"]},
        "variants": {
            "model": {
                "transformer": {"model.num_heads": 2, "model.ffn_size": 32, "model.max_positions": 32},
                "LSTM": {"model.kind": "lstm_encoder_decoder"},
            }
        },
        "baseline": {"model": "transformer"},
        "seeds": 1,
        "scales": {"smoke": {"description": "seconds"}},
        "metrics": [{"name": "heldout.bleu", "better": "higher", "label": "BLEU"}],
    }
    file, here, away = tmp_path / "tongues.yaml", Records(tmp_path / "here"), Records(tmp_path / "away")
    file.write_text(yaml.safe_dump(grid))
    execute(plan(grids.read(file), "smoke", records=here), here, "inline")
    monkeypatch.setattr(provenance, "git", lambda *words: None)
    monkeypatch.chdir(tmp_path)
    _call("pack", file, "--scale", "smoke", "--output", "pack.tar.xz", "--results-dir", away.folder)
    shutil.rmtree(tmp_path / "text")
    said = _python("unpack.py", "pack.tar.xz", "--into", "there")
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "there" / "cache"))
    monkeypatch.chdir(tmp_path / "there" / "source")
    _python(*shlex.split(said.splitlines()[-1])[1:], "--executor", "inline")
    there = Records(tmp_path / "there" / "source" / "results")
    wanted = {record.id: record.metrics for record in here.all()}
    assert {record.id: record.metrics for record in there.all()} == wanted
    assert all("heldout.bleu_word_by_word" in metrics for metrics in wanted.values())


def _begin(run: Run, records: Records) -> None:
    steps = iter([False] * 5 + [True] * 100)
    with pytest.raises(Interrupted):
        fit(run.system, run.seed, records.make_work_folder(run.id), stop=lambda: next(steps), run_id=run.id)


def _call(*words: object) -> None:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def _python(*words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"  # as here: sums of several threads have another order
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
