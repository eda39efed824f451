"""The style of all figures: colours, drawable names, and saving with the same bytes each time.

Text stays text. Its places are those of the DejaVu fonts that come with matplotlib. Ids are hashed with a fixed salt,
and no date is written. Names are drawn literally, never as mathematics.
"""

import io
import textwrap
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from ablations.core.formatting import printable
from ablations.core.store import write
from ablations.figures.markup import slim

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# six that differ in lightness by 13 or more, and by 30 in Lab as seen without red or green cones (Machado et al. 2009)
SERIES = ("#0072B2", "#EE7733", "#222255", "#88CCEE", "#225555", "#000000")
MOST_SERIES = len(SERIES)
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, FAINT, PAPER = "#222222", "#8a8a8a", "#7a5195"
SMALL = 8.0  # points of the smallest text
SLIDE = (13.333, 7.5)  # inches, 16:9
_LARGER = 1.5  # text and lines of a slide
_TITLE, _QUESTION = 12.0, 9.5  # points
_ROW, _FINE_PRINT = 74, 124  # letters of a line of a title and of small print
_ABOVE = 84  # letters of a line of a question above an answer
_LEGIBLE = 0.18  # luminance of coloured text on white at most: a contrast of 4.5
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
    before = [(axes, axes.get_position(original=True), axes.get_in_layout()) for axes in figure.axes]
    engine.execute(figure)
    figure.set_layout_engine(None)  # with any other engine savefig draws twice
    try:
        yield
    finally:
        figure.set_canvas(canvas)
        figure.dpi = dpi
        figure.set_layout_engine(engine)
        for axes, place, in_layout in before:  # where the next layout starts: the same text for the same figure
            axes.set_position(place)  # which takes the axes out of the layout
            axes.set_in_layout(in_layout)


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


def titles(figure: Figure, question: str, subtitle: str, answer: str = "") -> None:
    """A question as the title, flush left and wrapped; a subtitle in small print at the bottom.

    With an answer that is the title, and the question is above it in smaller letters.
    """
    lines = textwrap.wrap(shown(answer or question, 260), _ROW)
    if answer:
        above = textwrap.wrap(shown(question, 200), _ABOVE)
        lines = [" "] * len(above) + lines  # room for the question
        below = figure.transFigure + ScaledTranslation(0, -0.06, figure.dpi_scale_trans)  # the edge, as the title is
        look: dict[str, Any] = {"fontsize": _QUESTION, "color": INK, "transform": below}
        figure.text(0.012, 1, "\n".join(above), ha="left", va="top", **look)
    size = _TITLE if answer else _TITLE + 1
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize=size, fontweight="bold")
    if subtitle:
        small = "\n".join(textwrap.wrap(shown(subtitle, 3 * _FINE_PRINT), _FINE_PRINT))
        figure.supxlabel(small, x=0.012, ha="left", fontsize=SMALL, color=FAINT)


def for_slide(figure: Figure) -> Figure:
    """The same figure on a slide of 16:9: larger letters, lines and marks."""
    figure.set_size_inches(*SLIDE)
    ticks = {axis: _LARGER * float(axis.get_ticklabels()[0].get_fontsize())
             for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_ticklabels()}  # fmt: skip
    for text in figure.findobj(Text):
        text.set_fontsize(_LARGER * float(text.get_fontsize()))
    for line in figure.findobj(Line2D):
        line.set_linewidth(_LARGER * line.get_linewidth())
        line.set_markersize(_LARGER * line.get_markersize())
    for axis, size in ticks.items():  # of ticks made later too
        axis.set_tick_params(labelsize=size)
    return figure


def keyed(figure: Figure, lines: float, rows: int, columns: int, **options: Any) -> tuple[Axes, np.ndarray]:
    """Panels ``[rows columns]`` below a strip for a legend: a figure's own legend would overlap its title.

    Args:
        lines: The height of the strip, in lines of text.
        options: Options of ``GridSpec.subplots``.
    """
    share = 0.2 * lines / figure.get_figheight()
    strip, rest = figure.add_gridspec(2, 1, height_ratios=[share, 1 - share])
    key = figure.add_subplot(strip)
    key.axis("off")
    return key, rest.subgridspec(rows, columns).subplots(squeeze=False, **options)


def colours(values: Sequence[Any]) -> list[Any]:
    """One colour per value: one hue from light to dark for numbers, which have an order; distinct hues for names.

    Of more than six names hues repeat: figures draw six.
    """
    if len(values) > 1 and all(is_number(value) for value in values):
        ranks = np.argsort(np.argsort(np.asarray(values, dtype=float), kind="stable"), kind="stable")
        return [mpl.colormaps["Blues"](0.4 + 0.6 * rank / (len(values) - 1)) for rank in ranks]
    return [SERIES[i % MOST_SERIES] for i in range(len(values))]


def legible(colour: Any) -> tuple[float, ...]:
    """A colour for text: the same hue, darkened until it is clearly visible on white."""
    parts = np.array(to_rgb(colour))
    while _luminance(parts) > _LEGIBLE:
        parts = parts * 0.92
    return tuple(map(float, parts))


