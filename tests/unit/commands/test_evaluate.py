"""``ablations evaluate``: what it cannot ask is refused before a model is opened."""

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from tests.messages import names


def said(*words):
    done = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    assert done.exit_code != 0
    return done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--task", "lambda"], ["lambda", "lambada"]),
        (["--task", "cloze"], ["cloze", "made from the text"]),
        (["--task", "lambada"], ["lambada_test.jsonl", "ABLATIONS_DATA"]),
        ([], ["no task", "--task", "wikitext2"]),
        (["--task", "lambada", "--set", "model.dropout=0"], ["model.dropout", "measuring"]),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(tmp_path, words, told):
    assert names(said(tmp_path, *words, "--results-dir", tmp_path / "results"), *told)
