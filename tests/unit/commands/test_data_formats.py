"""``ablations data formats``: a row for each input format of RoBERTa's Table 2, and for blocks."""

import json

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app


def call(*words):
    ended = CliRunner().invoke(app, ["data", "formats", *words], env={"COLUMNS": "200"})
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output if ended.exit_code else ended.stdout  # a slow machine tells of its work apart


@pytest.mark.slow
@pytest.mark.usefixtures("embedded")
def test_formats_are_shown_by_the_papers_names():
    code, text = call("--scale", "smoke", "--length", "64", "--format", "json")
    assert code == 0, text
    found = {row["format"]: row for row in json.loads(text)}
    assert set(found) == {"SEGMENT-PAIR", "SENTENCE-PAIR", "FULL-SENTENCES", "DOC-SENTENCES", "fixed blocks"}
    assert found["fixed blocks"]["padding"] < 0.01 < found["FULL-SENTENCES"]["padding"]
    assert found["SENTENCE-PAIR"]["mean length"] < found["SEGMENT-PAIR"]["mean length"]
    assert found["DOC-SENTENCES"]["documents a row"] == 1 < found["FULL-SENTENCES"]["documents a row"]
    for row in found.values():
        assert row["rows a step"] * row["mean length"] == pytest.approx(8 * 64)
    shown = call("--scale", "smoke", "--length", "64")[1]
    assert "tokens of 8 full rows" in shown
    assert "%" in shown
