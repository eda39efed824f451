"""Scale files with mistakes, each with exactly what the user reads, and what grids say of them."""

import pytest

from ablations.commands.cli import app
from ablations.planning import grids, scale_files, scales
from lightning_modules.config import ConfigError
from tests import tiny

GOOD = """\
description: a size
set:
  model.hidden_size: 48
  model.num_heads: 4
  training.steps: 20
  finetuning.epochs: 1
checkpoints: {finetuning.train_examples: 64}
"""
CASES = {
    "misspelt key": (
        ("description", "descripton"),
        [
            "small.yaml:1: descripton: there is no such key. Did you mean 'description'?",
        ],
    ),
    "a bad value of fine-tuning on one task": (
        ("finetuning.epochs: 1", "finetuning.rte.epochs: none"),
        ["small.yaml:6: set.finetuning.rte.epochs: Input should be a valid integer, not 'none'"],
    ),
    "a bad value of measuring one task": (
        ("finetuning.epochs: 1", "measuring.lambada.stride: 0"),
        ["small.yaml:6: set.measuring.lambada.stride: Input should be greater than or equal to 1, not 0"],
    ),
    "checkpoints that are pretrained": (
        ("finetuning.train_examples", "training.steps"),
        ["small.yaml:7: checkpoints.training.steps: only knobs that start with 'finetuning.' can be set"],
    ),
    "like nothing": (
        ("set:", "like: smoek\nset:"),
        ["small.yaml:2: like: there is no scale 'smoek'. Did you mean 'smoke'?"],
    ),
    "like itself": (
        ("set:", "like: small\nset:"),
        ["small.yaml:2: like: is circular: small -> small"],
    ),
    "a name": (
        ("set:", "name: other\nset:"),
        ["small.yaml:2: name: the file's name is the scale's name. Leave this out."],
    ),
    "a tab": (
        ("  model.num_heads", "\tmodel.num_heads"),
        ["small.yaml:4: a tab is not allowed here. Indent with spaces."],
    ),
    "nothing": ((GOOD, ""), ["small.yaml:1: is empty"]),
    "a list": ((GOOD, "[1]\n"), ["small.yaml:1: must be a mapping that starts with 'description:'"]),
}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    made = tmp_path / "scales"
    made.mkdir()
    (made / "smoke.yaml").write_text("description: seconds\n")
    (made / "small.yaml").write_text(GOOD)
    monkeypatch.setattr(scale_files, "FOLDER", made)
    return made


@pytest.mark.parametrize("name", CASES)
def test_mistakes_are_reported_with_file_and_line(folder, name):
    (old, new), said = CASES[name]
    assert GOOD.count(old) >= 1
    (folder / "small.yaml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as raised:
        scales.read("small")
    assert str(raised.value).splitlines() == said


def test_values_that_do_not_go_together_are_reported_where_they_are_set(folder):
    (folder / "small.yaml").write_text(GOOD.replace("num_heads: 4", "num_heads: 5"))
    with pytest.raises(ConfigError, match=r"^small.yaml:2: set: model: .*48.*\b5\b"):
        scales.read("small")


def test_what_does_not_go_with_a_grid_names_both_files(folder, tmp_path):
    (folder / "smoke.yaml").write_text("description: seconds\nset:\n  model.num_heads: 3\n")
    file = tiny.grid(tmp_path)
    file.write_text(file.read_text().replace("  model.num_heads: 2\n", ""))
    with pytest.raises(ConfigError) as raised:
        grids.read(file)
    said = str(raised.value)
    assert said.startswith("tiny.yaml:20: scales.smoke: model: ")
    assert said.endswith("(for example with rate=0.15 and what scales/smoke.yaml sets)")


def test_grids_write_no_base(folder, tmp_path):
    file = tiny.grid(tmp_path)
    file.write_text(file.read_text().replace("{description: seconds}", "{base: {model.dropout: 0.1}}"))
    with pytest.raises(ConfigError, match=r"tiny.yaml:21: scales.smoke.base: comes from the scale's own file"):
        grids.read(file)


def test_an_empty_entry_needs_a_file(folder, tmp_path):
    file = tiny.grid(tmp_path)
    file.write_text(file.read_text().replace("smoke: {description: seconds}", "smoek:"))
    with pytest.raises(ConfigError, match=r"tiny.yaml:21: scales.smoek: there is no such scale.*Did you mean 'smoke'"):
        grids.read(file)


def test_the_command_checks_scales_once(folder):
    from typer.testing import CliRunner

    (folder / "smoke.yaml").write_text("description: seconds\nset: {model.hiden_size: 48}\n")
    done = CliRunner().invoke(app, ["check"])
    assert done.exit_code == 2
    assert done.output.count("smoke.yaml:2: set.model.hiden_size") == 1
    assert "scale small: a size" in done.output
