"""The commands that ask a language model: what they print, and what they refuse before any weights are read."""

import json
import math

import pytest
import yaml
from typer.testing import CliRunner

from ablations.commands.ask import RENAMED
from ablations.commands.cli import app
from ablations.core.store import Records
from ablations.inspection import models, questions
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.generation.generate import Sampling, generate
from lightning_modules.generation.scoring import scored
from lightning_modules.training.weights import WEIGHTS
from tests import tiny
from tests.messages import names

GRID = {
    "question": "Does depth matter to a tiny language model?",
    "base": "bert_base",
    "set": {
        "objectives.mlm": None, "objectives.sentence": None, "objectives.lm.direction": "left_to_right",
        "model.direction": "left_to_right", "format.kind": "full_sentences", "data.tokenizer.vocab_size": 70,
        "model.hidden_size": 16, "model.num_heads": 2, "model.max_positions": 32, "format.sequence_length": 16,
        "training.batch_size": 4, "training.steps": 3, "training.precision": "fp32", "evaluation.sequences": 8,
        "evaluation.points": 2,
    },
    "axes": {"model.num_layers": [1, 2]},
    "baseline": {"model.num_layers": 1},
    "seeds": 1,
    "scales": {"smoke": {"description": "seconds"}},
    "metrics": [{"name": "heldout.next_loss", "label": "held-out loss (nats)"}],
}  # fmt: skip


