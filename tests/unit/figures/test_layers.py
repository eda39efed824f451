"""The figure of what layers do to what passes through them."""

import pytest

from ablations.figures import grid_figures
from ablations.measurements.measurements import Measurements
from tests.unit.synthetic import make_objectives


def named(figure):
    """The names next to the lines."""
    return [" ".join(text.get_text().split()) for axes in figure.axes for text in axes.texts]


def test_layers_are_drawn_where_there_are_two_or_more():
    grid, cells, records = make_objectives()
    figure = grid_figures.layers(Measurements(grid, cells, records))
    distance, angle = (axes for axes in figure.axes if axes.get_ylabel())
    assert (distance.get_ylabel(), angle.get_ylabel()) == (
        "L2 distance of output from input", "angle (degrees) of output from input"
    )  # fmt: skip
    means = [line for line in distance.lines if line.get_linewidth() == 2]
    assert [list(line.get_ydata()) for line in means] == [[3, 4], [3, 5], [3, 6], [3, 7]]
    assert {tuple(line.get_xdata()) for line in angle.lines} == {(1, 2)}
    assert len(distance.lines) == 4 * (5 + 1)
    assert sorted(named(figure)) == sorted(cell.values["objective"] for cell in cells)


@pytest.mark.parametrize("layers", [{}, {"distance": [3.0], "angle": [30.0]}], ids=["none", "one layer"])
def test_without_two_layers_there_is_no_figure_of_layers(layers):
    grid, cells, records = make_objectives()
    bare = {id: record.but(layers=layers) for id, record in records.items()}
    assert grid_figures.layers(Measurements(grid, cells, bare)) is None
    assert grid_figures.layers(Measurements(grid, cells, {})) is None
    deeper = {**bare, cells[1].runs[0].id: records[cells[1].runs[0].id]}
    assert named(grid_figures.layers(Measurements(grid, cells, deeper))) == ["pairs"]
