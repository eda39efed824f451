"""Promises of every command: data for programs, one name for one thing, and lines of the documents that run."""

import json
import os
import re
import shlex
import shutil
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from ablations.commands import checkpoints, cli, evaluate, tokenizer
from ablations.commands.terminal import Format
from ablations.core.store import Records
from ablations.inspection import trained
from ablations.planning import grids
from ablations.running import inference
from ablations.study import Study
from lightning_modules.measures import counting
from lightning_modules.places import project
from lightning_modules.tasks import TASKS
from tests import language_models
from tests.every import every
from tests.unit.synthetic import make_record

TOLD = dict.fromkeys(tokenizer._HEADINGS.keys() - {"longest"}, 0.5)  # of a tokenizer
RUN = "RUN"  # stands for the id of a run below
FOLDER = "FOLDER"  # stands for an empty folder
QUEUE = "QUEUE"  # stands for the file of a campaign
OTHER = "OTHER"  # stands for another results folder


def leaves(command, *words):
    """Every command with the words that call it."""
    if not hasattr(command, "commands") or (words and command.invoke_without_command):
        yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, *words, name)


COMMANDS = {words: found for words, found in leaves(typer.main.get_command(cli.app)) if not found.hidden}
CALLS = {
    "ask": [RUN, "The water"],
    "campaign": ["--file", QUEUE],
    "campaign run": ["--file", QUEUE, "--for", "1h"],
    "check": ["masking_ratio"],
    "claims": [],
    "clean": [],
    "data": [],
    "data add": ["reviews.csv"],
    "data add-checkpoint": ["."],
    "data formats": ["--scale", "smoke"],
    "data verify": ["rte"],
    "diff": ["roberta_base", "roberta_large"],
    "compare": ["masking_ratio", "--scale", "smoke", "--equal", "tokens"],
    "evaluate": [RUN, "--task", "lambada"],
    "export": [RUN, "folder"],
    "finetune": ["--from", "folder", "--task", "rte"],
    "figures": ["masking_ratio", "--scale", "smoke", "--to", FOLDER],
    "benchmark inference": ["masking_ratio", "--scale", "smoke", "--device", "cpu"],
    "keep": [RUN],
    "knobs": ["alibi"],
    "list": [],
    "logs": [RUN],
    "init": [FOLDER],
    "new": ["depth", "--axis", "model.num_layers=1,2"],
    "params": ["roberta_base"],
    "plan": ["masking_ratio", "--scale", "smoke"],
    "published": ["albert.t4"],
    "run": ["masking_ratio", "--scale", "smoke", "--no-notebook"],
    "show": ["masking_ratio", "--scale", "smoke"],
    "status": [],
    "stop": [],
    "sync": [OTHER],
    "systems": [],
    "tables": [],
    "tokenizer stats": ["--scale", "smoke"],
    "verify": [],
}
AGAIN = {  # other forms of the answer
    "ask": [RUN, "The water", "is", "was", "--score"],
    "check": ["no_such_grid"],
    "params": [],
    "published": [],
    "run": ["masking_ratio", "--scale", "smoke", "--no-notebook", "--prepare", "--seeds", "1"],
    "show": [RUN],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of a grid whose runs are all done, with losses of our making."""
    study = Study("masking_ratio", "smoke", results_dir=tmp_path_factory.mktemp("kept"))
    for place, cell in enumerate(study.resolve().cells):
        for run in cell.runs:
            study.records.put(make_record(run, 4 + 0.1 * place + 0.01 * run.seed, config=run.to_dict()))
    row = {"parameters": 5, "flops": 7.0, "file_mb": 3.0, "1": {"ms": 2.0, "low": 1.0, "high": 9.0, "mb": 1.0}}
    cells = {cell.label: row for cell in study.resolve().cells}
    machine = {"device": "A processor", "threads": 1, "turns": 3, "clock": "wall", "torch": "2", "length": 32}
    machine |= {"batches": [1], "measured": "2026-01-02T03:04:05+00:00", "cells": cells}
    study.folder.mkdir(parents=True)
    inference.keep(study.folder, machine)
    return study.records.folder


@pytest.fixture
def call(results, tmp_path, monkeypatch, undrawn):
    """Calls a command on a copy of the results and of two grids; what needs trained weights is made up."""
    records = Records(shutil.copytree(results, tmp_path / "results"))
    folder = tmp_path / "grids"
    folder.mkdir()
    shutil.copy(grids.locate("masking_ratio"), folder)
    monkeypatch.setattr(grids, "FOLDER", folder)
    (queue := tmp_path / "queue.yaml").write_text("rows:\n  - {grid: masking_ratio, scale: smoke, reason: none}\n")
    monkeypatch.setattr(os, "nice", lambda more: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_id = records.files()[0].stem
    stands_for = {RUN: run_id, QUEUE: str(queue), FOLDER: str(tmp_path / "pictures"), OTHER: str(results)}
    (records.work_folder(run_id)).mkdir(parents=True)
    (records.work_folder(run_id) / "log.txt").write_text("it began\n")
    _make_up(monkeypatch, tmp_path)

    def called(words, *more):
        options = ["--results-dir", str(records.folder)] if "--results-dir" in _options(COMMANDS[words]) else []
        arguments = [stands_for.get(word, word) for word in more]
        return CliRunner().invoke(cli.app, [*words, *arguments, *options], catch_exceptions=False)

    return called


def _make_up(monkeypatch, folder):
    monkeypatch.setattr(trained, "keep", lambda *_: folder / "results")
    asked = language_models.model(folder, **{"model.max_positions": 128, "format.sequence_length": 128})
    system = language_models.system()
    opened = SimpleNamespace(name="it", system=system, texts=asked, tuned=None, is_folder=True)
    opened.language_model = lambda: asked
    monkeypatch.setattr("ablations.inspection.models.opened", lambda *_, **__: opened)
    monkeypatch.setattr(tokenizer, "rows", lambda *_: [dict.fromkeys(("tokenizer", "corpora", "longest"), "x") | TOLD])
    monkeypatch.setattr("lightning_modules.data.open_store", lambda *_: None)
    monkeypatch.setattr(
        "lightning_modules.data.formats.summary",
        lambda *_: {"rows": 1, "mean length": 90.0, "padding": 0.3, "documents a row": 1.5, "of the text": 1.0},
    )
    monkeypatch.setattr(evaluate, "_asked", lambda *_: {})
    monkeypatch.setattr(evaluate, "_measured", lambda *_: {"metrics": {"lambada.accuracy": 0.5}})
    counted = counting.Reached({"pairs": 4.5}, {100: 4.5}, {"pairs": [1]}, {"training": 100}, "a", "b")
    monkeypatch.setattr(counting, "reached", lambda *_: counted)
    monkeypatch.setattr("lightning_modules.interop.row_of", lambda *_, **__: None)
    monkeypatch.setitem(TASKS, "reviews", TASKS["bigram_shift"])
    monkeypatch.setattr("lightning_modules.tasks.rows.add", lambda *_: (folder / "reviews.yaml", TASKS["bigram_shift"]))
    monkeypatch.setattr("lightning_modules.checkpoints.add", lambda name, row: folder / "checkpoints.yaml")
    monkeypatch.setattr(checkpoints, "exported", lambda *_: ("a difference",))
    (folder / "evaluated.json").write_text('{"name": "evaluated", "metrics": {"rte.accuracy": 0.5}}')
    monkeypatch.setattr(checkpoints, "evaluated", lambda *_: folder / "evaluated.json")


def _options(command):
    return {option for parameter in command.params for option in parameter.opts}


MEASURING = {("benchmark", "inference")}  # takes seconds
ASKED = [pytest.param(w, id=" ".join(w), marks=[pytest.mark.slow] * (w in MEASURING)) for w in COMMANDS]


@pytest.mark.parametrize("words", ASKED)
def test_every_command_answers_programs(words, call):
    for arguments in filter(lambda given: given is not None, (CALLS[" ".join(words)], AGAIN.get(" ".join(words)))):
        answer = call(words, *arguments, "--format", "json")
        assert answer.exit_code in (0, 1, 2), answer.output
        found = json.loads(answer.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert found or words in (("claims",), ("status",), ("stop",)), "the answer is empty"
        named = call(words, *[word.replace("depth", "width") for word in arguments], "--format", Format.names.value)
        assert named.exit_code == answer.exit_code, named.output
        assert "{" not in named.stdout


def printed():
    """Page -> every command line that it prints, in blocks and within sentences: guides, files of grids, --help."""
    docs = project() / "docs"
    guides = [path for path in sorted(docs.rglob("*.md")) if not path.is_relative_to(docs / "generated")]
    of_grids = sorted(grids.available().values())
    for path in (project() / "README.md", project() / "CONTRIBUTING.md", *guides, *of_grids):
        text = path.read_text(encoding="utf-8")
        blocks = "\n".join(re.findall(r"^ *```(?:bash|sh)?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)).splitlines()
        lines = [*map(str.strip, blocks), *re.findall(r"`(ablations [^`]+)`", text)]
        said = (re.split(r"#| > ", line)[0].strip() for line in lines if line.startswith("ablations "))
        yield path.name, list(dict.fromkeys(said))
    yield "--help", [command.epilog.removeprefix("Example: ") for command in COMMANDS.values() if command.epilog]


PRINTED = dict(printed())


@every("line", sorted({line for lines in PRINTED.values() for line in lines}))
def test_every_command_line_of_the_documents_is_complete(line):
    """As printed: no option is unknown and none is missing. A name alone, as in this sentence, only has to exist."""
    said = shlex.split(line)[1:]
    name = max((words for words in COMMANDS if tuple(said[: len(words)]) == words), key=len)
    rest = said[len(name) :]
    if rest:
        COMMANDS[name].make_context(name[-1], rest)


PLANNED = ("plan", "run", "new", "check", "params", "diff", "knobs")  # what trains nothing, `run` with --dry-run
# what a reader puts there himself, such as GRID or a path; what needs a GPU; knobs that their pages write first
ELSEWHERE = re.compile(r"\b[A-Z]{3,}\b(?!=)|\.\.\.|/|runs_per_device|embedding_factor|objectives\.rtd")


@pytest.mark.nightly
@pytest.mark.slow
def test_what_is_printed_can_be_planned_page_by_page(tmp_path, monkeypatch):
    """A grid that a page makes is there for the lines below it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "corpus").mkdir()
    for name in "ab":
        (tmp_path / "corpus" / f"{name}.txt").write_text("The sea was calm.\n" * 99, encoding="utf-8")
    known, wrong, count = grids.available(), [], 0
    for page, lines in PRINTED.items():
        (home := tmp_path / "grids" / page).mkdir(parents=True)
        monkeypatch.setattr(grids, "home", lambda home=home: home)
        monkeypatch.setattr(
            grids, "available", lambda home=home: known | {path.stem: path for path in home.glob("*.yaml")}
        )
        for said in [shlex.split(line)[1:] for line in lines if not ELSEWHERE.search(line.partition(" --set")[0])]:
            if len(said) < 2 or said[0] not in PLANNED:
                continue
            ended = CliRunner().invoke(cli.app, [*said, *["--dry-run"] * (said[0] == "run")])
            count += 1
            if ended.exit_code:
                wrong.append(f"{page}: {shlex.join(said)}: {ended.output or ended.exception!r}")
    assert not wrong, "\n".join(wrong)
    assert count > 40
