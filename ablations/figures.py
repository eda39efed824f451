"""The figures of a grid, drawn from records: a metric over a knob, and held-out loss over tokens.

Figures are made without pyplot, so nothing is global: each function returns a :class:`matplotlib.figure.Figure`, or
None where there is nothing to draw. :func:`svg` gives the same text for the same records.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ablations.canvas import (
    FAINT,
    PAPER,
    STYLE,
    blank,
    colours,
    draw_level,
    is_number,
    save,
    shown,
    spread,
    svg,
    titles,
)
from ablations.frames import Lookup, as_printed, done, metric_by_seed, reference_losses
from ablations.literature import Published, chosen, same
from ablations.markup import cell_text, is_share, path_text, quantity, value_text
from ablations.schema import Cell, Grid, Record
from ablations.statistics import mean_interval

__all__ = ["curves", "knob", "save", "svg"]

_Curve = tuple[np.ndarray, np.ndarray]  # training tokens and held-out losses, in order


class _KnobAxis:
    """Where the values of a knob stand on the x axis: as numbers (linear or logarithmic), or evenly spaced as names."""

    def __init__(self, path: str, values: Sequence[Any]) -> None:
        self.path = path
        self.values = [value for i, value in enumerate(values) if not any(same(value, v) for v in values[:i])]
        self.is_numeric = len(self.values) > 1 and all(map(is_number, self.values))
        if self.is_numeric:
            self.values = sorted(self.values)
        self.is_log = self.is_numeric and self._is_geometric()

    def _is_geometric(self) -> bool:
        """Steps are more even as ratios than as differences, over a factor of eight or more."""
        low, high = self.values[0], self.values[-1]
        if is_share(self.path) or low <= 0 or high < 8 * low or len(self.values) < 3:
            return False
        unevenness = [np.std(gaps) / np.mean(gaps) for gaps in (np.diff(self.values), np.diff(np.log(self.values)))]
        return bool(unevenness[1] < unevenness[0])

    def at(self, value: Any) -> float | None:
        """The position of a value; None where it is not on the axis."""
        if self.is_numeric:
            return float(value) if is_number(value) else None
        return next((float(i) for i, known in enumerate(self.values) if same(known, value)), None)

    def dress(self, axes: Axes, *, is_named: bool = True, most: int = 12) -> None:
        """Ticks at the values themselves, at most so many, and the knob's name."""
        if self.is_log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        places = self.values if self.is_numeric else list(range(len(self.values)))
        kept = places[:: max(1, -(-len(places) // most))]
        texts = [shown(value_text(self.path, self.values[places.index(place)]), 22) for place in kept]
        axes.set_xticks(kept, texts)
        if not self.is_numeric:
            axes.set_xlim(-0.5, len(self.values) - 0.5)
            if max(map(len, texts), default=0) * len(texts) > 80:
                axes.set_xticks(kept, texts, rotation=20, ha="right", rotation_mode="anchor")
        if is_named:
            axes.set_xlabel(shown(path_text(self.path)))


def knob(grid: Grid, cells: Sequence[Cell], records: Lookup, subtitle: str = "") -> Figure | None:
    """The grid's metric over its knob: every seed a point, means joined, the 95 % interval shaded.

    Further axes become one line each. Below, on axes of their own, the published values of the same knob. Cells with
    unfinished runs say so. ``grid.figure`` names the knob and the metric.

    Returns:
        None where no run has finished.
    """
    if grid.figure is None:
        return None
    path, metric = grid.figure.x, grid.figure.y
    plotted = [cell for cell in cells if path in cell.values]
    if not any(metric_by_seed(cell, records, metric) for cell in plotted):
        return None
    axis = _KnobAxis(path, [cell.values[path] for cell in plotted])
    published = _published_curves(grid, axis)
    with mpl.rc_context(STYLE):
        figure = blank(4.4 + (1.9 if published else 0))
        heights = [2.6, 1] if published else [1]
        rows = figure.add_gridspec(len(heights), 1, height_ratios=heights, hspace=0.08)
        axes = figure.add_subplot(rows[0])
        _measured(axes, grid, plotted, records, axis)
        axis.dress(axes)
        if published:
            below = rows[1].subgridspec(1, len(published), wspace=0.08)
            for column, curve in enumerate(published):
                small = figure.add_subplot(below[column])
                _printed(small, axis, curve, is_first=column == 0)
                small.set_xlim(axes.get_xlim())
        titles(figure, grid.question, subtitle)
    return figure


def _series(cells: Sequence[Cell], path: str) -> list[tuple[dict[str, Any], list[Cell]]]:
    """Cells grouped by everything but one path, in the order of the plan."""
    groups: list[tuple[dict[str, Any], list[Cell]]] = []
    for cell in cells:
        rest = {name: value for name, value in cell.values.items() if name != path}
        members = next((found for known, found in groups if known == rest), None)
        if members is None:
            groups.append((rest, [cell]))
        else:
            members.append(cell)
    return groups


def _measured(axes: Axes, grid: Grid, cells: Sequence[Cell], records: Lookup, axis: _KnobAxis) -> None:
    series = _series(cells, axis.path)
    single = [next(iter(rest.values())) for rest, _ in series if len(rest) == 1]
    keys = single if len(single) == len(series) else [cell_text(rest) for rest, _ in series]
    for i, ((rest, members), colour) in enumerate(zip(series, colours(keys), strict=True)):
        points = _points(members, grid.figure.y, records, axis)
        if not axis.is_numeric:  # side by side, not on top of each other
            points = [(position + 0.14 * (i - (len(series) - 1) / 2), values) for position, values in points]
        if points:
            _line(axes, points, axis, colour=colour, label=shown(cell_text(rest)))
    _notes_above(axes, grid, cells, records, axis)
    named = {metric.name: metric for metric in grid.metrics}.get(grid.figure.y)
    label = (named.label or named.name) if named else grid.figure.y
    axes.set_ylabel(shown(label) + (f"\n{named.better} is better" if named else ""))
    _plateau(axes, grid.figure.y, [record for cell in cells for record in done(cell, records).values()])
    axes.yaxis.set_major_locator(MaxNLocator(6))
    if len(series) > 1:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.05), ncols=min(3, len(series)), borderaxespad=0.2, fontsize=9
        )


def _plateau(axes: Axes, metric: str, records: Sequence[Record]) -> None:
    """The bigram baseline in a figure of held-out loss, where it lies near enough to the data to be read."""
    (bottom, top), level = axes.get_ylim(), reference_losses(records).get("bigram")
    if metric == "heldout.loss" and level is not None and bottom < level < top + 0.25 * (top - bottom):
        axes.set_ylim(bottom, max(top, level + 0.06 * (top - bottom)))
        draw_level(axes, "bigram", level)


_Points = list[tuple[float, dict[int, float]]]  # position on the knob's axis, the metric by seed


def _points(cells: Sequence[Cell], metric: str, records: Lookup, axis: _KnobAxis) -> _Points:
    found = [(axis.at(cell.values[axis.path]), metric_by_seed(cell, records, metric)) for cell in cells]
    kept = [(position, values) for position, values in found if position is not None and values]
    return sorted(kept, key=lambda point: point[0])


def _line(axes: Axes, points: _Points, axis: _KnobAxis, *, colour: Any, label: str) -> None:
    """Over numbers: one thin line a seed, which shows what pairing sees, and the mean in its band. Over names: bars."""
    intervals = [mean_interval(list(values.values())) for _, values in points]
    x, means, half = [p for p, _ in points], [i.mean for i in intervals], [i.half or 0.0 for i in intervals]
    for seed in sorted({seed for _, values in points for seed in values}):
        line = [(position, values[seed]) for position, values in points if seed in values]
        at, seen = [p for p, _ in line], [value for _, value in line]
        if axis.is_numeric:
            axes.plot(at, seen, "-", lw=0.8, color=colour, alpha=0.35, zorder=3)
        axes.plot(
            at if axis.is_numeric else np.subtract(at, 0.04), seen, "o", ms=4, color=colour, alpha=0.6, mew=0, zorder=5
        )
    if axis.is_numeric:
        axes.plot(x, means, "-", color=colour, lw=2.4, label=label, zorder=4)
        axes.fill_between(x, np.subtract(means, half), np.add(means, half), color=colour, alpha=0.13, lw=0)
    else:
        bars = {"fmt": "D", "ms": 5, "capsize": 3, "lw": 1.5, "color": colour, "label": label, "zorder": 4}
        axes.errorbar(np.add(x, 0.02), means, half, **bars)


def _notes_above(axes: Axes, grid: Grid, cells: Sequence[Cell], records: Lookup, axis: _KnobAxis) -> None:
    """Above each value of the knob: whether it is the baseline, and how many of its runs finished if not all did."""
    for value in axis.values:
        members = [cell for cell in cells if same(cell.values[axis.path], value)]
        is_baseline = axis.path in grid.baseline and any(
            same(grid.baseline[axis.path], as_printed(cell)[axis.path]) for cell in members
        )
        finished, planned = sum(len(done(cell, records)) for cell in members), sum(len(cell.runs) for cell in members)
        notes = ["baseline"] * is_baseline + [f"{finished} of {planned} runs"] * (finished < planned)
        position = axis.at(value)
        if position is not None and notes:
            at = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom", "fontsize": 8, "color": FAINT}
            axes.annotate("\n".join(notes), (position, 1.0), **at)
        if position is not None and is_baseline and axis.is_numeric:
            axes.axvline(position, color=FAINT, lw=1, ls=(0, (4, 3)), zorder=1)


def _published_curves(grid: Grid, axis: _KnobAxis) -> list[list[tuple[float, Published]]]:
    """One curve a published metric: every printed value on the axis, whether or not the grid has its cell."""
    curves: dict[str, list[tuple[float, Published]]] = {}
    for source in grid.published:
        column = next((name for name, path in source.match.items() if path == axis.path), None)
        for row in chosen(source) if column else ():
            others = all(
                same(grid.baseline[path], row.knobs[name])
                for name, path in source.match.items()
                if path != axis.path and path in grid.baseline
            )
            text = row.knobs[column]
            position = axis.at(_number(text) if axis.is_numeric else text)
            if others and position is not None and (not source.metrics or row.metric in source.metrics):
                curves.setdefault(row.metric, []).append((position, row))
    wanted = [metric for source in grid.published for metric in source.metrics] or list(curves)
    return [sorted(curves[name], key=lambda point: point[0]) for name in wanted[:4] if name in curves]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _printed(axes: Axes, axis: _KnobAxis, curve: Sequence[tuple[float, Published]], *, is_first: bool) -> None:
    x, rows = [position for position, _ in curve], [row for _, row in curve]
    axes.plot(x, [row.number for row in rows], "-D" if axis.is_numeric else "D", ms=3.5, lw=1.2, color=PAPER)
    axis.dress(axes, is_named=False, most=4)
    axes.margins(y=0.14)
    unit = f" ({rows[0].unit})" if rows[0].unit else ""
    axes.set_title(shown(f"{rows[0].metric} {rows[0].split}{unit}", 24), fontsize=9, color=PAPER)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(labelsize=8)
    if is_first:
        axes.set_ylabel(f"published:\n{shown(rows[0].paper, 18)}", color=PAPER)


def curves(grid: Grid, cells: Sequence[Cell], records: Lookup, subtitle: str = "") -> Figure | None:
    """Held-out loss over training tokens: one colour a cell, seeds as thin lines, their mean thick.

    The losses of the unigram and the neighbour-count (bigram) baselines are horizontal lines: a model above the latter
    has not left the plateau. Cells are named at the right edge in the order of their final losses.

    Returns:
        None where no finished run has a curve.
    """
    drawn = [(cell, found) for cell in cells if (found := _runs(cell, records))]
    if not drawn:
        return None
    paths = list(dict.fromkeys(path for cell, _ in drawn for path in cell.values))
    names = [", ".join(value_text(path, value) for path, value in cell.values.items()) for cell, _ in drawn]
    hues = colours([cell.values.get(paths[0]) for cell, _ in drawn] if len(paths) == 1 else names)
    with mpl.rc_context(STYLE):
        figure = blank(4.8)
        axes = figure.add_subplot()
        ends = []
        for i, ((_, found), colour, name) in enumerate(zip(drawn, hues, names, strict=True)):
            for tokens, losses in found:
                axes.plot(tokens, losses, "-", color=colour, lw=0.7, alpha=0.45)
            tokens, losses = _mean_curve(found)
            is_repeated = colour in hues[:i]  # more cells than hues: the second round is dashed
            axes.plot(tokens, losses, "--" if is_repeated else "-", color=colour, lw=2.2, zorder=4)
            ends.append((float(tokens[-1]), float(losses[-1]), colour, name))
        axes.set_xscale("log")
        levels = reference_losses(record for cell, _ in drawn for record in done(cell, records).values())
        _limits(axes, [curve for _, found in drawn for curve in found], levels)
        for name, value in levels.items():
            if axes.get_ylim()[0] <= value <= axes.get_ylim()[1]:
                draw_level(axes, name, value)
        _name_ends(axes, ends, ", ".join(map(path_text, paths)))
        axes.set_xlabel("training tokens (logarithmic)")
        axes.set_ylabel("held-out loss (nats)\nlower is better")
        titles(figure, grid.question, subtitle)
    return figure


def _runs(cell: Cell, records: Lookup) -> list[_Curve]:
    found = []
    for _, record in sorted(done(cell, records).items()):
        tokens, losses = (np.asarray(record.curve.get(name, ()), dtype=float) for name in ("tokens", "heldout.loss"))
        kept = tokens > 0 if len(tokens) == len(losses) else np.zeros(0, dtype=bool)
        if kept.sum() > 1:
            found.append((tokens[kept], losses[kept]))
    return found


def _mean_curve(found: Sequence[_Curve]) -> _Curve:
    """The mean over seeds where all have values, read off between points in the logarithm of the tokens."""
    low, high = max(tokens[0] for tokens, _ in found), min(tokens[-1] for tokens, _ in found)
    grid = found[0][0][(found[0][0] >= low) & (found[0][0] <= high)]
    values = [np.interp(np.log(grid), np.log(tokens), losses) for tokens, losses in found]
    return grid, np.mean(values, axis=0)


def _limits(axes: Axes, found: Sequence[_Curve], levels: Mapping[str, float]) -> None:
    """From the first point below the unigram baseline (before it there is nothing to compare) to the last."""
    highest = max(float(losses.max()) for _, losses in found)
    bottom = min([float(losses.min()) for _, losses in found] + list(levels.values()))
    top = min(highest, levels.get("unigram", highest))
    room = (top - bottom) or 1.0
    axes.set_ylim(bottom - 0.06 * room, top + 0.1 * room)
    low = min((float(x[y <= top + 0.1 * room].min()) for x, y in found if (y <= top + 0.1 * room).any()), default=1.0)
    high = max(float(tokens[-1]) for tokens, _ in found)
    axes.set_xlim(low / 1.25, high * 1.04)
    subs = (1.0,) if high > 300 * low else (1.0, 3.0) if high > 20 * low else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))


def _name_ends(axes: Axes, ends: Sequence[tuple[float, float, Any, str]], heading: str) -> None:
    """Names right of the axes beside the ends of their curves, moved apart where they would meet."""
    bottom, top = axes.get_ylim()
    order = sorted(ends, key=lambda end: end[1])
    gap = min(0.052, 0.9 / len(order))
    heights = spread([(end[1] - bottom) / (top - bottom) for end in order], gap)
    beside = {"textcoords": "axes fraction", "va": "center", "ha": "left", "fontsize": min(9.0, 170 * gap)}
    for (x, y, colour, name), height in zip(order, heights, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "lw": 0.8, "shrinkA": 1, "shrinkB": 1}
        axes.annotate(
            shown(name, 30),
            (x, y),
            xytext=(1.035, height),
            color=colour,
            fontweight="bold",
            arrowprops=leader,
            **beside,
        )
    if heading:
        axes.annotate(
            shown(heading, 30),
            (1, 0),
            xytext=(1.035, heights[-1] + 1.1 * gap),
            xycoords="axes fraction",
            color=FAINT,
            **beside,
        )
