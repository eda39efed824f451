"""What people and programs may hand over: misspelt names, code in the place of names and values, degenerate numbers."""

import json
import random
import tracemalloc
import warnings

import nbformat
import pytest

from ablations.claims.judging import verdicts
from ablations.core import notebooks, strict_yaml
from ablations.measurements.measurements import Measurements
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError, did_you_mean, flat
from lightning_modules.systems import SYSTEMS
from tests.unit.synthetic import RATE, losses, make_cell, make_grid, make_plan, publish_page

LETTERS = "abcdefghijklmnopqrstuvwxyz_"


def misspelt(word, noise):
    """A word with one or two letters dropped, added or replaced."""
    for _ in range(noise.randint(1, 2)):
        at, kind = noise.randrange(len(word)), noise.randrange(3)
        word = word[:at] + ("" if kind == 0 else noise.choice(LETTERS)) + word[at + (kind < 2) :]
    return word


@pytest.mark.parametrize("path", [path for path in flat(SYSTEMS["roberta_base"]) if len(path.rpartition(".")[2]) > 4])
def test_a_knob_misspelt_by_two_letters_is_recognised(path):
    system, noise = SYSTEMS["roberta_base"], random.Random(path)
    head, dot, name = path.rpartition(".")
    others = {other.rpartition(".")[2] for other in flat(system) if other != path and other.rpartition(".")[0] == head}
    for _ in range(5):
        wrong = misspelt(name, noise)
        near = did_you_mean(wrong, others)  # what is as near to a neighbour may be taken for it: beta1, beta2
        if wrong == name or wrong in others or "Did you mean" in near:
            continue
        with pytest.raises(ConfigError) as raised:
            system.but(**{head + dot + wrong: 1})
        assert f"Did you mean '{path}'?" in str(raised.value)


@pytest.mark.parametrize("key", [name for name in Grid.model_fields if len(name) > 4])
def test_a_key_misspelt_by_two_letters_is_recognised(key):
    noise = random.Random(key)
    for _ in range(20):
        assert f"Did you mean '{key}'?" in did_you_mean(misspelt(key, noise), Grid.model_fields)


def test_an_alias_bomb_takes_little_memory(tmp_path):
    file = tmp_path / "grid.yaml"
    nested = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    file.write_text("a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(nested))  # 9^10 values
    tracemalloc.start()
    try:
        document = strict_yaml.load(file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert document.problems
    assert most < 100e6


PAYLOADS = [
    "it's", 'say "no"', "'''", '"""', "back\\slash", "\\", "\\n", "line\nbreak", "tab\t", "\r\n", "", " ",
    "naïve — 日本語 🙂", "\u202eright to left", "{braces} {0} %s $HOME `ls`", "x'); open('PWNED', 'w'); ('",
    "1\nopen('PWNED', 'w')\n", "__import__('os').system('touch PWNED')", "# %%\nopen('PWNED', 'w')", "x" * 1_000_000,
]  # fmt: skip


@pytest.fixture
def notebook(tmp_path):
    """A notebook that writes down what it was given."""
    cells = [
        nbformat.v4.new_code_cell("axes = None\nscale = ''", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("import json\njson.dump([axes, scale], open(axes['told'], 'w'))"),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = tmp_path / "tell.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


@pytest.mark.slow
def test_values_arrive_in_a_notebook_as_they_are_and_never_run(notebook, tmp_path, monkeypatch):
    """It works in the folder of the command, so that a relative path means the same in both."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    given = {"axes": {"told": "told.json", "values": PAYLOADS}, "scale": PAYLOADS[-4]}
    notebooks.execute(notebook, notebooks.checked(notebook, "any", given), tmp_path / "out.ipynb")
    assert json.loads((tmp_path / "work" / "told.json").read_text()) == [given["axes"], given["scale"]]
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize(
    "name", ["x=1\nopen('PWNED', 'w')\ny", "scale ", "Scale", "scale=1;scale", "", "axes.__class__"]
)
def test_names_that_a_notebook_does_not_declare_are_refused(notebook, name):
    with pytest.raises(ConfigError, match=r"tell\.ipynb has no such parameter"):
        notebooks.checked(notebook, "any", {name: 1})


@pytest.mark.parametrize(
    "name", ["model.num_layers\nseeds", "model.__class__", "model.num_layers; import os", "Model.X"]
)
def test_names_that_are_no_knob_are_refused(name):
    with pytest.raises(ConfigError, match="there is no such knob"):
        SYSTEMS["roberta_base"].but(**{name: 1})


@pytest.mark.slow
def test_a_notebook_that_cannot_be_written_leaves_the_old_one(notebook, tmp_path, monkeypatch):
    output = tmp_path / "results" / "notebook.ipynb"
    told = {"axes": {"told": str(tmp_path / "told.json")}}
    notebooks.execute(notebook, told, output, runs=3)
    assert notebooks.runs_shown(output) == 3
    before = output.read_bytes()

    def full(source, target, **_):
        with open(target, "w") as file:
            file.write('{"cells": [')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("papermill.execute_notebook", full)
    with pytest.raises(OSError, match="No space left"):
        notebooks.execute(notebook, told, output)
    assert output.read_bytes() == before
    assert list(output.parent.iterdir()) == [output]


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    cell = make_cell({RATE: 0.15}, 2)
    page = make_plan(make_grid(axes={RATE: [0.15]}, claims=[]), [cell])
    publish_page(page, losses(cell, [4.0, 4.1]), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device"):
        publish_page(page, losses(cell, [5.0, 5.1]), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "values",
    [[4.0], [4.0, 4.0], [4.0, 4.0, 4.0, 4.0, 4.0], [0.0, 0.0], [1e-300, 1e-300], []],
    ids=["one seed", "two equal", "all equal", "zero", "tiny", "none"],
)
def test_degenerate_numbers_make_a_table_and_no_verdict(tmp_path, values):
    """The same values on both sides of the claim: whatever they are, nothing is divided by zero and nothing found."""
    low, high = make_cell({RATE: 0.15}), make_cell({RATE: 0.4})
    records = losses(low, values) | losses(high, values)
    grid = make_grid(axes={RATE: [0.15, 0.4]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (verdict,) = verdicts(Measurements(grid, [low, high], records))
        publish_page(make_plan(grid, [low, high]), records, tmp_path)
    assert verdict.outcome not in ("as claimed", "against")
    table = (tmp_path / "table.md").read_text()
    assert "nan" not in table.lower()
    assert "inf" not in table.lower().replace("info", "")
    assert f"{len(values)} of 5" in table


def test_unequal_seeds_are_shown_and_decide_nothing(tmp_path):
    low, high = make_cell({RATE: 0.15}), make_cell({RATE: 0.4})
    records = losses(low, [4.0, 4.1, 4.2, 4.3, 4.4]) | losses(high, [4.5, 4.6, 4.7])
    grid = make_grid(axes={RATE: [0.15, 0.4]})
    (verdict,) = verdicts(Measurements(grid, [low, high], records))
    assert (verdict.raw.n, verdict.outcome, verdict.reason) == (3, "open", "runs missing")
    publish_page(make_plan(grid, [low, high]), records, tmp_path)
    table = (tmp_path / "table.md").read_text()
    assert "5 of 5" in table
    assert "3 of 5" in table
