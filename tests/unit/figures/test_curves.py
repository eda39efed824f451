"""Held-out losses over training tokens as a figure."""

import numpy as np
import pytest

from ablations.figures import grid_figures
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import references
from tests.unit.figures.test_figures import texts
from tests.unit.synthetic import RATE, losses, make_cell, make_grid, make_study


def test_curves_have_seeds_means_names_and_baselines():
    grid, cells, records = make_study()
    figure = grid_figures.curves(Measurements(grid, cells, records))
    axes, _ = figure.axes
    assert sum(line.get_linewidth() == 0.7 for line in axes.lines) == 25
    assert sum(line.get_linewidth() == 2.2 for line in axes.lines) == 5
    assert axes.get_xscale() == "log"
    (named,) = references("heldout.loss")  # as tables call it
    assert {"5 %", "15 %", "40 %", "masking rate", named, "unigram baseline"} <= set(texts(figure))
    assert any(text.startswith("80 %: 0.") and text.endswith("off the axis") for text in texts(figure))
    thick = next(line for line in axes.lines if line.get_linewidth() == 2.2)
    ends = [records[run.id].curve["heldout.loss"][-1] for run in cells[0].runs]
    assert thick.get_ydata()[-1] == pytest.approx(np.mean(ends))


def test_a_second_panel_has_the_differences_to_the_baseline():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4, 0.8)]
    records, tokens = {}, [10, 100, 1000]
    for cell, shift in zip(cells, (0.0, -0.25, 0.5), strict=True):
        curve = {"tokens": tokens, "heldout.loss": [9.0, 6.0 + 2 * shift, 4.0 + shift]}
        records |= losses(cell, [4.0, 4.0], curve=curve)
    grid = make_grid(baseline={RATE: 0.15})
    _, aside = grid_figures.curves(Measurements(grid, cells, records)).axes
    assert [list(line.get_ydata()) for line in aside.lines] == [[0.0], [-0.25], [0.5]]  # the last eighth of the tokens
    few = grid_figures.curves(Measurements(grid, cells[:2], records))
    assert len(few.axes) == 1
    assert len(grid_figures.curves(Measurements(make_grid(baseline={}), cells, records)).axes) == 1


def test_losses_on_another_text_than_the_baselines_have_no_difference():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.4, 0.8)]
    records = {k: v for cell in cells for k, v in losses(cell, [4.0, 4.1]).items()}
    assert len(grid_figures.curves(Measurements(make_grid(), cells, records)).axes) == 2
    longer = cells[2].model_copy(update={"system": cells[2].system.but(**{"format.sequence_length": 64})})
    figure = grid_figures.curves(Measurements(make_grid(), [*cells[:2], longer], records))
    assert len(figure.axes) == 1
    assert {"15 %", "40 %", "80 %"} <= set(texts(figure)), "every curve has its name"


def test_curves_of_uneven_length_are_averaged_where_all_have_values():
    cells = [make_cell({RATE: 0.15}, 2)]
    records = losses(cells[0], [4.0, 4.0], curve={"tokens": [0, 10, 100, 1000], "heldout.loss": [9, 8, 7, 6]})
    run = cells[0].runs[1]
    records |= {run.id: records[run.id].but(curve={"tokens": [10, 1000], "heldout.loss": [7, 5]})}
    line = next(
        line
        for line in grid_figures.curves(Measurements(make_grid(), cells, records)).axes[0].lines
        if line.get_linewidth() == 2.2
    )
    assert list(line.get_xdata()) == [10, 100, 1000]
    assert list(line.get_ydata()) == pytest.approx([7.5, 6.5, 5.5])


def test_a_grid_shows_the_curve_of_the_loss_it_asks_for():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.8)]
    curve = {"tokens": [10, 100, 1000], "heldout.next_loss": [7, 5, 4], "heldout.loss": [9, 9, 9]}
    records = losses(cells[0], [4.0, 4.1], curve=curve) | losses(cells[1], [4.0, 4.1], curve=curve)
    asks = make_grid(metrics=[{"name": "heldout.next_loss"}], claims=[])
    (axes,) = grid_figures.curves(Measurements(asks, cells, records)).axes
    assert axes.get_ylabel().startswith("held-out loss of next tokens")
    pairs = make_grid(metrics=[{"name": "heldout.sop_accuracy"}], claims=[])
    assert grid_figures.curves(Measurements(pairs, cells, records)) is None


def test_losses_of_another_kind_have_curves_and_baselines_of_their_own():
    cells = [make_cell({RATE: rate}, 2) for rate in (0.15, 0.8)]
    metrics = {"heldout.next_loss": 4.0, "heldout.next_bigram_loss": 4.5, "heldout.next_unigram_loss": 6.0}
    curve = {"tokens": [10, 100, 1000], "heldout.next_loss": [7, 5, 4]}
    records = losses(cells[0], [4.0, 4.1]) | losses(cells[1], [4.0, 4.1], metrics=metrics, curve=curve)
    (axes,) = grid_figures.curves(Measurements(make_grid(), cells, records), metric="heldout.next_loss").axes
    assert axes.get_ylabel() == "held-out loss of next tokens (nats)\nlower is better"
    assert [list(line.get_ydata()) for line in axes.lines if line.get_linewidth() == 2.2] == [[7, 5, 4]]
    assert sorted(line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--")[0] == 4.5
    assert grid_figures.curves(Measurements(make_grid(), cells[:1], records), metric="heldout.next_loss") is None