def _set(**knobs):
    return [word for name, value in knobs.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A grid of language models, trained for three steps; shared, since nothing here changes it."""
    made = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABLATIONS_CACHE", str(made / "cache"))
        grid = GRID | {"set": GRID["set"] | {"data.corpora": [tiny.text(made / "text")]}}
        (made / "tongues.yaml").write_text(yaml.safe_dump(grid))
        records = Records(made / "results")
        execute(plan(grids.read(made / "tongues.yaml"), "smoke", records=records), records, "inline")
    return made


@pytest.fixture
def ask(folder, monkeypatch):
    """Runs a command: its exit code and output."""
    monkeypatch.setenv("ABLATIONS_CACHE", str(folder / "cache"))

    def asked(*words):
        options = [str(word) for word in words] + ["--results-dir", str(folder / "results")]
        ended = CliRunner().invoke(app, options)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended.exit_code, ended.output

    return asked


@pytest.fixture
def run(folder):
    """The id of the run with one layer."""
    found = plan(grids.read(folder / "tongues.yaml"), "smoke", records=Records(folder / "results"))
    return found.cells[0].runs[0].id


@pytest.fixture
def unread(monkeypatch):
    """Fails if weights are read."""
    monkeypatch.setattr("lightning_modules.analysis.probes.pretrained", lambda *_: pytest.fail("weights were read"))


@pytest.mark.slow
def test_text_goes_on_as_the_library_writes_it(ask, run, folder, tmp_path):
    lm = models.opened(run, Records(folder / "results"), scale="smoke").language_model()
    rows = [lm.prompt("the old cat"), lm.prompt("A bird")]
    (tmp_path / "prompts.txt").write_text("A bird\n\n")
    given = ("ask", run[:6], "the old cat", "--file", tmp_path / "prompts.txt", "--set", "new_tokens=5")
    for options, sampling in (
        ((), Sampling(temperature=0.0)),
        (("--set", "top_k=7"), Sampling(top_k=7)),
        (_set(top_p=0.5, temperature=0.7, top_k=9), Sampling(0.7, 9, 0.5)),
    ):
        code, said = ask(*given, *options, "--set", "seed=4", "--format", "json")
        assert code == 0
        wanted = generate(lm, rows, sampling, new_tokens=5, seed=4)
        texts = [lm.decode([*row[1:], *new.ids]) for row, new in zip(rows, wanted, strict=True)]
        assert [row["text"] for row in json.loads(said)] == texts
        assert all(row["bigrams, greedily"].startswith(row["prompt"].lower()) for row in json.loads(said))
        assert all(text.startswith(start) for text, start in zip(texts, ("the old cat", "a bird"), strict=True))
    assert ask(*given)[0] == 0
    code, said = ask("ask", run, "--format", "json")
    assert code == 0
    (row,) = json.loads(said)
    assert row["ended"] == "positions", "without a prompt it begins by itself"


@pytest.mark.slow
def test_prompts_are_lines_whatever_is_in_them(ask, run, tmp_path):
    """Lines were cut at other separators too, which made more texts (huggingface/datasets#3729)."""
    (tmp_path / "prompts.txt").write_text("\n".join(LINES), encoding="utf-8")
    code, said = ask("ask", run, "--file", tmp_path / "prompts.txt", "--set", "new_tokens=1", "--format", "json")
    assert code == 0
    assert [row["prompt"] for row in json.loads(said)] == LINES


LINES = ["the old cat", "a\u2028bird\x85 sees", "a dog\x0b\x1chears"]


def test_questions_are_lines_whatever_is_in_them(tmp_path):
    """JSON need not escape these separators."""
    asked = [{"prompt": line, "options": ["yes", line]} for line in LINES]
    lines = [json.dumps(question, ensure_ascii=False) for question in asked]
    (tmp_path / "asked.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = questions.read(tmp_path / "asked.jsonl")
    assert [(question.prompt, [*question.options]) for question in found] == [
        (question["prompt"], question["options"]) for question in asked
    ]


@pytest.mark.slow
def test_a_cell_of_a_grid_is_named_by_its_values(ask, run, folder):
    given = (folder / "tongues.yaml", "the cat", "--scale", "smoke", "--format", "names")
    assert ask("ask", *given, "--filter", "model.num_layers=1") == ask("ask", run, "the cat", "--format", "names")
    code, said = ask("ask", *given)
    assert (code, names(said, "2 cells", "--filter")) == (2, True)
    code, said = ask("ask", "directionality", "--scale", "smoke", "--filter", "reader=next tokens")
    assert (code, names(said, "no record", "ablations run directionality --scale smoke")) == (2, True), said


@pytest.mark.slow
def test_scores_are_those_of_the_library(ask, run, folder, tmp_path):
    asked = [
        {"prompt": "the old cat", "options": ["sees a bird", "sees"], "answer": "sees a bird"},
        {"prompt": "", "options": ["a dog", "dog a", "red"], "answer": "red"},
        {"prompt": "a", "options": ["cat", "dog"]},
    ]
    (tmp_path / "q.jsonl").write_text("\n\n".join(map(json.dumps, asked)))
    (tmp_path / "q.yaml").write_text(yaml.safe_dump(asked))
    lm = models.opened(run, Records(folder / "results"), scale="smoke").language_model()
    wanted = scored(lm, [q["prompt"] for q in asked], [q["options"] for q in asked], neutral="big")
    said = [
        ask("ask", run, "--score", "--file", tmp_path / name, *_set(neutral="big"), "--format", "json")
        for name in ("q.jsonl", "q.yaml")
    ]
    assert said[0] == said[1]
    assert said[0][0] == 0
    told = json.loads(said[0][1])
    flat = [option for own in wanted for option in own]
    assert [row["option"] for row in told["options"]] == [option.text for option in flat]
    for name, rule in (("sum", "total"), ("mean", "per_token"), ("per_byte", "per_byte"), ("gain", "gain")):
        assert [row[name] for row in told["options"]] == pytest.approx([getattr(option, rule) for option in flat])
        best = [max(own, key=lambda option: getattr(option, rule)).text for own in wanted[:2]]
        right = [best[0] == "sees a bird", best[1] == "red"]
        assert told["accuracy"][name] == sum(right) / 2
    assert all(row["5-grams"] < 0 for row in told["options"])
    alone = json.loads(ask("ask", run, "the old cat", "sees", "a", "--score", "--format", "json")[1])["options"]
    assert alone[0]["sum"] == pytest.approx(told["options"][1]["sum"])
    factors = [float(part) for part in alone[0]["each token's probability"].split()[1::2]]
    assert math.log(math.prod(factors)) == pytest.approx(alone[0]["sum"], rel=0.02)
    code, table = ask("ask", run, "--score", "--file", tmp_path / "q.yaml")
    assert code == 0
    assert "accuracy over 2 questions" in table
    assert ask("ask", run, "--score", "--file", "lecture", "--set", "stride=8")[0] == 0


@pytest.mark.slow
def test_equally_good_options_are_guessed_among(ask, run, tmp_path):
    """After the neutral prompt itself the gain of every option is 0, whichever order they are in."""
    for options in (["a dog", "dog a"], ["dog a", "a dog"]):
        file = tmp_path / "q.yaml"
        file.write_text(yaml.safe_dump([{"prompt": "", "options": options, "answer": "a dog"}]))
        told = json.loads(ask("ask", run, "--score", "--file", file, "--format", "json")[1])
        assert told["accuracy"]["gain"] == 0.5
        assert {row["gain"] for row in told["options"]} == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["the cat " * 20], ["prompt 1", "16 positions"]),
        ([*_set(temperature=0, top_k=4)], ["temperature", "top_k"]),
        (["--file", "nowhere.txt"], ["--file", "nowhere.txt"]),
        (["--set", "new_token=3"], ["new_token", "'new_tokens'?"]),
        (["the cat", "--passage", "the dog"], ["--passage", "fine-tuned"]),
        (["the cat", "sees", "--score"], ["options", "two"]),
    ],
)
def test_text_that_cannot_be_written_is_refused_before_weights_are_read(ask, run, unread, words, said):
    code, output = ask("ask", run, *words)
    assert (code, names(output, *said)) == (2, True), output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"prompt": "a"}\n{"prompt": "b", "options": ["c", "d"]}', ["q.jsonl:1", "options", "missing"]),
        ('{"prompt": "b", "options": ["c", "d"]}\n\n{"options": ["c", "d"]}', ["q.jsonl:3", "prompt", "missing"]),
        ('{"prompt": "b", "options": ["c", " "]}', ["q.jsonl:1", "options.1", "empty"]),
        ('{"prompt": "b", "options": ["c", "c"]}', ["q.jsonl:1", "'c'", "twice"]),
        ('{"prompt": "b", "options": ["c", 4]}', ["q.jsonl:1", "4", "quotes"]),
        ('{"prompt": "b", "options": ["cat", "dog"], "answer": "cta"}', ["q.jsonl:1", "answer", "'cta'", "'cat'?"]),
        ('{"prompt": "b", "options": ["c", "d"], "anwser": "c"}', ["q.jsonl:1", "anwser", "'answer'?"]),
        ('{"prompt": "b",', ["q.jsonl:1", "JSON"]),
        ("", ["q.jsonl:1", "list of questions"]),
        (
            '{"prompt": "' + "the cat " * 9 + '", "options": ["c", "d"]}',
            ["q.jsonl:1", "'c'", "16 positions", "stride=8"],
        ),
    ],
)
def test_questions_that_cannot_be_asked_are_refused_by_line(ask, run, unread, tmp_path, text, said):
    (tmp_path / "q.jsonl").write_text(text)
    code, output = ask("ask", run, "--score", "--file", tmp_path / "q.jsonl")
    assert (code, names(output, *said)) == (2, True), output


