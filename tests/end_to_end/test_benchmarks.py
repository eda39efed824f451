"""The programs of ``benchmarks``: each measures a step or two, and ends with its table."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from lightning_modules.places import project
from tests.depth import NIGHTLY

FOLDER = project() / "benchmarks"
DATA = os.environ.get("ABLATIONS_DATA")  # which no test sees
TINY = "--layers 1 --hidden 64 --vocab 512 --batch 4"
OPTIONS = {  # program -> the least that it measures
    "complexity": "--width 16 --rounds 1",
    "generation": f"{TINY} --rounds 1",
    "gpu": "core --device cpu --seconds 500 --output times.json",
    "pretrain_vs_transformers": f"--model L2-H128 {TINY} --length 32 --turns 1 --steps 1 --output times.json",
    "precision": "",
    "translation": "--turns 1 --steps 1 --warm-up 1",
}
BY_DAY = ["generation", "pretrain_vs_transformers"]  # `make nightly` tries all


@pytest.fixture
def steps():
    """The program whose sides are processes."""
    spec = importlib.util.spec_from_file_location("steps", FOLDER / "pretrain_vs_transformers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_program_is_tried():
    assert OPTIONS.keys() == {file.stem for file in FOLDER.glob("*.py")}


@pytest.mark.parametrize("name", OPTIONS if NIGHTLY else BY_DAY)
def test_a_program_measures(name, tmp_path, monkeypatch):
    if name in ("pretrain_vs_transformers", "translation"):
        pytest.importorskip("accelerate", reason="Hugging Face's Trainer needs it: pip install -e '.[bench]'")
    if name == "translation":
        if not DATA or not os.path.isdir(os.path.join(DATA, "multi30k")):
            pytest.skip("it needs the corpus Multi30k")
        monkeypatch.setenv("ABLATIONS_DATA", DATA)
    words = [sys.executable, str(FOLDER / f"{name}.py"), *OPTIONS[name].split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines(), "it prints what it measured"
    if name == "pretrain_vs_transformers":
        rows = json.loads((tmp_path / "times.json").read_text())["rows"]
        assert [row["attention_dropout"] for row in rows] == [0.1, 0.0]
    if name == "gpu":
        assert json.loads((tmp_path / "times.json").read_text())["left_out"] == []


def test_a_side_gets_every_option_zero_too(steps, tmp_path, monkeypatch):
    program = tmp_path / "side.py"
    program.write_text(
        f"import json, sys\nprint({steps.REPORT!r} + json.dumps(sys.argv[1:]), flush=True)\nsys.stdin.readline()\n"
    )
    monkeypatch.setattr(steps.Side, "program", str(program))
    asked = ["--attention-dropout=0.0", "--workers=0", "--folder", str(tmp_path), "--batch=4"]
    arguments = steps.parser().parse_args(asked)
    side = steps.Side("ours", arguments)
    given = vars(steps.parser().parse_args(side.report()))
    side.end()
    assert given.pop("began") > 0
    assert given.pop("side") == "ours"
    assert given == {name: value for name, value in vars(arguments).items() if name in given}
