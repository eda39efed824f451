from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import FillBetweenPolyCollection, LineCollection
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ablations.figures import grid_figures
from ablations.figures.style import off_axis
from ablations.measurements.measurements import Measurements
from tests.unit.synthetic import (
    LAYERS,
    RATE,
    Kept,
    losses,
    make_cell,
    make_depths,
    make_failure,
    make_grid,
    make_objectives,
    make_study,
)


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


def mean_line(axes):
    return next(line for line in axes.lines if len(line.get_xdata()) > 2 and line.get_linewidth() == 2.4)


def test_the_knob_figure_has_every_seed_the_means_and_the_published_values_apart():
    grid, cells, records = make_study()
    figure = grid_figures.knob(Measurements(grid, cells, records))
    measured, *published = figure.axes
    seeds = sorted(y for line in measured.lines if line.get_marker() == "o" for y in line.get_ydata())
    inside = [run.id for cell in cells if cell.values[RATE] != 0.8 for run in cell.runs]
    assert seeds == pytest.approx(sorted(records[id].metrics["heldout.loss"] for id in inside))
    (arrow,) = [line for line in measured.lines if line.get_marker() == "^"]
    assert arrow.get_xdata()[0] == 0.8, "80 % is far behind the others and has an arrow"
    assert f"{np.mean([records[run.id].metrics['heldout.loss'] for run in cells[4].runs]):.3g}, off the axis" in texts(
        figure
    )
    assert measured.get_ylim()[1] < 5.3
    mean = mean_line(measured)
    assert list(mean.get_xdata()) == [0.05, 0.15, 0.3, 0.4, 0.8]
    assert mean.get_ydata()[1] == pytest.approx(
        np.mean([records[run.id].metrics["heldout.loss"] for run in cells[1].runs])
    )
    names = [axes.get_title(loc="left") for axes in published]
    assert names == [f"published, Mask15: {name} (%), higher is better" for name in ("MNLI", "QNLI", "SST-2")]
    assert list(published[0].lines[0].get_ydata()) == [84.2, 84.1, 84.2, 84.5, 84.1, 83.2, 82.3, 80.8]
    assert all(axes.get_xlim() == measured.get_xlim() for axes in published)
    assert "held-out loss (nats)\nlower is better" in texts(figure)
    assert "baseline" in texts(figure)


def test_unfinished_cells_say_so():
    grid, cells, records = make_study()
    for run in cells[3].runs[:2]:
        records[run.id] = make_failure(run)
    assert "3/5" in texts(grid_figures.knob(Measurements(grid, cells, records)))


def test_nothing_finished_is_no_figure():
    grid, cells, records = make_study()
    failures = {run.id: make_failure(run) for cell in cells for run in cell.runs}
    for nothing in ({}, failures):
        assert grid_figures.knob(Measurements(grid, cells, nothing)) is None
        assert grid_figures.curves(Measurements(grid, cells, nothing)) is None
    assert grid_figures.knob(Measurements(make_grid(figure=None), cells, records)) is None


@pytest.mark.parametrize(("seeds", "bands"), [(1, 0), (2, 0), (3, 1)])
def test_one_or_two_seeds_are_drawn_without_a_band(seeds, bands):
    grid, cells, records = make_study(seeds=seeds)
    axes = grid_figures.knob(Measurements(grid, cells, records)).axes[0]
    assert sum(isinstance(found, FillBetweenPolyCollection) for found in axes.collections) == bands


@pytest.mark.parametrize(
    ("path", "values", "scale"),
    [
        (LAYERS, [2, 4, 8, 16, 32], "log"),
        (LAYERS, [2, 4, 6, 8, 10], "linear"),
        ("optimizer.learning_rate", [1e-4, 1e-3, 1e-2], "log"),
        (RATE, [0.05, 0.1, 0.2, 0.4, 0.8], "linear"),
    ],
)
def test_the_axis_follows_the_steps_of_the_knob(path, values, scale):
    cells = [make_cell({path: value}, 2) for value in values]
    records = {k: v for cell in cells for k, v in losses(cell, [4.0, 4.1]).items()}
    grid = make_grid(axes={path: values}, baseline={}, published=[], figure={"x": path, "y": "heldout.loss"})
    assert grid_figures.knob(Measurements(grid, cells, records)).axes[0].get_xscale() == scale


_VIEWS = {  # from linear RGB to what is seen without long or middle cones (Machado et al. 2009), and in grey
    "full": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}


