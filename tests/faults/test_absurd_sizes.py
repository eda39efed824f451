"""Numbers of seeds, values and runs that nobody means are answered at once, with the number and the bound."""

import time
from typing import get_type_hints

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError, Settings
from lightning_modules.footprint import footprint, traced
from lightning_modules.systems import SYSTEMS
from tests.depth import some
from tests.faults.limits import limited
from tests.faults.mistakes import says
from tests.messages import names, naming

GRID = """\
question: Which?
base: roberta_base
set: {{data.corpora: [wikipedia-mini]}}
axes:
  objectives.mlm.masking.rate: {rates}
  optimizer.peak_lr: {rates}
  model.dropout: {rates}
{more}
scales:
  smoke: {{seeds: {seeds}}}
metrics: [{{name: heldout.loss}}]
"""


@pytest.fixture(autouse=True)
def at_once():
    """No answer takes more than three seconds of work."""
    began = time.process_time()
    yield
    assert time.process_time() - began < 3


def written(tmp_path, values=2, seeds=2, more=""):
    rates = [round(0.001 * n, 3) for n in range(1, values + 1)]
    (tmp_path / "g.yaml").write_text(GRID.format(rates=rates, seeds=seeds, more=more))
    return tmp_path / "g.yaml"


def said(file):
    with pytest.raises(ConfigError) as raised:
        grids.read(file)
    return str(raised.value).splitlines()


@pytest.mark.parametrize("seeds", [1_000_000, 10**18])
def test_a_million_seeds_on_the_command_line(seeds):
    ended = CliRunner().invoke(app, ["plan", "masking_ratio", "--scale", "smoke", "--seeds", str(seeds)])
    assert ended.exit_code == 2
    assert names(ended.output, "seeds", f"{seeds:,}", "1,000")


@pytest.mark.parametrize("seeds", [2.5, "3", True, 0, -1])
def test_a_number_of_seeds_that_is_none(seeds):
    with pytest.raises(ConfigError, match=naming("seeds", repr(seeds))):
        plan(grids.read("masking_ratio"), "smoke", seeds=seeds)


def test_an_absurd_product_of_axes(tmp_path):
    (line,) = said(written(tmp_path, values=300))
    assert says("g.yaml:4: axes", "smoke", "27,000,000", "100,000").fits(line)
    near = {"objectives.mlm.masking.rate": [0.15] * 10**4, "optimizer.peak_lr": [1e-3] * 10**4}
    with pytest.raises(ConfigError, match=naming("axes", "200,000,000", "100,000")):
        plan(grids.read(written(tmp_path)), "smoke", axes=near)


def test_an_absurd_product_of_a_search(tmp_path):
    values = [round(1e-4 * n, 4) for n in range(1, 400)]
    search = (
        f"search: {{axes: {{training.clip_norm: {values}, optimizer.weight_decay: {values}}}, metric: heldout.loss}}"
    )
    (line,) = said(written(tmp_path, more=search))
    assert says("g.yaml:8: search.axes", "smoke", "159,201", "100,000").fits(line)


def test_more_runs_than_anybody_makes(tmp_path):
    file = written(tmp_path, values=10, seeds=100)
    with pytest.raises(ConfigError, match=naming("100,000", "runs", "1,000", "cells", "50,000")):
        plan(grids.read(file), "smoke")
    assert len(plan(grids.read(file), "smoke", seeds=1, filters={"model.dropout": 0.001}).cells) == 100


INTEGERS = {int, int | None, tuple[int, ...]}
SMALL = {"model.num_layers": 2, "model.hidden_size": 32, "training.steps": 4}
WIDE = {"model.num_layers": 1000, "model.hidden_size": 1 << 16, "model.ffn_size": 1 << 20}


def knobs(settings, prefix=""):
    """The paths of all numbers and lists of numbers in some settings."""
    for name, info in type(settings).model_fields.items():
        inner = getattr(settings, name)
        if isinstance(inner, Settings):
            yield from knobs(inner, f"{prefix}{name}.")
        elif (plain := get_type_hints(type(settings))[name]) in INTEGERS:  # without bounds
            yield prefix + name, plain


def sized(system):
    """What planning computes of a system."""
    return system.parameters(), system.flops(), footprint(system)


def enlarged(system):
    """Knob -> the numbers that are refused, of those that nobody means; the others are planned."""
    refused = {}
    for path, kind in knobs(system):
        for number in (10**9, 10**18):
            try:
                sized(system.but(**{path: (number,) if kind == tuple[int, ...] else number}))
            except ConfigError as error:
                if names(str(error), path.rpartition(".")[2]):
                    refused.setdefault(path, []).append(number)
    return refused


@pytest.mark.parametrize(
    "base", some(["spanbert_base", "bert_base", "albert_base", "xlnet_base", "transformer_xl_base", "gpt2", "lstm"], 3)
)
def test_every_number_of_a_system(base):
    """Each is refused by name or planned; nothing is built that large."""
    recurrent = {"model.kind": "lstm", "objectives.lm.transform": "bert"}
    system = SYSTEMS["gpt"].but(**recurrent) if base == "lstm" else SYSTEMS[base].but(**{"model.num_heads": 2})
    refused = limited(enlarged, system.but(**SMALL), seconds=8)
    for size in ("num_layers", "hidden_size", "embedding_size", "segment_types"):
        assert refused[f"model.{size}"] == [10**9, 10**18]


@pytest.mark.parametrize(
    "changes", [WIDE, WIDE | {"format.sequence_length": 1 << 20, "model.max_positions": 1 << 20}], ids=["wide", "long"]
)
def test_the_largest_network_that_is_allowed_is_planned(changes):
    parameters, flops, _ = limited(sized, SYSTEMS["bert_base"].but(**changes))
    assert parameters > 1000 * (4 * (1 << 32) + 2 * (1 << 36))
    assert flops > parameters


def test_the_largest_published_networks_have_room():
    largest = SYSTEMS["gpt2"].but(**{"model.num_layers": 96, "model.hidden_size": 12288, "model.num_heads": 96})
    assert largest.parameters() == pytest.approx(175e9, rel=0.01)
    assert traced(largest)


def test_thousands_of_values_of_an_axis(tmp_path):
    """They are allowed, and read in a time that grows with their number."""
    rates = ", ".join(f"{n}.0e-6" for n in range(1, 2001))
    file = written(tmp_path)
    file.write_text(file.read_text().replace("optimizer.peak_lr: [0.001, 0.002]", f"optimizer.peak_lr: [{rates}]"))
    file.write_text(file.read_text().replace("[0.001, 0.002]", "[0.001]"))
    assert len(limited(grids.read, file, seconds=4).axes["optimizer.peak_lr"]) == 2000


@pytest.mark.parametrize("depth", [150, 900, 5000, 50_000])
def test_a_value_within_ten_thousand_lists(depth):
    ended = CliRunner().invoke(
        app, ["plan", "masking_ratio", "--scale", "smoke", "--filter", f"a={'[' * depth}{']' * depth}"]
    )
    assert ended.exit_code == 2
    assert names(ended.output, "nested too deeply")
