"""Mistakes that people make first, in a study of their own: each is refused in three lines that say what helps."""

import json

from typer.testing import CliRunner

from ablations.commands.cli import app
from tests.messages import names

REVIEWS = "n,review,stars\n" + "".join(f"{n},Film {n}.,{n % 2}\n" for n in range(200))
FILES = {
    "reviews.csv": REVIEWS,
    "lines.csv": "".join(json.dumps({"review": f"Film {n}.", "stars": n % 2}) + "\n" for n in range(40)),
    "own.txt": "One text without a blank line.",
    "grids/tabs.yaml": "question: Why?\nbase: bert_base\naxes:\n\tmodel.num_layers: [1, 2]\n",
    "grids/words.yaml": "question: Why?\nbase: bert_bse\nscales: {smoke: {}}\nmetrics: [heldout.loss]\n"
    "axes: {model.positions: [rotry, none]}\n",
}
ADD = ("data", "add")
MISTAKES = {
    (*ADD, "review.csv", "--text", "review", "--label", "stars"): ["review.csv", "no such file", "'reviews.csv'?"],
    (*ADD, "reviews.csv", "--text", "reviw", "--label", "stars"): ["reviews.csv", "reviw", "review, stars"],
    (*ADD, "lines.csv", "--text", "review", "--label", "stars"): ["lines.csv", "JSON", ".jsonl"],
    (*ADD, "own.txt", "--text", "review", "--label", "stars"): ["own.txt", ".csv"],
    ("new", "depth", "--axis", "model.num_layer=1,2"): ["model.num_layer", "'model.num_layers'?"],
    ("new", "depth", "--axis", "model.num_layers=2"): ["compares nothing", "--set"],
    ("new", "depth", "--axis", "model.num_layers"): ["PATH=V1,V2"],
    ("new", "Depth", "--axis", "model.num_layers=1,2"): ["Depth", "lower-case"],
    ("new", "depth", "--axis", "model.num_layers=1,2", "--base", "bert"): ["bert", "there is no system"],
    ("run", "masking_ration", "--scale", "smoke"): ["masking_ration", "'masking_ratio'?"],
    ("run", "masking_ratio", "--scale", "smok"): ["smok", "'smoke'?"],
    ("check", "tabs"): ["tabs.yaml:4", "tab"],
    ("check", "words"): ["words.yaml", "bert_bse", "'bert_base'?"],
    ("ask", "masking_ratio", "A [MASK].", "--scale", "smoke"): ["cells match", "--filter"],
    ("ask", "folder", "A [MASK]."): ["'folder'", "nor a grid"],
    ("finetune", "--from", "folder", "--task", "rte"): ["folder", "config.json"],
    ("finetune", "--from", ".", "--task", "ret"): ["ret", "'rte'?"],
    ("export", "0123456", "out"): ["no runs start with '0123456'"],
    ("show", "masking_ratio", "rate 15", "--scale", "smoke"): ["there is no cell 'rate 15'"],
    ("data", "verify", "reveiws"): ["reveiws", "there is no"],
}


def test_a_mistake_is_refused_in_three_lines_that_say_what_helps(tmp_path, monkeypatch):
    assert CliRunner().invoke(app, ["init", str(tmp_path / "mine")]).exit_code == 0
    monkeypatch.chdir(tmp_path / "mine")
    for name, text in FILES.items():
        (tmp_path / "mine" / name).write_text(text)
    wrong = {}
    for words, wanted in MISTAKES.items():
        ended = CliRunner().invoke(app, [*words])
        said = [line for line in ended.stderr.splitlines() if line and not line.startswith("study ")]
        if ended.exit_code != 2 or len(said) > 3 or not names(" ".join(said), *wanted):
            wrong[" ".join(words)] = ended.exit_code, said, repr(ended.exception)
    assert not wrong, "\n".join(f"{words}: {what}" for words, what in wrong.items())
    assert {path.name for path in (tmp_path / "mine" / "grids").iterdir()} == {"tabs.yaml", "words.yaml"}
    assert not list((tmp_path / "mine" / "data").iterdir())
