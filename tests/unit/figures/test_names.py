"""Figures over names and over variants that are called by numbers."""

import numpy as np
import pytest

from ablations.figures import grid_figures
from ablations.measurements.measurements import Measurements
from tests.unit.synthetic import LAYERS, losses, make_cell, make_grid, make_record, of_one_pretraining

POSITIONS = "model.positions"


@pytest.mark.parametrize("depths", [[1], [1, 2]], ids=["one line", "two lines"])
@pytest.mark.parametrize("kind", ["finetune", "pretrain"])
def test_over_names_the_runs_of_a_seed_are_joined_where_verdicts_pair_them(depths, kind):
    """Those of one pretraining are compared seed by seed: across lines at each name, or across names of one line."""
    names, seeds = ("learned", "none"), 3
    cells = [make_cell({POSITIONS: name, LAYERS: depth}, seeds, task="rte") for depth in depths for name in names]
    cells = of_one_pretraining(cells, "rte") if kind == "finetune" else cells
    values = {
        id(cell): [0.4 + 0.03 * i + 0.1 * seed * (1 + i) for seed in range(seeds)] for i, cell in enumerate(cells)
    }
    metric = {"finetune": "rte.accuracy", "pretrain": "heldout.loss"}[kind]
    records = {}
    for cell in cells:
        runs = cell.finetunings if kind == "finetune" else cell.runs
        for run, value in zip(runs, values[id(cell)], strict=True):
            records[run.id] = make_record(run, value, kind=kind, metrics={metric: value}, curve={})
    grid = make_grid(
        axes={POSITIONS: names, LAYERS: depths},
        baseline={},
        published=[],
        tasks=["rte"],
        metrics=[{"name": metric}],
        claims=[],
        figure={"x": POSITIONS, "y": metric},
    )
    axes = grid_figures.knob(Measurements(grid, cells, records)).axes[0]
    joined = sorted(tuple(line.get_ydata()) for line in axes.lines if line.get_linewidth() == 0.8)
    apart = [cells] if len(depths) == 1 else [[cells[0], cells[2]], [cells[1], cells[3]]]
    expected = [tuple(values[id(cell)][seed] for cell in group) for group in apart for seed in range(seeds)]
    if kind == "finetune":
        assert np.allclose(joined, sorted(expected))
    else:
        assert not joined


@pytest.mark.parametrize(
    ("values", "linear", "scale"),
    [(["400", "100", "200"], False, "log"), (["400", "100", "200"], True, "linear"), (["100", "400"], False, None)],
    ids=["multiples", "to scale", "two are names"],
)
def test_names_that_are_numbers_stand_to_scale(values, linear, scale):
    cells = [make_cell({POSITIONS: name}, 2, label=name) for name in values]
    records = {k: v for cell in cells for k, v in losses(cell, [float(cell.label), float(cell.label)]).items()}
    figure = {"x": POSITIONS, "y": "heldout.loss", "linear": linear}
    grid = make_grid(axes={POSITIONS: values}, baseline={}, published=[], figure=figure)
    axes = grid_figures.knob(Measurements(grid, cells, records)).axes[0]
    mean = next((line for line in axes.lines if line.get_linewidth() == 2.4), None)
    assert (axes.get_xscale() if mean else None) == scale
    if mean:
        assert list(mean.get_xdata()) == list(mean.get_ydata()) == [100, 200, 400]
