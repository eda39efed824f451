"""Files that others could have put into a folder: pipes, endless devices, links to what lies elsewhere.

Each file that a command reads in a folder is replaced by one of these, by night by each; the command ends soon, within
bounds, with a word and no traceback. Which command reads which file is found by walking the folders and noting what is
opened.
"""

import itertools
import json
import os
import resource
import shutil
import signal
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablations.commands import checkpoints
from ablations.commands.cli import app
from ablations.core import store
from ablations.core.store import Records
from ablations.pages import parameters_page
from ablations.planning import grids, scale_files
from ablations.planning.plan import plan
from ablations.running import inference
from ablations.running.execute import execute
from ablations.study import Study
from lightning_modules import interop
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from tests import language_models, tiny
from tests.depth import crossed

SECONDS = 60  # for a command, on a busy machine
MEMORY = 2 << 30  # bytes more than this process has
LARGE = 1 << 36  # bytes of a file that takes no room
KINDS = {
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a link to an endless device": lambda path, outside: path.symlink_to("/dev/zero"),
    "a link to a large file elsewhere": lambda path, outside: path.symlink_to(outside),
}

_DATA = ("rte", "copa", "race_middle", "squad1", "lambada", "wikitext2", "novels", "wikipedia-2015")

_opened: set[str] | None = None  # what is opened, while somebody asks


def _note(event, arguments):
    if _opened is not None and event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        _opened.add(os.path.abspath(os.fsdecode(arguments[0])))


sys.addaudithook(_note)  # which nothing can take away


