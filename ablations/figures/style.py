"""The style of all figures: colours, drawable names, and saving with the same bytes each time.

Text stays text. Its places are those of the DejaVu fonts that come with matplotlib. Ids are hashed with a fixed salt,
and no date is written. Names are drawn literally, never as mathematics.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ablations.core.formatting import printable
from ablations.core.store import write
from ablations.figures.markup import slim

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, FAINT, PAPER = "#222222", "#8a8a8a", "#7a5195"
_LINE = 0.045  # height of a line of small text, as a share of a panel
STYLE: "dict[RcKeyType, Any]" = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#bbbbbb",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "ablations",
    "savefig.dpi": 150,
}


class Drawing(Figure):
    """A figure that a notebook shows with the bytes that `save` writes; axes and lines can be added to it."""

    def _repr_svg_(self) -> str:
        return svg(self)


def svg(figure: Figure) -> str:
    """The figure as SVG: the same text for the same figure."""
    with mpl.rc_context(STYLE), _laid_out(figure):
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return slim(out.getvalue().decode())


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """Lays a figure out as SVG once: ``savefig`` would draw it all a second time for that."""
    engine, dpi, canvas = figure.get_layout_engine(), figure.dpi, figure.canvas
    if engine is None:
        yield
        return
    figure.dpi = FigureCanvasSVG(figure).fixed_dpi or dpi
    engine.execute(figure)
    figure.set_layout_engine(None)  # with any other engine savefig draws twice
    try:
        yield
    finally:
        figure.set_canvas(canvas)
        figure.dpi = dpi
        figure.set_layout_engine(engine)


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure as ``.svg`` or ``.png``, by the ending of the path; never leaves a partial file."""
    if path.suffix == ".svg":
        write(path, svg(figure).encode())
    else:
        with mpl.rc_context(STYLE):
            out = io.BytesIO()
            figure.savefig(out, format=path.suffix[1:], metadata={"Software": None})
        write(path, out.getvalue())
    return path


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def shown(text: str, limit: int = 60) -> str:
    """One line that the font can draw; other characters become question marks."""
    drawn = "".join(c if ord(c) in _glyphs() else "?" for c in printable(text))
    return drawn if len(drawn) <= limit else drawn[: limit - 1] + "…"


def blank(height: float) -> Drawing:
    """An empty figure of the usual width and a height in inches, with room at its edges."""
    return Drawing(figsize=(7.6, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def titles(figure: Figure, question: str, subtitle: str) -> None:
    """A question as the title, flush left and wrapped; a subtitle in small print at the bottom."""
    words, lines = shown(question, 200).split(" "), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 62:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize=13, fontweight="bold")
    if subtitle:
        figure.supxlabel(shown(subtitle, 130), x=0.012, ha="left", fontsize=8, color=FAINT)


def keyed(figure: Figure, lines: float, rows: int, columns: int, **options: Any) -> tuple[Axes, np.ndarray]:
    """Panels ``[rows columns]`` below a strip for a legend: a figure's own legend would overlap its title.

    Args:
        figure: An empty figure.
        lines: The height of the strip, in lines of text.
        rows: Rows of panels.
        columns: Columns of panels.
        options: Options of ``GridSpec.subplots``.
    """
    share = 0.2 * lines / figure.get_figheight()
    strip, rest = figure.add_gridspec(2, 1, height_ratios=[share, 1 - share])
    key = figure.add_subplot(strip)
    key.axis("off")
    return key, rest.subgridspec(rows, columns).subplots(squeeze=False, **options)


def colours(values: Sequence[Any]) -> list[Any]:
    """One colour per value: along a colour map for numbers, which have an order; distinct hues for names."""
    if len(values) > 1 and all(is_number(value) for value in values):
        ranks = np.argsort(np.argsort(np.asarray(values, dtype=float), kind="stable"), kind="stable")
        return [mpl.colormaps["viridis"](0.84 * rank / (len(values) - 1)) for rank in ranks]
    return [OKABE_ITO[i % len(OKABE_ITO)] for i in range(len(values))]


def paler(colour: Any, share: float) -> tuple[float, ...]:
    """A colour on its way to white, 0 to 1."""
    return tuple(float(part + (1 - part) * share) for part in to_rgb(colour))


def is_number(value: Any) -> bool:
    """Whether a knob's value belongs on a numeric axis; True and False do not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def draw_level(axes: Axes, name: str, value: float, *, is_left: bool) -> None:
    """A named horizontal line; its name stands below it at the left, or above it at the right."""
    axes.axhline(value, color=FAINT, lw=1, ls=(0, (5, 3)), zorder=2)
    axes.annotate(
        name,
        (0.008 if is_left else 0.992, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, -3 if is_left else 3),
        textcoords="offset points",
        ha="left" if is_left else "right",
        va="top" if is_left else "bottom",
        fontsize=8,
        color=FAINT,
        zorder=6,
        bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8},
    )


def draw_levels(axes: Axes, values: Sequence[float], names: Sequence[tuple[float, str]]) -> None:
    """Horizontal lines, and names with their heights beside the panel, moved apart as far as they would overlap.

    Args:
        axes: The panel; its limits are final.
        values: Heights of the lines.
        names: Height and name, ordered by height.
    """
    for value in values:
        axes.axhline(value, color=FAINT, lw=1, ls=(0, (5, 3)), zorder=2)
    bottom, top = axes.get_ylim()
    slot = _LINE * (top - bottom)
    rows = [range(name.count("\n") + 1) for _, name in names]
    # each line of text has a height of its own; a name stands at the mean of its lines
    heights = [value + slot * (i - rows[at][-1] / 2) for at, (value, _) in enumerate(names) for i in rows[at]]
    apart = iter(spread(heights, slot))
    for (_, name), lines in zip(names, rows, strict=True):
        height = sum(next(apart) for _ in lines) / len(lines)
        at = (1.015, (height - bottom) / (top - bottom))
        axes.annotate(name, at, xycoords="axes fraction", ha="left", va="center", fontsize=8, color=FAINT)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The nearest heights at least ``gap`` apart, in the same order; neighbours too close share their mean height."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _low(groups[-1], gap) < _low(groups[-2], gap) + gap * len(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_low(group, gap) + gap * i for group in groups for i in range(len(group))]


def _low(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2
