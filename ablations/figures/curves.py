"""Held-out loss over training tokens, one colour per cell."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ablations.core.formatting import axis_text, cell_text, quantity, value_text
from ablations.figures.style import (
    FAINT,
    MOST_SERIES,
    SERIES,
    SMALL,
    STYLE,
    Drawing,
    blank,
    colours,
    draw_level,
    few,
    legible,
    mark_off_axis,
    off_axis,
    paler,
    shown,
    spread,
    titles,
)
from ablations.measurements.dictionary import unit
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import BIGRAM, heldout_metric, in_plain_words, reference_losses
from ablations.measurements.selection import agrees, as_printed, baseline_of, paths_of
from ablations.measurements.sides import by_pretraining, one_text
from ablations.schema.cell import Cell
from ablations.schema.metrics import TRANSLATED

_MOST_LINES = 80  # seeds of all cells; more hide the means
_PAIRS = "segment_pairs"
_PALEST = 0.5  # of the first value of a knob, towards white
_FEWEST_APART = 3  # cells whose differences have a panel of their own
_LATE = 8  # differences are drawn from this part of the tokens on; before, cells differ by how fast they begin
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 3)), (0, (8, 3)))  # of lines
_UNIGRAM = "unigram baseline"
_Curve = tuple[np.ndarray, np.ndarray]  # training tokens and held-out losses, in order
_Look = tuple[Any, Any]  # colour and dashes


def curves(measured: Measurements, subtitle: str = "", answer: str = "", metric: str = "") -> Drawing | None:
    """Held-out loss over training tokens: one colour per cell, seeds as thin lines, their mean as a thick line.

    Six cells at most: the baselines, the best, the worst, and others between. Of many runs means alone are drawn. Where
    the grid's figure has several lines, they are the hues here too, paler from value to value of its knob, with dashes
    of their own. Horizontal lines show what counting reaches, or where that is not kept the bigram baseline: a model
    above it has not left the plateau. Of three cells or more a second panel has the means minus that of the baseline,
    since they lie close. The right edge names the cells in the order of their final losses.

    Args:
        measured: Their grid's question is the title; cells without the metric, or whose seeds share no amount
            of tokens, are left out.
        subtitle: A line at the bottom.
        answer: The title instead of the question, which is then above it.
        metric: One of ``HELDOUT``, or a score of translations that were scored at each point; by default the first of
            ``HELDOUT`` among the grid's metrics.

    Returns:
        None if no finished run has a curve, or the grid asks for no loss on held-out text.
    """
    metric = metric or heldout_metric(measured.grid)
    found = ((cell, _runs(cell, measured, metric)) for cell in by_pretraining(measured.cells))
    every = [(cell, seeds) for cell, seeds in found if seeds and len(_mean_curve(seeds)[0])]
    if not every:
        return None
    baselines = [place for place, (cell, _) in enumerate(every) if _is_baseline(cell, measured)]
    chosen = few([float(_mean_curve(seeds)[1][-1]) for _, seeds in every], baselines)
    drawn = [every[place] for place in chosen]
    cells, seeds = [cell for cell, _ in drawn], [runs for _, runs in drawn]
    paths = paths_of(cells)
    texts = [[value_text(path, value) for path, value in cell.values.items()] for cell in cells]
    names = [", ".join(values) or "one pretraining for all" for values in texts]
    left_out = f" ({len(drawn)} of {len(every)} cells: baselines, best, worst, some between)"
    heading = ", ".join(map(axis_text, paths)) + left_out * (len(drawn) < len(every))
    looks = _looks(cells, names, measured)
    means = [_mean_curve(runs) for runs in seeds]
    with mpl.rc_context(STYLE):
        figure = blank(4.8)
        aside = _to_baseline(cells, means, measured, metric)
        panels = figure.subplots(1, 1 + bool(aside), squeeze=False)[0]
        _losses(panels[0], seeds, looks, _levels(measured, cells, metric))
        panels[0].set_ylabel(_label(metric, any(cell.system.format.kind == _PAIRS for cell in cells)))
        if aside:
            own = [names[place] for place, cell in enumerate(cells) if _is_baseline(cell, measured)]
            _differences(panels[1], aside, looks, names, own[0] if len(own) == 1 else "", unit(metric))
        named = (aside or dict(enumerate(means))).items()
        ends = [(float(x[-1]), float(y[-1]), looks[place][0], names[place]) for place, (x, y) in named]
        name_ends(panels[-1], ends, heading)
        titles(figure, measured.grid.question, subtitle, answer)
    return figure


def _is_baseline(cell: Cell, measured: Measurements) -> bool:
    return bool(measured.grid.baseline) and agrees(as_printed(cell), measured.grid.baseline)


def _levels(measured: Measurements, cells: Sequence[Cell], metric: str) -> dict[str, float]:
    """Name -> loss of simple methods on which all runs agree. What counting reaches replaces the bigram baseline."""
    levels = {f"{name} baseline": value for name, value in reference_losses(measured, cells, metric).items()}
    bars = [measured.bars(cell).get(metric) for cell in cells]
    if None not in bars and len({bar.level for bar in bars if bar}) == 1:
        levels.pop(BIGRAM, None)
        levels |= {in_plain_words(bar.floor): bar.level for bar in bars[:1] if bar}
    return levels


def _looks(cells: Sequence[Cell], names: Sequence[str], measured: Measurements) -> list[_Look]:
    """A colour and dashes per cell: of the lines of the grid's figure where it has several, else hues alone."""
    if found := looks_of_lines(cells, measured):
        return found
    paths = paths_of(cells)
    hues = colours([cell.values.get(paths[0]) for cell in cells] if len(paths) == 1 else names)
    return [(hue, "-") for hue in hues]


