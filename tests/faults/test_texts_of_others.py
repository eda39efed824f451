"""Texts of records, grids and cards that somebody else wrote: no page, table or terminal takes them for a command."""

import itertools
import json
import xml.etree.ElementTree as ET

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.core.disk.reading import to_json
from ablations.core.store import Records
from ablations.pages import cards
from ablations.pages.publishing import republish
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.launch import Event
from ablations.running.progress import LogDisplay
from ablations.running.summary import Failure, Summary
from ablations.schema.record import Record, checksum
from lightning_modules import interop
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from tests.faults.test_hostile_checkpoints import SHAPE
from tests.foreign import TEXTS, assert_no_formula, assert_plain, rendered, shown
from tests.unit.core.test_formatting import check_latex
from tests.unit.synthetic import RATE, make_record

ANY = "".join(TEXTS.values()).translate({ord("{"): "(", ord("}"): ")"})  # braces are places in the sentences of grids
NAMES = [ANY, *(f"{ANY} {number}" for number in (2, 3, 4))]
GRID = {
    "question": ANY,
    "paper": ANY,
    "base": "mask15_large",
    "variants": {ANY: {name: {RATE: rate} for name, rate in zip(NAMES, (0.15, 0.4, 0.5, 0.6), strict=True)}},
    "axes": {ANY: NAMES},
    "exclude": [{"when": {ANY: NAMES[3]}, "reason": ANY}],
    "variance_groups": [{ANY: NAMES[:3]}],
    "baseline": {ANY: ANY},
    "seeds": 2,
    "scales": {
        "laptop": {"description": ANY, "caveat": ANY, "conclusion": [{"say": ANY, "given": {"own": "as claimed"}}]}
    },
    "metrics": [{"name": "heldout.loss", "label": ANY}],
    "claims": [
        {"id": id, "statement": ANY, "source": ANY, "published_metric": ANY, "metric": "heldout.loss",
         "a": {ANY: NAMES[1]}, "b": {ANY: ANY}, "proxy": ANY, "alternative": ANY, **more}
        for id, more in (
            ("own", {}), ("open", {"threat": {"kind": "confounded", "because": ANY}}),
            ("controlled", {"positive_control": {"at": {ANY: ANY}}}), 
            ("sides", {"a": {}, "b": {}, "sides": [{ANY: name} for name in NAMES[:3]], "relation": "ordering"}),
        )
    ],
    "figure": {"x": ANY, "y": "heldout.loss"},
}  # fmt: skip
PROVENANCE = ("commit", "code", "device", "torch", "lightning", "python", "started", "finished", "threads", "dirty",
              "attempts")  # fmt: skip

CLAIM_TEXTS = ("claim", "asked", "statement", "sentence", "metric", "direction", "size", "reason", "unit",
               "quantity", "kind", "because")  # fmt: skip


def foreign(record, text):
    """A record with a text wherever it may have one."""
    said = dict.fromkeys(PROVENANCE, text) | {text: text}
    changes = {"detail": text, "metrics": {**record.metrics, text: 1.0}, "curve": {**record.curve, text: [1.0]}}
    changes |= {"layers": {text: [1.0]}, "examples": {text: text}, "cost": {**record.cost, text: 1.0}}
    return record.model_copy(update={**changes, "provenance": said})