def seen(colour, view):
    """A colour in Lab as it is seen."""
    parts = np.array(to_rgb(colour))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(_VIEWS[view] @ linear, 0, 1) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(
    ("means", "out"),
    [([6.0, 4.6, 4.2, 4.0, 4.1], [0]), ([5.0, 4.6, 4.2, 4.0], []), ([9.0, 4.0, 4.1], []), ([1, 1, 1, 1], []),
     ([-9, 4.0, 4.1, 4.2, 4.3, 9.0], [0, 5])],
)  # fmt: skip
def test_what_would_triple_an_axis_is_off_it(means, out):
    assert off_axis(means) == out


@pytest.mark.parametrize("study", [make_study, make_objectives, make_depths])
@pytest.mark.parametrize("draw", [grid_figures.knob, grid_figures.curves])
@pytest.mark.parametrize("slide", [False, True])
def test_no_text_is_small_or_lies_over_another(study, draw, slide, monkeypatch):
    figure = draw(Measurements(*study()), "the small print", "40 % leads 15 % by 0.2 nats [0.1, 0.3] " * 3)
    if figure is None:
        pytest.skip("no curve is asked for")
    if slide:
        grid_figures.for_slide(figure)
    found = drawn(figure, monkeypatch)
    assert min(text.get_fontsize() for text in found) >= (12 if slide else 8)
    boxes = [(text.get_text().strip(), *_box(text)) for text in found]
    over = [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if _share(one, other) > 0.04]
    assert not over


def drawn(figure, monkeypatch):
    """The texts that a figure draws; ticks out of sight are none."""
    found, draw = [], Text.draw
    FigureCanvasAgg(figure).draw()  # lays it out
    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", lambda self, renderer: (found.append(self), draw(self, renderer)))
        figure.canvas.draw()
    return [text for text in dict.fromkeys(found) if text.get_text().strip() and text.get_visible()]


def _box(text):
    """The room of a text, without its empty first lines."""
    lines, box = text.get_text().split("\n"), text.get_window_extent()
    empty = sum(not line.strip() for line in lines) / len(lines)
    yield Bbox.from_extents(box.x0, box.y0, box.x1, box.y1 - empty * box.height)


def _share(one, other):
    """How much of the smaller box lies in the other."""
    both = Bbox.intersection(one, other)
    return both.width * both.height / min(one.width * one.height, other.width * other.height) if both else 0.0


def test_a_held_out_loss_is_shown_against_what_counting_reaches(tmp_path):
    grid, cells, records = make_study()
    measured = Measurements(grid, cells, Kept(records, tmp_path, cells, 4.4))
    for draw in (grid_figures.knob, grid_figures.curves):
        named = {text.replace("\n", " ") for text in texts(draw(measured))}
        assert "counts of neighbours" in named
        assert "bigram baseline" not in named
    level = [line for line in grid_figures.knob(measured).axes[0].lines if list(line.get_ydata()) == [4.4, 4.4]]
    assert len(level) == 1


# --- several metrics, names, several published lines


def dashes(axes):
    """Position and height of each dash of a simple method at a value of the knob."""
    lines = [line for found in axes.collections if isinstance(found, LineCollection) for line in found.get_segments()]
    return [
        (float(line[:, 0].mean()), float(line[0, 1])) for line in lines if len(line) == 2 and line[0, 1] == line[1, 1]
    ]


def beside(records, metric, name, values):
    """The records, with the score of a simple method by run beside a metric where they have it."""
    return {
        run_id: record.model_copy(update={"metrics": {**record.metrics, name: values[run_id]}})
        if metric in record.metrics
        else record
        for run_id, record in records.items()
    }


def test_a_simple_method_that_is_asked_something_else_at_each_value_is_drawn_there():
    grid, cells, records = make_objectives()
    values = {run.id: 0.6 + 0.05 * place for place, cell in enumerate(cells) for run in cell.runs}
    records = beside(records, "heldout.sop_accuracy", "heldout.sop_best_simple", values)
    pairs, rte, *_ = grid_figures.knob(Measurements(grid, cells, records)).axes
    heights = {values[run_id] for run_id, record in records.items() if "heldout.sop_accuracy" in record.metrics}
    assert len(heights) == 2
    assert [place for place, _ in dashes(pairs)] == pytest.approx([2.0, 3.0])
    assert sorted(height for _, height in dashes(pairs)) == pytest.approx(sorted(heights))
    assert dashes(rte) == []


def test_beside_few_labels_stands_the_method_with_the_same_few():
    grid, cells, records = make_objectives()
    values = {run_id: 0.5 + 0.001 * n for n, run_id in enumerate(records)}
    records = beside(records, "rte.accuracy", "rte.accuracy.tfidf_same_labels", values)
    records = beside(records, "rte.accuracy", "rte.accuracy.tfidf", dict.fromkeys(records, 0.7))
    figure = grid_figures.knob(Measurements(grid, cells, records))
    named = {text.replace("\n", " ") for text in texts(figure)}
    assert "TF-IDF + logistic regression, same labels" in named
    assert len(dashes(figure.axes[1])) == 4


