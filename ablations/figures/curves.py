"""Held-out loss over training tokens, one colour per cell."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ablations.core.formatting import path_text, quantity, value_text
from ablations.figures.style import FAINT, STYLE, blank, colours, draw_level, shown, spread, titles
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import heldout_metric, reference_losses
from ablations.schema.cell import Cell

_MOST_LINES = 80  # seeds of all cells; more hide the means
_Curve = tuple[np.ndarray, np.ndarray]  # training tokens and held-out losses, in order


def curves(measured: Measurements, subtitle: str = "", metric: str = "") -> Figure | None:
    """Held-out loss over training tokens: one colour per cell, seeds as thin lines, their mean as a thick line.

    Of many runs means alone are drawn.

    Horizontal lines show the losses of the unigram and the bigram baseline: a model above the
    latter has not left the plateau. The right edge names the cells in the order of their final losses.

    Args:
        measured: Their grid's question is the title; cells without the metric, or whose seeds share no amount
            of tokens, are left out.
        subtitle: A line below the title.
        metric: One of ``HELDOUT``; by default the first among the grid's metrics.

    Returns:
        None if no finished run has a curve, or the grid asks for no loss on held-out text.
    """
    metric = metric or heldout_metric(measured.grid)
    found = ((cell, _runs(cell, measured, metric)) for cell in _distinct(measured.cells))
    drawn = [(cell, seeds) for cell, seeds in found if seeds and len(_mean_curve(seeds)[0])]
    if not drawn:
        return None
    paths = list(dict.fromkeys(path for cell, _ in drawn for path in cell.values))
    named = [[value_text(path, value) for path, value in cell.values.items()] for cell, _ in drawn]
    names = [", ".join(values) or "one pretraining for all" for values in named]
    hues = colours([cell.values.get(paths[0]) for cell, _ in drawn] if len(paths) == 1 else names)
    with mpl.rc_context(STYLE):
        figure = blank(4.8)
        axes = figure.add_subplot()
        ends, with_seeds = [], sum(len(seeds) for _, seeds in drawn) <= _MOST_LINES
        for i, ((_, seeds), colour, name) in enumerate(zip(drawn, hues, names, strict=True)):
            for tokens, losses in seeds if with_seeds else ():
                axes.plot(tokens, losses, "-", color=colour, lw=0.7, alpha=0.45)
            tokens, losses = _mean_curve(seeds)
            is_repeated = colour in hues[:i]  # more cells than hues: repeated hues are dashed
            axes.plot(tokens, losses, "--" if is_repeated else "-", color=colour, lw=2.2, zorder=4)
            ends.append((float(tokens[-1]), float(losses[-1]), colour, name))
        axes.set_xscale("log")
        levels = reference_losses(measured, [cell for cell, _ in drawn], metric)
        _limits(axes, [c for _, seeds in drawn for c in (seeds if with_seeds else [_mean_curve(seeds)])], levels)
        for name, value in levels.items():
            if axes.get_ylim()[0] <= value <= axes.get_ylim()[1]:
                draw_level(axes, f"{name} baseline", value, is_left=name == "bigram")
        name_ends(axes, ends, ", ".join(map(path_text, paths)))
        axes.set_xlabel("training tokens (logarithmic)")
        axes.set_ylabel(_label(metric))
        titles(figure, measured.grid.question, subtitle)
    return figure


def _label(metric: str) -> str:
    what = metric.removeprefix("heldout.").removesuffix("loss").removesuffix("_")
    return f"held-out loss {f'of {what} tokens ' if what else ''}(nats)\nlower is better"


def _distinct(cells: Sequence[Cell]) -> list[Cell]:
    """Cells by pretraining: cells that share theirs become one, with the values that they agree on."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(run.id for run in cell.runs), []).append(cell)
    distinct = []
    for first, *others in groups.values():
        agreed = {path: v for path, v in first.values.items() if all(o.values.get(path) == v for o in others)}
        distinct.append(first.model_copy(update={"values": agreed}) if others else first)
    return distinct


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
    values = [np.interp(np.log(grid), np.log(tokens), losses) for tokens, losses in seeds]
    return grid, np.mean(values, axis=0)


def _limits(axes: Axes, drawn: Sequence[_Curve], levels: Mapping[str, float]) -> None:
    """Shows the curves from their first point below the unigram baseline; cells do not differ above it."""
    highest = max(float(losses.max()) for _, losses in drawn)
    bottom = min([float(losses.min()) for _, losses in drawn] + list(levels.values()))
    lowest = min(float(losses.min()) for _, losses in drawn)
    top = min(highest, max(lowest, levels.get("unigram", highest)))
    if min(float(losses[-1]) for _, losses in drawn) >= top:
        top = highest  # no curve ends below that baseline: show all
    room = (top - bottom) or 1.0
    axes.set_ylim(bottom - 0.06 * room, top + 0.1 * room)
    low = min((float(x[y <= top + 0.1 * room].min()) for x, y in drawn if (y <= top + 0.1 * room).any()), default=1.0)
    high = max(float(tokens[-1]) for tokens, _ in drawn)
    axes.set_xlim(low / 1.25, high * 1.04)
    subs = (1.0,) if high > 300 * low else (1.0, 3.0) if high > 20 * low else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))


def name_ends(axes: Axes, ends: Sequence[tuple[float, float, Any, str]], heading: str) -> None:
    """Names the visible curves right of the axes beside their ends, moved apart so that they do not overlap."""
    bottom, top = axes.get_ylim()
    order = sorted((end for end in ends if bottom <= end[1] <= top), key=lambda end: end[1])
    if not order:
        return
    gap = min(0.052, 0.9 / len(order))
    heights = spread([(end[1] - bottom) / (top - bottom) for end in order], gap)
    beside: dict[str, Any] = {
        "textcoords": "axes fraction",
        "va": "center",
        "ha": "left",
        "fontsize": min(9.0, 170 * gap),
    }
    for (x, y, colour, name), height in zip(order, heights, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "lw": 0.8, "shrinkA": 1, "shrinkB": 1, "relpos": (0.0, 0.5)}
        axes.annotate(
            shown(name, 36),
            (x, y),
            xytext=(1.035, height),
            color=colour,
            fontweight="bold",
            arrowprops=leader,
            **beside,
        )
    if heading:
        axes.annotate(
            textwrap.fill(shown(heading, 60), 30),
            (1, 0),
            xytext=(1.035, heights[-1] + 0.6 * gap),
            xycoords="axes fraction",
            color=FAINT,
            **{**beside, "va": "bottom"},
        )
