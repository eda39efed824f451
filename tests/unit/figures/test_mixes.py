"""The figure of the shares of layers."""

import pytest

from ablations.figures import grid_figures
from ablations.measurements.measurements import Measurements
from tests.unit.synthetic import make_objectives

SHARES = ((0.2, 0.5, 0.3), (0.1, 0.7, 0.2))  # of two seeds


def study(first=0, **places):
    """Two seeds of four cells; those whose number is named have shares of layers at that place."""
    grid, cells, records = make_objectives(seeds=2)
    for place, numbers in places.items():
        for number in numbers:
            for run, shares in zip(cells[number].finetunings, SHARES, strict=True):
                more = {f"rte.{place}_{layer}": share for layer, share in enumerate(shares, first)}
                records[run.id] = records[run.id].but(metrics=records[run.id].metrics | more)
    return Measurements(grid, cells, records)


def test_each_seed_is_drawn_and_their_mean():
    (panel,) = grid_figures.mixes(study(mix=[1])).axes
    thin, thick = ([list(line.get_ydata()) for line in panel.lines if line.get_lw() == width] for width in (0.7, 2))
    assert thin == [list(shares) for shares in SHARES]
    assert thick == [pytest.approx([0.15, 0.6, 0.25])]
    assert panel.get_title(loc="left") == "rte"


def test_without_mixtures_there_is_no_figure():
    assert grid_figures.mixes(study()) is None
