"""``ablations tokenizer stats``: which tokenizers are asked for, what people and programs get, and bad options."""

import json

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from tests.every import every

COLUMNS = {"pieces a word", "words of one piece", "unknown", "bytes a piece", "letters", "longest pieces"}


def call(*words):
    ended = CliRunner().invoke(app, ["tokenizer", "stats", *words], env={"COLUMNS": "300"})
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A corpus of forty documents."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(tmp_path / "cache"))
    words = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in ("", "s", "ing", "ed")]
    sentences = [" ".join(words[(7 * n + 3 * k) % len(words)] for k in range(9)) + "." for n in range(400)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(" ".join(sentences[n : n + 10]) for n in range(0, 400, 10)))
    return f"text:{path}"


def test_every_combination_is_a_row(text):
    options = ["--kind", "wordpiece", "--kind", "byte_bpe", "--vocab-size", "70", "--vocab-size", "80"]
    code, output = call("--scale", "smoke", "--corpora", text, *options[:2], *options[4:], "--format", "json")
    assert code == 0
    rows = json.loads(output)
    assert [(row["kind"], row["vocab_size"]) for row in rows] == [("wordpiece", 70), ("wordpiece", 80)]
    assert rows[0]["pieces_per_word"] > rows[1]["pieces_per_word"] > 1
    assert rows[0]["unknown"] == 0
    code, output = call("--scale", "smoke", "--corpora", text, *options, "--format", "names")
    assert code == 2
    assert "too small for the bytes. It needs at least 261" in output


def test_a_grid_shows_the_tokenizers_of_its_cells_once(monkeypatch):
    asked = []
    monkeypatch.setattr("ablations.commands.tokenizer.rows", lambda texts: asked.extend(texts) or [])
    assert call("systems_compared", "--scale", "smoke")[0] == 0
    assert [data.tokenizer.kind for data in asked] == ["wordpiece", "byte_bpe", "unigram", "letter_bpe"]


@every(
    "words, message",
    [
        (["--kind", "wordpeice"], "Did you mean 'wordpiece'?"),
        (["--vocab-size", "3"], "greater than or equal to 64"),
        (["--scale", "smoek"], "there is no scale 'smoek'. Did you mean 'smoke'?"),
        (["--corpora", "novel"], "Did you mean 'novels'?"),
        (["masking_ration"], "Did you mean 'masking_ratio'?"),
        (["masking_ratio", "--kind", "unigram"], "Leave out GRID or --kind"),
    ],
)
def test_bad_options_get_the_nearest_name(words, message):
    code, output = call(*words)
    assert code == 2
    assert message in output