def test_questions_in_yaml_are_refused_by_line(tmp_path):
    file = tmp_path / "q.yaml"
    file.write_text("- prompt: a\n  options: [b, c]\n- prompt: d\n  options:\n    - e\n    - ''\n- options: [f, g]\n")
    with pytest.raises(Exception) as refused:
        questions.read(file)
    assert [str(problem).split(": ")[0] for problem in refused.value.problems] == ["q.yaml:6", "q.yaml:7"]


@pytest.mark.slow
def test_what_is_no_language_model_is_refused_by_name(ask, run, unread, folder, tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text(
        json.dumps({"model_type": "bert", "vocab_size": 99, "hidden_size": 64, "num_attention_heads": 4})
    )
    (tmp_path / "bert" / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(94))])
    )
    for more in ([], ["--score", "--file", "lecture"]):
        code, said = ask("ask", tmp_path / "bert", *more)
        assert (code, names(said, str(tmp_path / "bert"), "[MASK]")) == (2, True), said
        code, said = ask("ask", "tonges", *more)
        assert (code, names(said, "'tonges'", "folder", "grid", "run")) == (2, True), said
        code, said = ask("ask", "0" * 16, *more)
        assert (code, names(said, "0" * 16)) == (2, True), said
    assert names(ask("ask", run, "--score", "--file", "lectur")[1], "'lectur'", "'lecture'?")
    stride = ("--score", "--file", "lecture", "--set", "stride=15")
    assert names(ask("ask", run, *stride)[1], "stride", "16 positions")
    for old in RENAMED:
        assert ask(old, run, "the cat") == (2, f"`{old}` is now `ablations {RENAMED[old]}`\n")
    assert not (tmp_path / "bert" / WEIGHTS).exists()