def looks_of_lines(cells: Sequence[Cell], measured: Measurements) -> list[_Look]:
    """A colour and dashes per cell: those of the lines of the grid's figure, paler for each value of its knob but one.

    The last value has the colour of the line itself. Nothing where the figure has one line or too many.
    """
    axis = measured.grid.figure.x if measured.grid.figure else ""
    steps = list(dict.fromkeys(str(cell.values[axis]) for cell in cells if axis in cell.values))
    rests = [{path: value for path, value in cell.values.items() if path != axis} for cell in (*measured.cells, *cells)]
    kinds = {cell_text(rest): next(iter(rest.values()), None) for rest in rests}
    if len(steps) > 1 and 1 < len(kinds) <= MOST_SERIES:
        of, last = dict(zip(kinds, SERIES, strict=False)), len(steps) - 1
        ranks = [steps.index(str(cell.values[axis])) if axis in cell.values else last for cell in cells]
        own = [cell_text(rest) for rest in rests[len(measured.cells) :]]
        return [(paler(of[kind], _PALEST * (last - rank) / last), _DASHES[list(of).index(kind)])
                for kind, rank in zip(own, ranks, strict=True)]  # fmt: skip
    return []


def _losses(axes: Axes, seeds: Sequence[Sequence[_Curve]], looks: Sequence[_Look], levels: Mapping[str, float]) -> None:
    with_seeds = sum(map(len, seeds)) <= _MOST_LINES
    for runs, (colour, dashes) in zip(seeds, looks, strict=True):
        for tokens, losses in runs if with_seeds else ():
            axes.plot(tokens, losses, "-", color=colour, lw=0.7, alpha=0.45)
        axes.plot(*_mean_curve(runs), ls=dashes, color=colour, lw=2.2, zorder=4)
    axes.set_xscale("log")
    _limits(axes, [curve for runs in seeds for curve in (runs if with_seeds else [_mean_curve(runs)])], levels)
    for name, value in levels.items():
        if axes.get_ylim()[0] <= value <= axes.get_ylim()[1]:
            draw_level(axes, name, value, is_left=name != _UNIGRAM)
    _name_tokens(axes)


def _to_baseline(
    cells: Sequence[Cell], means: Sequence[_Curve], measured: Measurements, metric: str
) -> dict[int, _Curve]:
    """Place of a cell -> its mean curve minus that of its baseline, late in training; empty where few are compared.

    Losses on different texts have no difference, and names are next to the curves of all cells.
    """
    if not one_text(cells, metric):
        return {}
    found: dict[int, _Curve] = {}
    pattern = measured.grid.baseline  # of a cell that represents several, which have no baseline in common
    general = next((cell for cell in cells if pattern and agrees(as_printed(cell), pattern)), None)
    for place, (cell, (tokens, losses)) in enumerate(zip(cells, means, strict=True)):
        baseline = baseline_of(measured.grid, cells, cell) or general
        x, y = means[cells.index(baseline)] if baseline else (tokens, losses)
        kept = (tokens >= max(x[0], x[-1] / _LATE)) & (tokens <= x[-1])
        if baseline and kept.any():
            found[place] = tokens[kept], losses[kept] - np.interp(np.log(tokens[kept]), np.log(x), y)
    return found if len(found) >= _FEWEST_APART else {}