class World:
    """Folders with files of every kind, and the commands that read them."""

    def __init__(self, home: Path) -> None:
        self.home, self.results, self.data = home, home / "results", home / "data"
        self.outside = home / "outside" / "large"
        self.outside.parent.mkdir()
        with self.outside.open("wb") as file:
            file.truncate(LARGE)
        self.corpus = tiny.grid(home / "grids", rates="[0.15]", seeds=1, steps=4)
        (home / "scales").mkdir()
        (home / "scales" / "own.yaml").write_text("like: smoke\ndescription: of one's own\n")

    def make(self) -> None:
        self.finish(), self.publish(), self.collect(), self.export()

    def finish(self) -> None:
        """Records with all that belongs to them."""
        records, grid = Records(self.results), grids.read("tiny")
        execute(plan(grid, "smoke", records=records), records, "inline", retries=0)
        self.run = records.files()[0].stem
        (self.results / "records" / "heldout.sha256").touch()
        assert self.said("keep", self.run).exit_code == 0
        shutil.rmtree(self.home / "cache" / "runs")

    def publish(self) -> None:
        """Pages, one of a study with a request of its own, and an essay."""
        study = Study("tiny", "smoke", results_dir=self.results)
        quick = inference.Setting(turns=1, seconds=1e-4)
        inference.keep(study.folder, inference.measure(study.resolve().cells, quick, str))
        study.publish()
        Study("tiny", "smoke", seeds=1, results_dir=self.results).publish()
        essay = self.results / "essays" / "thoughts" / "notebook.ipynb"
        essay.parent.mkdir(parents=True)
        essay.write_text(json.dumps({"cells": [{"source": ["# Thoughts"]}]}))

    def collect(self) -> None:
        """Data of tasks and corpora, too few to be right; questions and prompts."""
        rows = "index\tsentence1\tsentence2\tlabel\n0\tA cat.\tA dog.\tentailment\n"
        item = '<item id="{}" asks-for="cause" most-plausible-alternative="1"><p>P.</p><a1>A.</a1><a2>B.</a2></item>'
        exam = {"article": "A.", "questions": ["Q?"], "options": [["a", "b", "c", "d"]], "answers": ["A"]}
        answers = [{"answer_start": 0, "text": "Ann"}]
        asked = [{"context": "Ann left.", "qas": [{"id": "1", "question": "Who?", "answers": answers}]}]
        files = {
            "glue/RTE/train.tsv": rows,
            "glue/RTE/dev.tsv": rows,
            "copa/balanced-copa-dev-all.xml": f"<copa>{item.format(1)}{item.format(5)}</copa>",
            "race/train.middle.jsonl": json.dumps(exam),
            "race/dev.middle.jsonl": json.dumps(exam),
            "squad/train-v1.1.json": json.dumps({"data": [{"title": "T", "paragraphs": asked}]}),
            "squad/dev-v1.1.json": json.dumps({"data": [{"title": "T", "paragraphs": asked}]}),
            "lambada/lambada_test.jsonl": json.dumps({"text": "one two"}),
            "wikitext-2/wiki.test.raw": "\n = A = \n\n text \n = B = \n\n text \n",
            "pretrain/english_novels_100/a.txt": "A book.\n\nIts end.\n",
            "pretrain/wiki_en_2015/wiki_AA.txt": '<doc id="1">\nA\nAn article of some words.\n</doc>\n',
            "own/questions.jsonl": json.dumps({"prompt": "The water is", "options": ["old", "strong"]}),
            "own/questions.yaml": "- {prompt: The water is, options: [old, strong]}\n",
            "own/prompts.txt": "The water is\n",
        }
        files |= {
            f"pretrain/wiki_en_2015/wiki_A{letter}.txt": '<doc id="2">\nB\nAn article of some words.\n</doc>\n'
            for letter in "BCD"
        }
        for name, text in files.items():
            path = self.data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def export(self) -> None:
        """Folders of checkpoints with a tokenizer, one of them as the hub keeps it in its cache."""
        shape = {"model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2, "model.max_positions": 64}
        shape |= {"format.sequence_length": 64}
        for name, base, size in (("checkpoint", "bert_base", 80), ("speaker", "gpt2", 300)):
            system = SYSTEMS[base].but(**shape, **{"data.tokenizer.vocab_size": size})
            tokenizer = language_models.encoder(self.home, system.data.tokenizer).path
            interop.write(interop.of_run(system, system.build(0).state_dict()), self.home / name, tokenizer)
        plain = shutil.copytree(self.home / "checkpoint", self.home / "vocabulary")
        (plain / "tokenizer.json").unlink()
        blobs, snapshot = self.home / "hub" / "blobs", self.home / "hub" / "snapshots" / "0123"
        shutil.copytree(self.home / "checkpoint", blobs)
        snapshot.mkdir(parents=True)
        for path in blobs.iterdir():
            (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")

    @property
    def commands(self) -> dict[str, list[str]]:
        new, speaker = str(self.home / "new" / str(os.getpid())), str(self.home / "speaker")
        checkpoint = ["--task", "rte", "--output", f"{new}-evaluated", "--set", "finetuning.max_length=32"]
        return {
            "verify": ["verify"],
            "tables": ["tables"],
            "show": ["show", self.run],
            "keep": ["keep", self.run],
            "export": ["export", self.run, f"{new}-export"],
            "ask": ["ask", self.run, "the [MASK] sees a dog"],
            "sync": ["sync", str(self.results), "--results-dir", f"{new}-copied"],
            "list": ["list"],
            "check": ["check"],
            "plan": ["plan", "tiny", "--scale", "smoke"],
            "plan at a scale": ["plan", "tiny", "--scale", "own"],
            "data": ["data"],
            **{f"data verify {name}": ["data", "verify", name] for name in _DATA},
            "evaluate": ["finetune", "--from", str(self.home / "checkpoint"), *checkpoint],
            "evaluate a vocabulary": ["finetune", "--from", str(self.home / "vocabulary"), *checkpoint],
            "evaluate of the hub": ["finetune", "--from", str(self.home / "hub" / "snapshots" / "0123"), *checkpoint],
            "prompts": ["ask", speaker, "--set", "new_tokens=1", "--file", str(self.data / "own" / "prompts.txt")],
            "lines": ["ask", speaker, "--score", "--file", str(self.data / "own" / "questions.jsonl")],
            "questions": ["ask", speaker, "--score", "--file", str(self.data / "own" / "questions.yaml")],
        }  # fmt: skip

    def said(self, *words: str):
        takes = {"verify", "tables", "show", "keep", "export", "ask", "sync", "plan"}
        own = ["--results-dir", str(self.results)] if words[0] in takes and "--results-dir" not in words else []
        store._as_seen.cache_clear()  # each command is a process of its own
        return CliRunner().invoke(app, [*words, *own])

    def readers(self) -> dict[Path, list[str]]:
        """File -> the commands that open it, in the folders that others may fill."""
        global _opened
        opened_by = {}
        for name, words in self.commands.items():
            _opened = set()
            answer = self.said(*words)
            opened_by[name], _opened = _opened, None
            assert is_plain(answer), answer
        found = {}
        for folder in ("results", "data", "grids", "scales", "checkpoint", "speaker", "vocabulary", "hub/snapshots"):
            for path in sorted((self.home / folder).rglob("*")):
                names = [
                    name for name, paths in opened_by.items() if str(path.resolve()) in paths or str(path) in paths
                ]
                if names and path.is_file() and ".locks" not in path.parts:
                    found[path] = names
        return found


@pytest.fixture
def world(tmp_path, monkeypatch, undrawn):
    made = World(tmp_path)
    monkeypatch.setenv("ABLATIONS_CACHE", str(made.home / "cache"))
    monkeypatch.setenv("ABLATIONS_DATA", str(made.data))
    monkeypatch.setattr(grids, "FOLDER", made.home / "grids")
    monkeypatch.setattr(scale_files, "own", lambda name: [made.home / name])
    monkeypatch.setattr(parameters_page, "publish", lambda folder: [])  # which reads nothing of others
    monkeypatch.setattr(checkpoints, "_finetuned", stop)
    made.make()
    return made


def stop(*_):
    raise ConfigError(["all is read; the training would begin"])


def in_a_child(call) -> list[str]:
    """The faults that a generator finds in a child with limits.

    Args:
        call: Yields what it begins with, and None or the fault at its end. It begins again and again, each time
            within some seconds.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "w", buffering=1) as tells:
            try:
                size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(SECONDS)
                warnings.simplefilter("always")
                for number, said in enumerate(call()):
                    if number % 2:
                        signal.alarm(SECONDS)
                    tells.write(json.dumps(said) + "\n")
            except BaseException as error:
                tells.write(json.dumps(repr(error)) + "\n")
            finally:
                tells.flush()
                os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = [json.loads(line) for line in told]
    _, status = os.waitpid(child, 0)
    ended = [*said[1::2], f"killed by signal {os.WTERMSIG(status)}"]  # the last is of what was only begun
    return [f"{what}: {fault}" for what, fault in zip(said[::2], ended, strict=False) if fault]


def abused(world, path, names, kind):
    """Puts a kind in the place of a file and calls a third of the commands that read it; see `in_a_child`."""
    aside, number = path.with_name(f"{path.name}.aside"), list(KINDS).index(kind)
    os.rename(path, aside)
    KINDS[kind](path, world.outside)
    for name in names[number :: len(KINDS)] or names[:1]:
        yield f"{path.relative_to(world.home)} as {kind}, {name}"
        answer = world.said(*world.commands[name])
        yield None if is_plain(answer) else f"exit code {answer.exit_code}, {answer.exception!r}"
    path.unlink(missing_ok=True)
    os.rename(aside, path)


def is_plain(answer) -> bool:
    """Whether a command ended with one of its codes and without a traceback."""
    return answer.exit_code in (0, 1, 2) and isinstance(answer.exception, (SystemExit, type(None)))


@pytest.mark.nightly
def test_whatever_is_in_the_place_of_a_file_the_commands_that_read_it_end(world):
    readers = world.readers()
    assert {name for names in readers.values() for name in names} == world.commands.keys()
    turns = crossed(list(readers.items()), KINDS)
    assert in_a_child(lambda: itertools.chain(*(abused(world, *one, kind) for one, kind in turns))) == []
    assert world.outside.stat().st_size == LARGE
