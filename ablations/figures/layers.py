"""How far each layer moves its input, from the records of trained models."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ablations.core.formatting import cell_text
from ablations.core.statistics import mean_interval
from ablations.figures.style import STYLE, Drawing, blank, colours, keyed, paler, shown, titles
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell

_PANELS = {"distance": "L2 distance", "angle": "angle (degrees)"}
_MOST_NAMES = 10  # cells in the legend
_DEPTH = "model.num_layers"
_MOST_SEEDS = 6  # cells whose seeds are drawn too
_COURSE = 3  # layers that show a course
_MARKERS = "os^Dv"

Statistics = Sequence[dict[str, list[float]]]


def layers(measured: Measurements, subtitle: str = "") -> Drawing | None:
    """Distance and angle between the input and the output of each layer (Lan et al. 2020, Figure 1).

    One hue per cell but for the depth, paler for shallower models; seeds thin, their mean thick with its interval.

    Above six cells means alone; cells that the legend has no room for are counted there.

    Returns:
        None if no finished run has statistics of more than one layer, or all models have one number of layers below
        three: two points show no course.
    """
    drawn: list[tuple[Cell, Statistics]] = []
    for cell in measured.cells:
        seeds = [
            record.layers for record in measured.finished(cell).values() if len(record.layers.get("angle", ())) > 1
        ]
        drawn += [(cell, seeds)] if seeds else []
    depths = {cell.system.model.num_layers for cell, _ in drawn}
    if not drawn or (len(depths) == 1 and max(depths) < _COURSE):
        return None
    styles = _styles([cell for cell, _ in drawn])
    with mpl.rc_context(STYLE):
        rows = -(-min(len(drawn), _MOST_NAMES) // 2)
        figure = blank(3.8 + 0.22 * rows)
        key, panels = keyed(figure, rows + 0.4, 1, 2)
        for panel, (name, label) in zip(panels[0], _PANELS.items(), strict=True):
            for (cell, seeds), style in zip(drawn, styles, strict=True):
                of_seeds, label_of = [statistics[name] for statistics in seeds], shown(cell_text(cell.values), 44)
                _draw(panel, of_seeds, style, label_of, with_seeds=len(drawn) <= _MOST_SEEDS)
            panel.set_ylabel(f"{label} of output from input")
            panel.set_xlabel("layer")
            panel.set_ylim(bottom=0)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        lines, known = panels[0][0].get_legend_handles_labels()
        if len(known) > _MOST_NAMES:
            known[_MOST_NAMES - 1] = f"and {len(known) - _MOST_NAMES + 1} more"
            lines[_MOST_NAMES - 1] = Line2D([], [], ls="")
        key.legend(lines[:_MOST_NAMES], known[:_MOST_NAMES], loc="center left", ncols=2, fontsize=9)
        titles(figure, "How far does each layer move its input?", subtitle)
    return figure


def _draw(panel: Axes, seeds: Sequence[Sequence[float]], style: dict[str, Any], name: str, with_seeds: bool) -> None:
    """One cell: its seeds, their mean, and from two seeds on the interval of the mean."""
    numbers = np.arange(1, len(seeds[0]) + 1)
    for distances in seeds if with_seeds and len(seeds) > 1 else ():
        panel.plot(numbers, distances, "-", color=style["color"], lw=0.7, alpha=0.5)
    intervals = [mean_interval(list(values)) for values in zip(*seeds, strict=True)]
    bounds = [(interval.low, interval.high) for interval in intervals]
    if all(low is not None and high is not None for low, high in bounds):
        low, high = np.array(bounds, dtype=float).T
        panel.fill_between(numbers, np.maximum(low, 0), high, color=style["color"], alpha=0.13, lw=0)
    means = np.array([interval.mean for interval in intervals], dtype=float)
    panel.plot(numbers, means, lw=2, ms=5, label=name, **style)


def _styles(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Colour, marker and dashes of each cell: hue by everything but the depth, shade and marker by the depth."""
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
    return [
        {
            "color": hue,
            "marker": _MARKERS[depths.index(cell.system.model.num_layers) % len(_MARKERS)],
            "ls": "--" if names.index(kind) >= 7 else "-",  # more names than hues: repeated hues are dashed
        }
        for cell, kind, hue in zip(cells, kinds, hues, strict=True)
    ]