def _differences(
    axes: Axes, curves: Mapping[int, _Curve], looks: Sequence[_Look], names: Sequence[str], baseline: str, of_what: str
) -> None:
    """The panel of differences to the baseline; one that would rule the axis is an arrow at its edge."""
    places = list(curves)
    out = [places[n] for n in off_axis([float(curves[place][1][-1]) for place in places])]
    for place, (tokens, losses) in curves.items():
        if place not in out:
            axes.plot(tokens, losses, ls=looks[place][1], color=looks[place][0], lw=2.2, zorder=4)
    axes.set_xscale("log")
    low, high = min(float(x[0]) for x, _ in curves.values()), max(float(x[-1]) for x, _ in curves.values())
    axes.set_xlim(low / 1.06, high * 1.04)
    _ticks(axes, low, high)
    of = f"\n{shown(baseline, 36)}" if baseline else ""
    axes.set_ylabel(f"minus that of the baseline ({of_what}){of}")
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set_ylim(axes.get_ylim())
    for place in out:
        x, y = (float(part[-1]) for part in curves[place])
        mark_off_axis(axes, x, y, looks[place][0], names[place])
    _name_tokens(axes)


def _name_tokens(axes: Axes) -> None:
    axes.set_xlabel("training tokens (logarithmic)")


def _label(metric: str, is_of_pairs: bool) -> str:
    """What is drawn. Models of pairs are evaluated on running text, which others read in training too."""
    if metric in TRANSLATED:
        return f"{metric.removeprefix('heldout.')} of held-out translations ({unit(metric)})\nhigher is better"
    what = metric.removeprefix("heldout.").removesuffix("loss").removesuffix("_")
    where = "on running text " * is_of_pairs
    return f"held-out loss {f'of {what} tokens ' if what else ''}{where}(nats)\nlower is better"


def _runs(cell: Cell, measured: Measurements, metric: str) -> list[_Curve]:
    seeds = []
    for record in measured.finished(cell).values():
        tokens, losses = (np.asarray(record.curve.get(name, ()), dtype=float) for name in ("tokens", metric))
        kept = tokens > 0 if len(tokens) == len(losses) else np.zeros(0, dtype=bool)
        if kept.sum() > 1:
            seeds.append((tokens[kept], losses[kept]))
    return seeds


def _mean_curve(seeds: Sequence[_Curve]) -> _Curve:
    """The mean over seeds where all have values, interpolated in the logarithm of the tokens."""
    low, high = max(tokens[0] for tokens, _ in seeds), min(tokens[-1] for tokens, _ in seeds)
    grid = seeds[0][0][(seeds[0][0] >= low) & (seeds[0][0] <= high)]
    return grid, np.mean([np.interp(np.log(grid), np.log(tokens), losses) for tokens, losses in seeds], axis=0)


def _limits(axes: Axes, drawn: Sequence[_Curve], levels: Mapping[str, float]) -> None:
    """Shows the curves from their first point below the unigram baseline; cells do not differ above it."""
    highest = max(float(losses.max()) for _, losses in drawn)
    bottom = min([float(losses.min()) for _, losses in drawn] + list(levels.values()))
    lowest = min(float(losses.min()) for _, losses in drawn)
    top = min(highest, max(lowest, levels.get(_UNIGRAM, highest)))
    if min(float(losses[-1]) for _, losses in drawn) >= top:
        top = highest  # no curve ends below that baseline: show all
    room = (top - bottom) or 1.0
    axes.set_ylim(bottom - 0.06 * room, top + 0.1 * room)
    low = min((float(x[y <= top + 0.1 * room].min()) for x, y in drawn if (y <= top + 0.1 * room).any()), default=1.0)
    high = max(float(tokens[-1]) for tokens, _ in drawn)
    axes.set_xlim(low / 1.25, high * 1.04)
    _ticks(axes, low, high)


def _ticks(axes: Axes, low: float, high: float) -> None:
    subs = (1.0,) if high > 300 * low else (1.0, 3.0) if high > 20 * low else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))


def name_ends(axes: Axes, ends: Sequence[tuple[float, float, Any, str]], heading: str) -> None:
    """Names the visible curves right of the axes next to their ends, moved apart so that they do not overlap."""
    bottom, top = axes.get_ylim()
    order = sorted((end for end in ends if bottom <= end[1] <= top), key=lambda end: end[1])
    if not order:
        return
    gap = min(0.058, 0.9 / len(order))
    heights = spread([(end[1] - bottom) / (top - bottom) for end in order], gap)
    beside: dict[str, Any] = {"textcoords": "axes fraction", "va": "center", "ha": "left", "fontsize": SMALL}
    for (x, y, colour, name), height in zip(order, heights, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "lw": 0.8, "shrinkA": 1, "shrinkB": 1, "relpos": (0.0, 0.5)}
        look = {"color": legible(colour), "fontweight": "bold", "arrowprops": leader, **beside}
        axes.annotate(shown(name, 40), (x, y), xytext=(1.035, height), **look)
    if heading:
        look = {**beside, "va": "bottom", "xycoords": "axes fraction", "color": legible(FAINT)}
        axes.annotate(textwrap.fill(shown(heading, 90), 30), (1, 0), xytext=(1.035, heights[-1] + 0.6 * gap), **look)
