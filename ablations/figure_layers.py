"""How far each layer moves what passes through it, from the records of trained models."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ablations.canvas import STYLE, blank, colours, shown, titles
from ablations.frames import Lookup, done
from ablations.markup import cell_text
from ablations.schema import Cell, Grid

_PANELS = {"distance": "L2 distance", "angle": "angle (degrees)"}
_MOST_NAMES = 10  # cells in the legend


def layers(grid: Grid, cells: Sequence[Cell], records: Lookup, subtitle: str = "") -> Figure | None:
    """Distance and angle between the input and the output of each layer (Lan et al. 2020, Figure 1).

    One colour a cell, seeds thin, their mean thick.

    Returns:
        None where no finished run has statistics of more than one layer.
    """
    drawn = []
    for cell in cells:
        found = [record.layers for record in done(cell, records).values() if len(record.layers.get("angle", ())) > 1]
        drawn += [(cell, found)] if found else []
    if not drawn:
        return None
    names = [cell_text(cell.values) for cell, _ in drawn]
    with mpl.rc_context(STYLE):
        rows = -(-min(len(names), _MOST_NAMES) // 2)
        figure = blank(3.9 + 0.22 * rows)
        grid_rows = figure.add_gridspec(2, 2, height_ratios=[0.07 * rows, 1])
        key = figure.add_subplot(grid_rows[0, :])
        panels = [figure.add_subplot(grid_rows[1, column]) for column in range(2)]
        for panel, (name, label) in zip(panels, _PANELS.items(), strict=True):
            for i, ((_, found), colour) in enumerate(zip(drawn, colours(names), strict=True)):
                numbers = np.arange(1, len(found[0][name]) + 1)
                for statistics in found:
                    panel.plot(numbers, statistics[name], "-", color=colour, lw=0.7, alpha=0.45)
                style = "--o" if i >= 7 else "-o"  # more cells than hues: the second round is dashed
                mean = np.mean([statistics[name] for statistics in found], axis=0)
                panel.plot(numbers, mean, style, color=colour, lw=2, ms=4, label=shown(names[i], 44))
            panel.set_xlabel("layer")
            panel.set_ylabel(f"{label} of output from input")
            panel.set_ylim(bottom=0)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        lines, known = panels[0].get_legend_handles_labels()
        key.axis("off")
        key.legend(lines[:_MOST_NAMES], known[:_MOST_NAMES], loc="center left", ncols=2, fontsize=9)
        titles(figure, "How far does each layer move what passes through it?", subtitle)
    return figure
