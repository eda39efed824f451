"""The figure of what layers do to what passes through them."""

import pytest
from matplotlib.lines import Line2D

from ablations.figures import grid_figures
from ablations.measurements.measurements import Measurements
from tests.unit.synthetic import RATE, losses, make_cell, make_grid, make_objectives


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


def with_layers(cell_count, depth):
    """Cells of models of one depth, with two seeds each and the statistics of their layers."""
    cells = [make_cell({RATE: 0.05 * (n + 1)}, 2) for n in range(cell_count)]
    cells = [cell.but(system=cell.system.but(**{"model.num_layers": depth})) for cell in cells]
    told = {"layers": {"distance": [1.0] * depth, "angle": [10.0] * depth}}
    records = {}
    for cell in cells:
        records |= losses(cell, [4.0, 4.1], **told)
    return Measurements(make_grid(claims=[], figure=None), cells, records)


def test_models_of_two_layers_have_no_course_to_draw():
    assert grid_figures.layers(with_layers(2, 2)) is None
    assert grid_figures.layers(with_layers(2, 3)) is not None


def test_of_many_cells_six_are_drawn_as_means_and_the_others_are_counted():
    few, many = (grid_figures.layers(with_layers(count, 3)) for count in (6, 12))
    thin = [[line for line in figure.findobj(Line2D) if line.get_linewidth() == 0.7] for figure in (few, many)]
    assert [len(lines) for lines in thin] == [2 * 6 * 2, 0]
    assert len(named(few)) == 6
    assert len(named(many)) == 7
    assert "6 more cells not drawn" in named(many)
    assert {"masking rate 5 %", "masking rate 60 %"} <= set(named(many)), "the first and the last"


def test_the_title_gives_the_range_of_means_over_seeds():
    grid, cells, records = make_objectives()
    of_seeds = {run.id: place for cell in cells for place, run in enumerate(cell.runs)}
    turning = {
        id: record.but(layers={"distance": [1.0, 1.0], "angle": [40.0 + of_seeds[id] - 2, 7.0]})
        for id, record in records.items()
        if id in of_seeds
    }
    title = grid_figures.layers(Measurements(grid, cells, turning)).get_suptitle()
    assert [int(number) for number in title.split() if number.isdigit()] == [40, 7]  # five seeds from 38 to 42
