"""A scale is one file for all grids: what is stronger than what, and what one new file does."""

import shutil

import pytest

from ablations.commands.checkpoints import _settings
from ablations.planning import grids, scale_files, scales
from ablations.planning.plan import plan
from ablations.study import Study
from lightning_modules.config import ConfigError
from lightning_modules.systems import SYSTEMS
from tests import tiny
from tests.messages import naming

SMALL = """\
description: a size for these tests
set:
  model.num_layers: 3
  model.hidden_size: 48
  model.activation: relu
  model.dropout: 0.3
  training.steps: 9
  optimizer.beta2: 0.9
  finetuning.epochs: 2
  finetuning.rte.epochs: 4
  finetuning.rte.max_length: 16
"""
LIKE = "description: the same, shorter\nlike: small\nset: {training.steps: 2, model.dropout: 0.4}\n"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder of scales that holds one, and one that is like it."""
    made = tmp_path / "scales"
    made.mkdir()
    (made / "small.yaml").write_text(SMALL)
    (made / "shorter.yaml").write_text(LIKE)
    monkeypatch.setattr(scale_files, "FOLDER", made)
    return made


def read(tmp_path, listed, *, base="roberta_base", more="", **options):
    """A grid of tests with another list of scales, and whatever else at its end."""
    file = tiny.grid(tmp_path, **options)
    text = file.read_text().replace("  smoke: {description: seconds}\n", listed) + more
    file.write_text(text.replace("base: roberta_base", f"base: {base}"))
    return grids.read(file)


def test_the_grid_is_stronger_than_the_scale_and_its_entry_is_the_strongest(folder, tmp_path):
    grid = read(tmp_path, "  small: {set: {model.dropout: 0.2, optimizer.beta2: 0.95}}\n")
    system = plan(grid, "small").cells[0].system
    assert system.model.activation == "relu", "of the scale alone"
    assert (system.model.num_layers, system.model.hidden_size, system.training.steps) == (1, 16, 12), "of the grid"
    assert (system.model.dropout, system.optimizer.beta2) == (0.2, 0.95), "of its entry"


def test_knobs_that_a_grid_varies_are_its_own(folder, tmp_path):
    more = "variants: {kind: {as it is: {}, harder: {model.dropout: 0.5}}}\n"
    file = tiny.grid(tmp_path)
    text = file.read_text().replace("  smoke: {description: seconds}\n", "  small:\n")
    text = text.replace("axes:\n", "axes:\n  kind: [as it is, harder]\n  model.activation: [gelu, relu]\n") + more
    file.write_text(text)
    grid = grids.read(file)
    assert not {"model.dropout", "model.activation"} & grid.scales["small"].base.keys()
    dropouts = {cell.values["kind"]: cell.system.model.dropout for cell in plan(grid, "small").cells}
    assert dropouts == {"as it is": SYSTEMS["roberta_base"].model.dropout, "harder": 0.5}


def test_nothing_is_set_in_parts_that_a_system_has_not(folder, tmp_path, monkeypatch):
    (folder / "small.yaml").write_text("description: x\nset: {objectives.mlm.masking.cap: 3, model.dropout: 0.3}\n")
    file = tiny.grid(tmp_path, rates="[0.1]")
    text = file.read_text().replace("  smoke: {description: seconds}\n", "  small:\n")
    text = text.replace("objectives.mlm.masking.rate", "model.dropout").replace("0.15}", "0.1}")
    switched = "  objectives.mlm: null\n  objectives.lm.direction: left_to_right\n  model.direction: left_to_right\n"
    file.write_text(text.replace("set:\n", f"set:\n{switched}", 1).replace("heldout.loss", "heldout.next_loss"))
    grid = grids.read(file)
    assert plan(grid, "small").cells[0].system.objectives.mlm is None
    monkeypatch.setitem(SYSTEMS, "causal", plan(grid, "small").cells[0].system)
    own = grid.model_copy(update={"base": "causal", "set": {}})
    assert plan(own, "small").cells[0].system.objectives.mlm is None, "a base system without the part"


def test_fine_tuning_on_tasks_of_other_grids_is_left_out(folder, tmp_path):
    def knobs(more):
        return {path for path in read(tmp_path, "  small:\n", more=more).scales["small"].base if "finetuning" in path}

    assert knobs("") == set()
    assert knobs("tasks: [cola]\n") == {"finetuning.epochs"}
    rte = {"finetuning.rte.epochs", "finetuning.rte.max_length"}
    assert knobs("tasks: [cola, rte]\n") == {"finetuning.epochs", *rte}
    grid = read(tmp_path, "  small: {set: {finetuning.epochs: 5}}\n", more="tasks: [rte]\n")
    (tuned, *_) = plan(grid, "small").cells[0].finetunings
    assert (tuned.finetuning.epochs, tuned.finetuning.max_length) == (5, 16), "the grid's, though the scale's names RTE"


def test_where_a_grid_has_no_entry_it_lends_that_for_the_scale_it_is_like(folder, tmp_path):
    entry = (
        "{seeds: 3, axes: {objectives.mlm.masking.rate: [0.15, 0.5]}, set: {model.dropout: 0.2, optimizer.eps: 1.0e-7}}"
    )
    listed = f"  small: {entry}\n"
    grid = read(tmp_path, listed)
    assert list(grid.scales) == ["small"]
    found = plan(grid, "shorter")
    assert [cell.label for cell in found.cells] == ["rate=0.15", "rate=0.5"]
    assert len(found.cells[0].runs) == 3
    system = found.cells[0].system
    assert (system.model.dropout, system.optimizer.eps) == (0.4, 1e-7), "its own file goes before a borrowed entry"
    assert system.training.steps == 12, "but not before the grid"
    assert found.grid.scales["shorter"].description == "the same, shorter"
    assert found.folder_name == "shorter"
    own = read(tmp_path, listed + "  shorter: {set: {model.dropout: 0.1}}\n")
    system = plan(own, "shorter").cells[0].system
    assert (system.model.dropout, system.optimizer.eps) == (0.1, SYSTEMS["roberta_base"].optimizer.eps)
    assert system.model.activation == "relu", "what the scale is like still holds"


def test_unknown_scales_are_answered_with_the_nearest_of_grid_and_folder(folder, tmp_path):
    grid = read(tmp_path, "  mine: {}\n")
    for wrong, near in (("mien", "mine"), ("shortr", "shorter")):
        with pytest.raises(ConfigError, match=rf"has no scale '{wrong}'\. Did you mean '{near}'"):
            plan(grid, wrong)
    with pytest.raises(ConfigError, match=r"there is no scale 'smal'\. Did you mean 'small'"):
        scales.read("smal")


@pytest.mark.parametrize(("path", "tried"), [("model.hidden_size", [16, 32]), ("training.steps", [2, 4])])
def test_sizes_that_a_grid_varies_are_for_the_scales_that_it_states(folder, tmp_path, path, tried):
    file = tiny.grid(tmp_path, rates=str(tried))
    text = file.read_text().replace("objectives.mlm.masking.rate", path).replace("0.15}", f"{tried[0]}}}")
    file.write_text(text)
    study = Study(file, "smoke", results_dir=tmp_path)
    assert [cell.system.get(path) for cell in study.resolve().cells] == tried
    for scale in ("small", "shorter"):
        with pytest.raises(ConfigError, match=naming(f"scale {scale}", path, "Allowed", "smoke")):
            Study(file, scale)
    file.write_text(text.replace("scales:\n", "scales:\n  small:\n"))
    assert len(Study(file, "shorter", results_dir=tmp_path).resolve().cells) == 2, "like one that it states"


def test_a_borrowed_entry_keeps_the_sizes_that_the_grid_varies(folder, tmp_path):
    """The file's do not apply to these, so that without the entry's an arm would have those of the base system."""
    (folder / "shorter.yaml").write_text(LIKE.replace("training.steps: 2", "training.steps: 2, model.hidden_size: 64"))
    file = tiny.grid(tmp_path)
    text = file.read_text().replace("  model.hidden_size: 16\n", "").replace("  training.steps: 12\n", "")
    text = text.replace("axes:\n", "axes:\n  arm: [as it is, wide]\n", 1)
    text = text.replace("baseline:", "variants:\n  arm: {as it is: {}, wide: {model.hidden_size: 24}}\nbaseline:")
    sizes = "{model.hidden_size: 12, training.steps: 5}"
    file.write_text(text.replace("  smoke: {description: seconds}", f"  small: {{set: {sizes}}}"))

    def found(scale):
        return {(c.system.model.hidden_size, c.system.training.steps) for c in plan(grids.read(file), scale).cells}

    assert found("small") == {(12, 5), (24, 5)}
    assert found("shorter") == {(12, 2), (24, 2)}, "what no arm changes is the new scale's own"


# of 32 positions, or of heads that can be removed
_NEED_OTHERS = {
    "permutation",
    "transformer_variations",
    "translation_start",
    "head_pruning",
    "heads_left",
    "small_models",
}


@pytest.mark.parametrize("name", [name for name in grids.available() if name not in _NEED_OTHERS])
def test_no_run_of_a_scale_of_minutes_has_the_published_size(name):
    cells = plan(grids.read(name), "demo-scratch").cells
    assert max(cell.system.model.hidden_size for cell in cells) <= 256
    assert max(cell.system.training.batch_size for cell in cells) <= 128


@pytest.mark.parametrize("name", grids.available())
def test_one_new_file_is_a_scale_of_every_grid(monkeypatch, tmp_path, name):
    shutil.copytree(scale_files.FOLDER, tmp_path / "scales")
    (tmp_path / "scales/tiny.yaml").write_text(
        "description: less than smoke\nlike: smoke\nset: {training.steps: 6, format.sequence_length: 16}\n"
    )
    monkeypatch.setattr(scale_files, "FOLDER", tmp_path / "scales")
    study = Study(name, "tiny", results_dir=tmp_path / "results")
    lengths = {cell.system.format.sequence_length for cell in study.resolve().cells}
    assert lengths == {study.grid.set.get("format.sequence_length", 16)}  # a grid's own comes after that of a scale
    smoke = plan(study.grid, "smoke")
    assert [cell.label for cell in study.resolve().cells] == [cell.label for cell in smoke.cells]
    assert [cell.printed for cell in study.resolve().cells] == [cell.printed for cell in smoke.cells]


def test_checkpoints_are_fine_tuned_at_scales_that_say_how(folder):
    with pytest.raises(ConfigError, match=r"--scale: .*'shorter'.*'checkpoints:'"):
        _settings("rte", "shorter", {})
    (folder / "small.yaml").write_text(SMALL + "checkpoints: {finetuning.train_examples: 8}\n")
    assert _settings("rte", "shorter", {}).train_examples == 8
    assert _settings("rte", "shorter", {"finetuning.train_examples": 9}).train_examples == 9
    assert _settings("rte", "shorter", {}).epochs != 4, "what a scale sets is for models of its size"
    with pytest.raises(ConfigError, match=r"there is no scale 'smal'\. Did you mean 'small'"):
        _settings("rte", "smal", {})


def test_a_checkpoint_is_not_asked_for_what_its_task_never_reads():
    with pytest.raises(ConfigError, match=r"finetuning\.reader: squad1 is answered from single positions"):
        _settings("squad1", "paper", {"finetuning.reader": "mean"})
    assert _settings("rte", "paper", {"finetuning.reader": "mean"}).reader == "mean"