def card(text):
    """A card of a page with a text wherever it may have one."""
    claim = dict.fromkeys(CLAIM_TEXTS, text)
    claim |= {"outcome": "as claimed", "regime": "quality", "n": 1, "effect": 1.0, "runs": [text]}
    claim["basis"] = {text: text, "test": text}
    names = dict.fromkeys(("question", "verdicts", "overridden", "answer", "headline"), text)
    return {**names, "finished": 1, "planned": 1, "claims": [claim]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results with a page of a grid, records and cards of others; beside it their store, with other numbers."""
    made = tmp_path_factory.mktemp("foreign")
    file = made / "foreign.yaml"
    file.write_text(yaml.safe_dump(GRID))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grids, "available", lambda *_: {"foreign": file})
        stores = Records(made / "results"), Records(made / "theirs")
        runs = [run for cell in plan(grids.read("foreign"), "laptop").cells for run in cell.work]
        for run, text in zip(runs, itertools.cycle(TEXTS.values()), strict=False):
            for store, loss in zip(stores, (4.5, 4.6), strict=True):
                store.put(foreign(make_record(run, loss + run.seed / 100, config=run.to_dict()), text))
        for number, text in enumerate(TEXTS.values()):
            counted = card(text)
            counted["claims"][0] |= {"claim": "mask15.r.40_gt_15_mnli", "runs": [run.id for run in runs]}
            for place, content in ((f"other{number}/laptop", card(text)), (f"foreign/scale{number}", counted)):
                path = made / "results" / place / cards.NAME
                path.parent.mkdir(parents=True)
                path.write_text(json.dumps(content))
        republish(made / "results")
        yield made


@pytest.mark.parametrize(
    "about",
    [
        "a <b>bold</b> word",
        "<div>\n\nx",
        "<!-- x -->",
        "see [x](javascript:run())",
        "see ![x](data:image/svg+xml,x)",
        "see [x]\n\n[x]: javascript:run()",
        "```{raw} html\nx\n```",
        "~~~{include} /x\n~~~",
        ":::{raw} html\nx\n:::",
        "a {raw}`x` role",
        "(x)=\n\nx",
        " (x)(y)= \n\nx",
        "see [x](../../../../secret.txt)",
        "see ![x](a/../../secret.png)",
        "see [x][c]\n\n> [c]: path:secret.txt",
        "* [b\n  c]: path:secret.txt",
        ":::\nx",
        " % x",
        "  +++ a",
        "```python\nx",
        "x \x1b]0;pwned\x07",
        "x \u202e turned",
    ],
)
def test_what_a_grid_says_about_itself_is_plain_markdown(tmp_path, about):
    file = tmp_path / "about.yaml"
    file.write_text(yaml.safe_dump({**GRID, "about": about}))
    with pytest.raises(ConfigError, match=r"^about\.yaml:1: about: "):
        grids.read(file)


def test_plain_markdown_may_say_what_it_likes(tmp_path):
    about = (
        "A [paper](https://arxiv.org/abs/1), *more*, `a < b`, [a file](table.csv).\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    about += "\n\nSet `{mask}` and `x[1]` here: a < b.\n\n```python\nx < y  # {raw}\n```"
    (tmp_path / "about.yaml").write_text(yaml.safe_dump({**GRID, "about": about}))
    assert grids.read(tmp_path / "about.yaml").about == about


def test_pages_have_no_markup_but_their_own(folder):
    for path in (folder / "results").rglob("*.md"):
        text = rendered(path.read_text())
        assert text.strip(), path
    said = rendered((folder / "results" / "README.md").read_text())
    assert "<script>run()</script>" in said, "shown as text"
    assert "<svg" in rendered((folder / "results" / "foreign" / "laptop" / "README.md").read_text())


def test_tables_run_no_formula(folder):
    for path in (folder / "results").rglob("*.csv"):
        assert_no_formula(path.read_text())
    assert "HYPERLINK" in (folder / "results" / "claims.csv").read_text()


TABLES = [["show", "foreign"], ["claims"]]
WITHOUT = [(["claims"], "tex"), (["claims"], "md")]  # of texts of others they have names of scales


@pytest.fixture(params=TABLES, ids=" ".join)
def written(folder, monkeypatch, request):
    """What a command prints of the tables of others in a notation of documents."""

    def asked(notation):
        monkeypatch.setattr(grids, "available", lambda *_: {"foreign": folder / "foreign.yaml"})
        options = ["--results-dir", str(folder / "results"), "--format", notation]
        ended = CliRunner().invoke(app, [*request.param, *options])
        assert ended.exit_code == 0, ended.output
        assert "HYPERLINK" in ended.stdout or (request.param, notation) in WITHOUT
        return ended.stdout

    return asked


def test_long_tables_run_no_formula(written):
    assert_no_formula(written("csv"))


def test_documents_run_no_command(written):
    printed = written("tex")
    assert printed.count("\\begin{tabular}") == printed.count("\\end{tabular}") > 0
    for line in printed.split("\n"):
        assert_plain(line)
        check_latex_table(line)


def test_printed_markdown_has_no_markup_but_its_own(written):
    rendered(written("md"))


def check_latex_table(line):
    if not line.startswith(("\\begin", "\\end", "\\hline", "% ")):
        line = line.removeprefix("\\par\\smallskip\\noindent ").removesuffix(" \\\\")
        for cell in line.split(" & "):
            check_latex(cell)


def test_figures_are_pictures_alone(folder):
    for path in (folder / "results").rglob("*.svg"):
        elements = [element.tag.rpartition("}")[2] for element in ET.parse(path).iter()]
        assert not {"script", "foreignObject", "a", "image"} & {*elements}


@pytest.mark.parametrize(("form", "colour"), [("table", False), ("table", True), ("json", False), ("names", False)])
def test_terminals_get_text(folder, monkeypatch, form, colour):
    monkeypatch.setattr(grids, "available", lambda *_: {"foreign": folder / "foreign.yaml"})
    monkeypatch.setenv("COLUMNS", "100")
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
    results = ["--results-dir", str(folder / "results")]
    (run, *_) = Records(folder / "results").files()
    commands = [["plan", "foreign"], ["show", "foreign"], ["show", run.stem], ["sync", str(folder / "theirs")]]
    commands += [["verify"], ["claims"]]
    for words in (["list"], ["check"], *([*command, *results] for command in commands)):
        ended = CliRunner().invoke(app, [*words, "--format", form], color=colour)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), words
        assert shown(ended.output) or form == "names", words  # of no damaged file
        if form == "json":
            assert json.loads(ended.stdout), words


@pytest.fixture
def said(tmp_path):
    """What a command says."""

    def asked(*words):
        ended = CliRunner().invoke(app, [str(word) for word in words])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), words
        return shown(ended.output)

    return asked


def test_about_a_checkpoint(said, tmp_path):
    system = SYSTEMS["bert_base"].but(**SHAPE)
    interop.write(interop.of_run(system, system.build(0).state_dict()), tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / "model.safetensors"
    save_file(load_file(file) | {text: torch.zeros(1) for text in TEXTS.values()}, file)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(59))]
    (tmp_path / "checkpoint" / "vocab.txt").write_text("\n".join(words))
    options = ["--task", "rte", "--set", "finetuning.max_length=16", "--output", tmp_path]
    assert "checkpoint: left out: " in said("finetune", "--from", tmp_path / "checkpoint", *options)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
class TestMessages:
    def test_about_a_record_with_a_foreign_key(self, said, tmp_path, text):
        data = Record(id="0" * 16, kind="pretrain", config={}, outcome="done").to_dict() | {text: text}
        path = Records(tmp_path).path(data["id"])
        path.parent.mkdir(parents=True)
        path.write_bytes(to_json({**data, "checksum": checksum(data)}))
        assert "0 of 1 records are sound" in said("verify", "--results-dir", tmp_path)

    def test_about_questions(self, said, tmp_path, text):
        file = tmp_path / "questions.jsonl"
        file.write_text(json.dumps({text: text, "prompt": text, "options": [text, text]}))
        assert "questions.jsonl:1" in said("ask", "model", "--score", "--file", file)

    def test_about_a_log(self, said, tmp_path, text):
        (tmp_path / "records").mkdir()
        log = Records(tmp_path).work_folder("0" * 16) / "log.txt"
        log.parent.mkdir(parents=True)
        log.write_text(f"before {text} after", newline="")
        assert "before" in said("logs", "0000", "--results-dir", tmp_path)

    def test_about_progress_and_failures(self, capsys, tmp_path, text):
        with LogDisplay() as display:
            display.shown = -1e9
            progress = {"step": 1, "steps": 2, "loss": 1.0, "tokens_per_second": 1.0}
            display(Event("progress", text, text, 0, 1, 1, None, progress=progress))
        assert shown(capsys.readouterr().out)
        failure = Failure(text, "failed", text, "0" * 16, tmp_path)
        assert rendered(Summary(problems=[text], notes=[text], failures=[failure])._repr_markdown_())
