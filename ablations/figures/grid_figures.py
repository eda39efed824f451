"""The figures of a grid, drawn from records.

Figures are made without pyplot and share no state: each function takes measurements and a subtitle and returns a
:class:`matplotlib.figure.Figure`, or None without data. :func:`svg` gives the same text for the same records.
"""

from ablations.figures.curves import curves
from ablations.figures.knob import knob
from ablations.figures.layers import layers
from ablations.figures.style import save, svg

__all__ = ["FIGURES", "curves", "knob", "layers", "save", "svg"]

FIGURES = {  # name -> its function, its caption, and what its marks mean
    "knob": (
        knob,
        "The metric over the knob: each seed, the mean with its 95 % interval, and below it any published values.",
        "points and thin lines: single seeds; bands and bars: 95 % intervals of the mean",
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
}
