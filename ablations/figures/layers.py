"""How far each layer moves its input, from the records of trained models."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ablations.core.formatting import cell_text, span_text
from ablations.core.statistics import mean_interval
from ablations.figures.curves import looks_of_lines, name_ends
from ablations.figures.style import STYLE, Drawing, blank, colours, paler, shown, titles
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell

_PANELS = {"distance": "L2 distance", "angle": "angle (degrees)"}
_MOST = 6  # cells that are drawn, evenly spread over those that could be
_DEPTH = "model.num_layers"
_COURSE = 3  # layers that show a course
_MARKERS = "os^Dv"

Statistics = Sequence[dict[str, list[float]]]


def layers(measured: Measurements, subtitle: str = "") -> Drawing | None:
    """Distance and angle between the input and the output of each layer (Lan et al. 2020, Figure 1).

    One hue per cell but for the depth, paler for shallower models; seeds thin, their mean thick with its interval. Of
    more than six cells six are drawn, the first and the last among them, as means alone, and the others are counted.

    Returns:
        None if no finished run has statistics of more than one layer, or all models have one number of layers below
        three: two points show no course.
    """
    drawn: list[tuple[Cell, Statistics]] = []
    for cell in measured.cells:
        seeds = [run.layers for run in measured.finished(cell).values() if len(run.layers.get("angle", ())) > 1]
        drawn += [(cell, seeds)] if seeds else []
    depths = {cell.system.model.num_layers for cell, _ in drawn}
    if not drawn or (len(depths) == 1 and max(depths) < _COURSE):
        return None
    answer = _answer([[list(v) for v in zip(*(s["angle"] for s in seeds), strict=True)] for _, seeds in drawn])
    left_out = max(0, len(drawn) - _MOST)
    kept = {round(place) for place in np.linspace(0, len(drawn) - 1, _MOST)} if left_out else range(len(drawn))
    drawn = [drawn[place] for place in sorted(kept)]
    styles = _styles([cell for cell, _ in drawn], measured)
    with mpl.rc_context(STYLE):
        figure = blank(3.8)
        for place, (name, label) in enumerate(_PANELS.items(), start=1):
            panel, ends = figure.add_subplot(1, 2, place), []
            for (cell, seeds), style in zip(drawn, styles, strict=True):
                at = _draw(panel, [statistics[name] for statistics in seeds], style, with_seeds=not left_out)
                ends.append((*at, style["color"], shown(cell_text(cell.values), 44)))
            panel.set_ylabel(f"{label} of output from input")
            panel.set_xlabel("layer")
            panel.set_ylim(bottom=0)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            if place == len(_PANELS):
                name_ends(panel, ends, f"{left_out} more cells not drawn" if left_out else "")
        titles(figure, "How far does each layer move its input?", subtitle, answer)
    return figure


def _answer(angles: Sequence[Sequence[Sequence[float]]]) -> str:
    """The range over cells of mean angles of the first layer, and over cells and layers of the later ones.

    Args:
        angles: For each cell and layer the angles of the seeds, degrees.
    """
    means = [[float(np.mean(seeds)) for seeds in layers] for layers in angles]
    first, later = [layers[0] for layers in means], [mean for layers in means for mean in layers[1:]]
    degrees = [span_text(values, "{:.0f}".format) for values in (first, later)]
    return f"The first layer turns its input by {degrees[0]} degrees, later ones by {degrees[1]}"


def _draw(
    panel: Axes, seeds: Sequence[Sequence[float]], style: dict[str, Any], *, with_seeds: bool
) -> tuple[float, float]:
    """One cell: its seeds, their mean, and from two seeds on the interval of the mean; returns the mean's end."""
    numbers = np.arange(1, len(seeds[0]) + 1)
    for distances in seeds if with_seeds and len(seeds) > 1 else ():
        panel.plot(numbers, distances, "-", color=style["color"], lw=0.7, alpha=0.5)
    intervals = [mean_interval(list(values)) for values in zip(*seeds, strict=True)]
    bounds = [(interval.low, interval.high) for interval in intervals]
    if all(low is not None and high is not None for low, high in bounds):
        low, high = np.array(bounds, dtype=float).T
        panel.fill_between(numbers, np.maximum(low, 0), high, color=style["color"], alpha=0.13, lw=0)
    means = np.array([interval.mean for interval in intervals], dtype=float)
    panel.plot(numbers, means, lw=2, ms=5, **style)
    return float(numbers[-1]), float(means[-1])


def _styles(cells: Sequence[Cell], measured: Measurements) -> list[dict[str, Any]]:
    """Colour, marker and dashes of each cell.

    Colour and dashes are those of the lines of the grid's figure, so that a colour means one thing on a page. Where it
    has none, the hue is by everything but the depth, and the shade by the depth. The marker always is.
    """
    lines = looks_of_lines(cells, measured)
    depths = sorted({cell.system.model.num_layers for cell in cells})
    kinds = [cell_text({path: v for path, v in cell.values.items() if path != _DEPTH}) for cell in cells]
    names = list(dict.fromkeys(kinds))
    if len(names) == 1:
        hues: list[Any] = colours([cell.system.model.num_layers for cell in cells])
    else:
        of = dict(zip(names, colours(names), strict=True))
        ranks = [depths.index(cell.system.model.num_layers) for cell in cells]
        paleness = [0.55 * (len(depths) - 1 - rank) / max(1, len(depths) - 1) for rank in ranks]
        hues = [paler(of[kind], share) for kind, share in zip(kinds, paleness, strict=True)]
    dashes: list[Any] = ["--" if names.index(kind) >= 7 else "-" for kind in kinds]  # repeated hues are dashed
    if lines:
        hues, dashes = map(list, zip(*lines, strict=True))
    return [
        {"color": hue, "marker": _MARKERS[depths.index(cell.system.model.num_layers) % len(_MARKERS)], "ls": line}
        for cell, hue, line in zip(cells, hues, dashes, strict=True)
    ]
