"""The figures of a grid, drawn from records.

Figures are made without pyplot and share no state: each function takes measurements and a subtitle and returns a
:class:`matplotlib.figure.Figure`, or None without data. :func:`svg` gives the same text for the same records.
"""

from typing import Any

from ablations.figures.curves import curves
from ablations.figures.knob import knob
from ablations.figures.layers import layers
from ablations.figures.mixes import mixes
from ablations.figures.style import Drawing, for_slide, save, svg
from ablations.measurements.measurements import Measurements

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
        measured: What is drawn.
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
