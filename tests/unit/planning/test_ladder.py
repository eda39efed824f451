"""Ladders from one system to another: their cells, what they must hold, and sizes of a scale in their variants."""

import pytest

from ablations.planning import grids
from ablations.planning.cells import Workshop
from ablations.planning.ladder import differences, neighbours, within
from ablations.planning.plan import plan
from ablations.study import Study
from lightning_modules.config import ConfigError, diff
from lightning_modules.systems import SYSTEMS
from tests.messages import naming

RUNGS = {
    "depth": ["model.num_layers"],
    "width": ["model.hidden_size"],
    "rate": ["optimizer.peak_lr", "schedule.warmup_fraction"],
}


def written(folder, rungs=RUNGS, to="roberta_large", scale="", more=""):
    listed = "\n".join(f"    {name}: [{', '.join(knobs)}]" for name, knobs in rungs.items())
    file = folder / "ladder.yaml"
    file.write_text(
        f"question: What matters?\nbase: roberta_base\nladder:\n  to: {to}\n  rungs:\n{listed}\n{more}"
        f"scales:\n  demo: {{description: a size{scale}}}\n"
        "metrics: [{name: heldout.loss}]\n"
    )
    return file


def test_cells_climb_from_one_system_to_the_other_and_then_lack_one_rung_each(tmp_path):
    grid = grids.read(written(tmp_path))
    assert grid.axes["rung"] == ("roberta_base", "+ depth", "+ width", "+ rate", "without depth", "without width")
    assert grid.baseline == {"rung": "roberta_base"}
    knobs = grid.variants["rung"]
    lower, upper = SYSTEMS["roberta_base"], SYSTEMS["roberta_large"]
    same_but_names = {"name": "x", "paper": ""}
    for name, system in (("roberta_base", lower), ("+ rate", upper)):
        assert lower.but(**knobs[name], **same_but_names) == system.but(**same_but_names)
    top = upper.but(**same_but_names)
    for rung in ("depth", "width"):
        without = lower.but(**knobs[f"without {rung}"], **same_but_names)
        assert set(diff(top, without)) >= set(RUNGS[rung])
        assert not {path for other in RUNGS if other != rung for path in RUNGS[other]} & set(diff(top, without))


def test_each_cell_stands_beside_the_one_a_rung_away(tmp_path):
    cells = plan(grids.read(written(tmp_path)), "demo").cells
    beside = {label: cell.label for label, cell in neighbours(cells).items()}
    assert beside == {
        "+ depth": "roberta_base",
        "+ width": "+ depth",
        "+ rate": "+ width",
        "without depth": "+ rate",
        "without width": "+ rate",
    }
    text = Study(grids.locate(written(tmp_path)), "demo").about().text
    assert "num_layers" not in next(line for line in text.splitlines() if line.startswith("* \\+ width"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rungs": RUNGS | {"rate": ["optimizer.peak_lr"]}}, ("ladder.rungs", "schedule.warmup_fraction")),
        ({"rungs": RUNGS | {"width": ["model.num_layers", "model.hidden_size"]}}, ("model.num_layers", "'depth'")),
        ({"rungs": RUNGS | {"depth": ["model.num_layer"]}}, ("model.num_layer", "'model.num_layers'?")),
        ({"rungs": RUNGS | {"more": ["model.norm_eps"]}}, ("model.norm_eps", "no difference", "roberta_large")),
        ({"to": "roberta_larg"}, ("ladder.to", "roberta_larg", "'roberta_large'?")),
        ({"more": "axes: {rung: [a]}\n"}, ("axes.rung", "ladder")),
        ({"scale": ", variants: {model.hidden_siz: [[768, 64]]}"}, ("model.hidden_siz", "'model.hidden_size'?")),
        ({"scale": ", variants: {model.hidden_size: [[512, 64]]}"}, ("model.hidden_size.0", "512", "768", "1024")),
    ],
)
def test_what_is_wrong_with_a_ladder_is_said_with_its_place(tmp_path, change, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        grids.read(written(tmp_path, **change))


def test_a_scale_replaces_values_of_variants(tmp_path):
    grid = grids.read(written(tmp_path, scale=", variants: {model.hidden_size: [[768, 32], [1024, 64]]}"))
    workshop = Workshop(grid, "demo", dict(grid.baseline))
    sizes = [workshop.system({"rung": name}).model.hidden_size for name in grid.axes["rung"]]
    assert sizes == [32, 32, 64, 64, 64, 32]


@pytest.mark.parametrize("name", sorted(name for name, grid in grids.readable()[0].items() if grid.ladder))
def test_ladders_of_the_project_hold_every_difference_once(name):
    grid = grids.read(name)
    assert grid.ladder is not None
    known = differences(SYSTEMS[grid.base], SYSTEMS[grid.ladder.to])
    listed = [knob for knobs in grid.ladder.rungs.values() for path in knobs for knob in within(path, known)]
    assert sorted(listed) == sorted(known)