def test_two_metrics_are_two_panels_over_the_same_names():
    grid, cells, records = make_objectives()
    figure = grid_figures.knob(Measurements(grid, cells, records))
    pairs, rte, *published = figure.axes
    assert [axes.get_ylabel().partition("\n")[0] for axes in (pairs, rte)] == [
        "accuracy on swapped pairs", "RTE accuracy"
    ]  # fmt: skip
    for axes, cell_count in ((pairs, 2), (rte, 4)):
        assert [text.get_text() for text in axes.get_xticklabels()] == [
            "one\nsegment", "pairs", "pairs,\nNSP", "pairs,\nSOP"
        ]  # fmt: skip
        seeds = [y for line in axes.lines if line.get_marker() == "o" for y in line.get_ydata()]
        assert len(seeds) == 5 * cell_count
    assert pairs.get_legend() is None
    named = {text.replace("\n", " ") for text in texts(figure)}
    assert {"majority class", "TF-IDF + logistic regression"} <= named
    assert "TF-IDF + logistic regression, shared words" not in named
    beside = [note.xy[0] for axes in (pairs, rte) for note in axes.texts if note.get_ha() == "left"]
    assert len(beside) >= 2
    assert min(beside) > 1, "names of simple methods stand outside the panel, over no point"
    assert [axes.get_title(loc="left").partition(": ")[2].replace("\n", ", ") for axes in published] == [
        "SOP acc (%), higher is better", "MNLI-m (%), higher is better"
    ]  # fmt: skip
    assert [axes.get_xlim() for axes in published] == [pairs.get_xlim(), rte.get_xlim()]
    assert list(published[0].lines[0].get_xdata()) == [1, 2, 3]
    assert list(published[0].lines[0].get_ydata()) == [53.3, 52.0, 86.5]
    assert list(published[1].lines[0].get_ydata()) == [83.9, 84.4]


def make_widths():
    """Three widths and the heads that move with them, beside the published widths they are."""
    sizes = [(1024, 16), (2048, 32), (4096, 64)]
    width, heads = "model.hidden_size", "model.num_heads"
    source = {"file": "albert", "table": "T12 width", "match": {"hidden_size": width, "num_heads": heads}}
    axes = {width: [w for w, _ in sizes], heads: [h for _, h in sizes]}
    given = {"zip": [[width, heads]], "figure": {"x": width, "y": "heldout.loss"}}
    grid = make_grid(axes=axes, baseline={}, published=[source | {"metrics": ["Avg"]}], **given)
    cells = [make_cell({width: w, heads: h}, 2, label=f"{w}") for w, h in sizes]
    return grid, cells, {k: v for cell in cells for k, v in losses(cell, [4.0, 4.1]).items()}


def test_what_moves_with_the_knob_makes_no_lines_of_its_own():
    measured, average = grid_figures.knob(Measurements(*make_widths())).axes
    assert measured.get_legend() is None
    assert list(mean_line(measured).get_xdata()) == [1024, 2048, 4096]
    assert list(average.lines[0].get_ydata())[:3] == [71.2, 74.6, 76.3]


def test_published_values_of_other_companions_are_left_out():
    grid, cells, records = make_widths()
    others = [cell.but(values={**cell.values, "model.num_heads": 7}) for cell in cells[:1]]
    _, average = grid_figures.knob(Measurements(grid, others + cells[1:], records)).axes
    assert 71.2 not in list(average.lines[0].get_ydata())


def test_published_lines_have_the_colours_of_ours_at_their_stand_ins():
    grid, cells, records = make_depths()
    figure = grid_figures.knob(Measurements(grid, cells, records))
    measured, perplexity, average = figure.axes
    ours = {line.get_label(): line.get_color() for line in measured.lines if line.get_linewidth() == 2.4}
    assert set(ours) == {"own", "shared"}
    (own,), (shared,) = perplexity.lines, average.lines
    assert (own.get_color(), shared.get_color()) == (ours["own"], ours["shared"])
    assert list(own.get_xdata()) == list(shared.get_xdata()) == [1, 2, 4]
    assert list(own.get_ydata()) == [5.84, 4.68, 3.99]
    assert list(shared.get_ydata()) == [71.2, 77.2, 81.5]  # what was published of one layer is of one layer
    (baseline,) = [text for text in measured.texts if text.get_text() == "baseline"]
    assert baseline.xy[0] == 2