def _luminance(parts: np.ndarray) -> float:
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def few(values: Sequence[float], kept: Collection[int] = ()) -> list[int]:
    """The places of at most six series of many, in order: those to keep, the ends, and others evenly between by rank.

    Args:
        values: Where each series ends.
        kept: Places of those that stay, such as baselines.
    """
    if len(values) <= MOST_SERIES:
        return list(range(len(values)))
    chosen = list(dict.fromkeys(kept))[:MOST_SERIES]
    rest = [int(place) for place in np.argsort(values, kind="stable") if place not in chosen]
    ranks = np.linspace(0, len(rest) - 1, MOST_SERIES - len(chosen)).round().astype(int)
    return sorted([*chosen, *(rest[rank] for rank in dict.fromkeys(ranks.tolist()))])


def off_axis(means: Sequence[float], widths: Sequence[float] = ()) -> list[int]:
    """The places of values that would make an axis more than three times as long as the others need.

    Args:
        means: The values to show; of fewer than four none is left out.
        widths: The length of the interval around each: the others need at least the longest of theirs.
    """
    out: list[int] = []
    while len(means) - len(out) > 3:
        inside = [place for place in range(len(means)) if place not in out]
        ends = min(inside, key=lambda place: means[place]), max(inside, key=lambda place: means[place])
        whole = means[ends[1]] - means[ends[0]]
        needed = {end: _needed([place for place in inside if place != end], means, widths) for end in ends}
        end = min(ends, key=lambda place: needed[place])
        if whole <= 3 * needed[end] or not needed[end]:
            break
        out.append(end)
    return sorted(out)


def _needed(places: Sequence[int], means: Sequence[float], widths: Sequence[float]) -> float:
    values = [means[place] for place in places]
    return max([max(values) - min(values), *(widths[place] for place in places if widths)])


def paler(colour: Any, share: float) -> tuple[float, ...]:
    """A colour on its way to white, 0 to 1."""
    return tuple(float(part + (1 - part) * share) for part in to_rgb(colour))


def is_number(value: Any) -> bool:
    """Whether a knob's value belongs on a numeric axis; True and False do not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_BOXED: dict[str, Any] = {  # of a name that may lie over lines
    "textcoords": "offset points", "bbox": {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8},
}  # fmt: skip


def draw_level(axes: Axes, name: str, value: float, *, is_left: bool) -> None:
    """A named horizontal line. Its name is below it at the left, or above it at the right."""
    axes.axhline(value, color=FAINT, lw=1, ls=(0, (5, 3)), zorder=2)
    look = {"ha": "left", "va": "top"} if is_left else {"ha": "right", "va": "bottom"}
    axes.annotate(name, (0.008 if is_left else 0.992, value), xycoords=("axes fraction", "data"), fontsize=8,
                  xytext=(0, -3 if is_left else 3), color=FAINT, zorder=6, **look, **_BOXED)  # fmt: skip


@dataclass(frozen=True)
class Named:
    """A name next to a panel: its height in data, its colour, and from where a line leads to it, if one does."""

    height: float
    text: str
    colour: Any
    start: tuple[float, float] | None = None


def name_beside(axes: Axes, names: Sequence[Named], inches: float) -> None:
    """Names right of a panel at their heights, moved apart as far as they would overlap.

    Args:
        axes: The panel; its limits are final.
        names: Those of series are bold, with a line to their end.
        inches: The height of the panel, roughly.
    """
    bottom, top = axes.get_ylim()
    slot = 1.45 * SMALL / 72 / inches  # of a line of text, as a share of the panel
    ordered = sorted(names, key=lambda name: name.height)
    rows = [range(name.text.count("\n") + 1) for name in ordered]
    # each line of text has a height of its own. A name is at the mean of its lines
    wished = [(name.height - bottom) / (top - bottom) + slot * (i - rows[at][-1] / 2)
              for at, name in enumerate(ordered) for i in rows[at]]  # fmt: skip
    apart = iter(spread(wished, slot))
    for name, lines in zip(ordered, rows, strict=True):
        height = sum(next(apart) for _ in lines) / len(lines)
        look: dict[str, Any] = {"ha": "left", "va": "center", "fontsize": SMALL, "color": legible(name.colour)}
        if name.start is None:
            axes.annotate(name.text, (1.015, height), xycoords="axes fraction", **look)
        else:
            leader = {"arrowstyle": "-", "color": name.colour, "lw": 0.8, "shrinkA": 1, "shrinkB": 1}
            at = {"xytext": (1.035, height), "textcoords": "axes fraction", "fontweight": "bold"}
            axes.annotate(name.text, name.start, arrowprops={**leader, "relpos": (0.0, 0.5)}, **at, **look)


def mark_off_axis(axes: Axes, x: float, value: float, colour: Any, name: str = "") -> None:
    """An arrow at the edge of a panel, with the value that lies beyond; the panel's limits are final."""
    bottom, top = axes.get_ylim()
    is_above, is_right = value > top, (axes.transScale + axes.transLimits).transform((x, bottom))[0] > 0.5
    at = (x, top if is_above else bottom)
    axes.plot(*at, "^" if is_above else "v", ms=8, color=colour, clip_on=False, zorder=7)
    look = {"ha": "right" if is_right else "left", "va": "top" if is_above else "bottom", "color": legible(colour)}
    axes.annotate(f"{shown(name, 36)}: {value:.3g}, off the axis".removeprefix(": "), at, fontsize=SMALL, zorder=7,
                  xytext=(-8 if is_right else 8, -5 if is_above else 5), **look, **_BOXED)  # fmt: skip


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
