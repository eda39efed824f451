"""The figures of a grid, drawn from records.

Figures are made without pyplot, so nothing is global: each function takes a grid, its cells, their records and a
subtitle, and returns a :class:`matplotlib.figure.Figure`, or None where there is nothing to draw. :func:`svg` gives
the same text for the same records.
"""

from ablations.figures.curves import curves
from ablations.figures.knob import knob
from ablations.figures.layers import layers
from ablations.figures.style import save, svg

__all__ = ["FIGURES", "curves", "knob", "layers", "save", "svg"]

FIGURES = {  # name -> how it is drawn, and what a page says below it
    "knob": (
        knob,
        "The metric over the knob: seeds thin, their mean thick, its 95 % interval; published values below.",
    ),
    "curves": (curves, "Held-out loss over training tokens: seeds thin, their mean thick."),
    "layers": (layers, "How far each layer moves what passes through it: seeds thin, their mean thick."),
}
