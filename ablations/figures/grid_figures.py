"""The figures of a grid, drawn from records.

Figures are made without pyplot and share no state: each function takes measurements and a subtitle and returns a
:class:`matplotlib.figure.Figure`, or None without data. :func:`svg` gives the same text for the same records.
"""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ablations.core.formatting import cell_text
from ablations.figures.curves import curves
from ablations.figures.knob import knob
from ablations.figures.layers import layers
from ablations.figures.style import STYLE, Drawing, blank, colours, for_slide, save, shown, svg, titles
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell

_PLACES = {"mix": "", "mix_above": ", at the output"}  # of the metrics of shares -> what is added to a cell's name
_MOST = 6  # lines of a panel
_IN_A_ROW = 2  # panels
_HIGH, _ROOM = 2.9, 1.2  # inches: a panel, titles
_MARKERS = "os^Dv<"

Seeds = list[dict[int, float]]  # for each seed: layer -> its share


def mixes(measured: Measurements, subtitle: str = "") -> Drawing | None:
    """The share of each layer in the scalar mix of each cell (Peters et al. 2018, equation 1 and Figure 2).

    A panel for each task, at most four. Seeds are thin, their mean thick. Across: equal shares.

    Returns:
        None if no finished run has such shares.
    """
    asked = dict.fromkeys(task for cell in measured.cells for task in cell.tasks)
    drawn = {task: lines for task in asked if (lines := _lines(measured, task))}
    tasks = list(drawn)[: 2 * _IN_A_ROW]
    if not tasks:
        return None
    columns = min(len(tasks), _IN_A_ROW)
    rows = -(-len(tasks) // columns)
    names = list(dict.fromkeys(name for lines in drawn.values() for name in lines))[:_MOST]
    colour = dict(zip(names, colours(names), strict=True))
    with mpl.rc_context(STYLE):
        figure = blank(_HIGH * rows + _ROOM)
        for place, task in enumerate(tasks):
            panel = figure.add_subplot(rows, columns, place + 1)
            for number, name in enumerate(names):
                if seeds := drawn[task].get(name):
                    _draw(panel, name, seeds, colour[name], _MARKERS[number])
            panel.set_title(task)
            panel.set_ylim(0, 1)
            panel.set_xlabel("layer (0: embeddings)")
            panel.set_ylabel("share of the layer" if place % columns == 0 else "")
            if place == 0:
                panel.legend(loc="upper left")
        titles(figure, "Which layers does a task network read?", subtitle)
    return figure


def _lines(measured: Measurements, task: str) -> dict[str, Seeds]:
    """The shares of a task by cell and place, of the mixtures that have any."""
    found: dict[str, Seeds] = {}
    for cell in measured.cells:
        for place, text in _PLACES.items():
            if seeds := _shares(measured, cell, f"{task}.{place}"):
                found[f"{shown(cell_text(cell.values), 44)}{text}"] = seeds
    return found


def _shares(measured: Measurements, cell: Cell, metric: str) -> Seeds:
    seeds: dict[int, dict[int, float]] = {}
    for layer in range(cell.system.model.num_layers + 1):
        for seed, share in measured.values(cell, f"{metric}_{layer}").items():
            seeds.setdefault(seed, {})[layer] = share
    return list(seeds.values())


def _draw(panel: Axes, name: str, seeds: Seeds, colour: Any, marker: str) -> None:
    layers = list(seeds[0])
    for shares in seeds if len(seeds) > 1 else ():
        panel.plot(layers, list(shares.values()), "-", color=colour, lw=0.7, alpha=0.5)
    means = np.mean([list(shares.values()) for shares in seeds], 0)
    panel.plot(layers, means, lw=2, ms=5, color=colour, marker=marker, label=name)
    panel.axhline(1 / len(layers), color=colour, lw=0.8, ls=":")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))


__all__ = ["FIGURES", "caption", "curves", "draw", "for_slide", "knob", "layers", "mixes", "save", "svg"]

FIGURES = {  # name -> its function, its caption, and what its marks mean
    "knob": (
        knob,
        "The metric over the knob: each seed, the mean with its 95 % interval, and below it any published values.",
        "points: single seeds; bands and bars: 95 % intervals of the mean",
    ),
    "curves": (
        curves,
        "Held-out loss over training tokens: means (thick), and unless they are many each seed (thin).",
        "thick lines: means over seeds; thin lines: single seeds",
    ),
    "layers": (
        layers,
        "How far each layer moves its input: means over seeds, and of few cells each seed (thin).",
        "thick lines: means over seeds; bands: their 95 % intervals",
    ),
    "mixes": (
        mixes,
        "The share of each layer in what a task network reads, each seed and their mean.",
        "thick lines: means over seeds, thin ones: single seeds, dotted: equal shares",
    ),
}
_ANSWERING = ("knob", "curves")  # figures of what the verdicts are about


def draw(name: str, measured: Measurements, subtitle: str, answer: str, **options: Any) -> Drawing | None:
    """A figure of a grid.

    Args:
        name: One of ``FIGURES``.
        subtitle: The small print; what the marks mean follows it.
        answer: The title of figures that show what a verdict is about (see ``claims.headline``); may be empty.
        options: Of the figure's function.

    Returns:
        None without data.
    """
    function, _, marks = FIGURES[name]
    titled = {"answer": answer} if name in _ANSWERING else {}
    return function(measured, f"{subtitle}; {marks}", **titled, **options)


def caption(name: str, answer: str) -> str:
    """What a figure shows, in words for those who do not see it: the answer first."""
    told = f"{answer}. " if answer and name in _ANSWERING else ""
    return f"{told}{FIGURES[name][1]}"
