"""Numbers of seeds, values and runs that nobody means are answered at once, with the number and the bound."""

import time

import pytest
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.config import ConfigError
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
metrics: [{{name: heldout.loss, better: lower}}]
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


def test_a_million_seeds_in_a_file(tmp_path):
    (line,) = said(written(tmp_path, seeds=1_000_000))
    assert says("g.yaml:10: scales.smoke.seeds", "1000", "1000000").fits(line)


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
