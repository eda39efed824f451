"""``ablations ask`` of a translator: what a trained run answers, and what is refused before weights are read."""

import json
import shutil

import pytest
import yaml
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from tests.translations import parallel_text, tiny_system


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A translator, trained for a few steps: its id."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    corpus = parallel_text(tmp_path / "text")
    own = tiny_system(corpus).to_dict()
    shown = {
        "data.corpora": [corpus],
        "data.tokenizer.vocab_size": 340,
        "evaluation.sequences": 8,
        "evaluation.points": 2,
    }
    for part, names in {
        "model": ("hidden_size", "num_heads", "ffn_size", "max_positions"),
        "format": ("sequence_length",),
        "training": ("batch_size", "steps"),
    }.items():
        shown |= {f"{part}.{name}": own[part][name] for name in names}
    grid = {
        "question": "Does depth matter to a tiny translator?",
        "base": "transformer_base",
        "set": shown,
        "axes": {"model.num_layers": [1, 2]},
        "baseline": {"model.num_layers": 1},
        "seeds": 1,
        "scales": {"smoke": {"description": "seconds"}},
        "metrics": [{"name": "heldout.next_loss", "label": "held-out loss (nats)"}],
    }
    (tmp_path / "tongues.yaml").write_text(yaml.safe_dump(grid))
    records = Records(tmp_path / "results")
    made = plan(grids.read(tmp_path / "tongues.yaml"), "smoke", records=records)
    execute(made, records, "inline")
    return made.cells[0].runs[0].id


def ask(folder, *words):
    ended = CliRunner().invoke(app, ["ask", *words, "--results-dir", str(folder / "results")])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


@pytest.mark.slow
def test_a_run_translates_each_sentence_and_refuses_what_it_cannot_read(run, tmp_path):
    code, said = ask(tmp_path, run[:8], "the  old cat.", "a dog.", "--format", "json", "--set", "beam=2")
    assert code == 0
    rows = json.loads(said)
    assert [row["sentence"] for row in rows] == ["the old cat.", "a dog."]
    assert all(row["score"] < 0 and row["word by word"] for row in rows)
    drawn = tmp_path / "attention.svg"
    assert ask(tmp_path, run[:8], "the old cat.", "--set", f"attention={drawn}")[0] == 0
    assert "head 2" in drawn.read_text()
    alone = json.loads(ask(tmp_path, run[:8], "a dog.", "--format", "json", "--set", "beam=2")[1])
    assert alone[0]["translation"] == rows[1]["translation"]
    for words, wanted in (
        ([run[:8], " "], "source 1 is empty"),
        ([run[:8]], "give it a sentence"),
        ([run[:8], "the cat. " * 40], "and the model reads 31"),
        ([run[:8], "a dog.", "--set", "attention=picture.doc"], "Let its name end in .svg or .png"),
        ([run[:8], "a dog.", "--set", "beam=0"], "0 keeps no prefix"),
        ([run[:8], "a dog.", "--set", "length_penalty=-1"], "must be 0"),
        (["0123456789", "a dog."], "0123456789"),
    ):
        code, said = ask(tmp_path, *words)
        assert code == 2
        assert wanted in " ".join(said.split())
    shutil.rmtree(tmp_path / "text")
    for file in (tmp_path / "cache").rglob("tokenizer.json"):
        file.unlink()
    code, said = ask(tmp_path, run[:8], "a dog.")  # the vocabulary is gone, and the text that it was made from
    assert code == 2
    assert said.startswith("No file matches")
    assert said.count("\n") == 1
