"""The metrics of a grid over its knob, with the published values of the same knob below."""

import math
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from ablations.claims.contrasts import measuring_runs
from ablations.core.formatting import axis_text, cell_text, is_share, value_text
from ablations.core.statistics import mean_interval
from ablations.figures.style import (
    FAINT,
    PAPER,
    SMALL,
    STYLE,
    Drawing,
    Named,
    blank,
    colours,
    few,
    is_number,
    mark_off_axis,
    name_beside,
    off_axis,
    shown,
    titles,
)
from ablations.literature.published_values import Published, chosen, same
from ablations.measurements import trunks
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import BEST, PAIRS, SAME, in_plain_words, reference, references
from ablations.measurements.selection import as_printed
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid

Placed = Sequence[tuple[float | None, Cell]]  # position on the knob's axis, if it has one there, and cell

_DASHES = (0, (5, 3))
_HALF = 0.4  # of the way from a name on the axis to the next
_NARROW = 12  # letters next to a panel


def draw(axes: Axes, measured: Measurements, placed: Placed, metric: str, is_numeric: bool) -> list[Named]:
    """Draws the scores of simple methods near the data: of several the best one and the constant answer.

    A line goes through the panel where all cells have the same question. Sometimes the question changes with the knob,
    such as the number of labels to learn from. Then the best of the simple methods, or the one that has the same
    labels, is drawn at each value of the knob. Of a held-out loss it is the bar where one is kept, what counting
    reaches.

    Args:
        axes: The panel, with the data.
        is_numeric: Whether the knob's values are numbers, so that lines may lead from one to the next.

    Returns:
        The names of the lines, to be written next to the panel.
    """
    level, changing = _bars(measured, placed, metric) or _methods(measured, placed, metric)
    within, names = _through(axes, level, {method: [*at.values()] for method, at in changing.items()}, metric)
    for method in (method for method in changing if method in within):
        at = np.array(list(changing[method].items()))
        if is_numeric:
            axes.plot(*at.T, color=FAINT, lw=1, ls=_DASHES, zorder=2)
        else:
            axes.hlines(at[:, 1], at[:, 0] - _HALF, at[:, 0] + _HALF, color=FAINT, lw=1, ls=_DASHES, zorder=2)
    return names


_Levels = tuple[dict[str, float], dict[str, dict[float, float]]]  # through the panel, and by position


def _bars(measured: Measurements, placed: Placed, metric: str) -> _Levels | None:
    """What counting reaches; None unless a bar is kept for every cell with runs."""
    found = {position: measured.bars(cell).get(metric) for position, cell in placed
             if position is not None and measured.of(cell, metric)}  # fmt: skip
    kept = {position: bar for position, bar in found.items() if bar is not None}
    if not kept or len(kept) < len(found):
        return None
    heights = {position: bar.level for position, bar in sorted(kept.items())}
    name = " or ".join(dict.fromkeys(in_plain_words(bar.floor) for bar in kept.values()))
    return ({name: heights.popitem()[1]}, {}) if len(set(heights.values())) == 1 else ({}, {name: heights})


def _methods(measured: Measurements, placed: Placed, metric: str) -> _Levels:
    """What other simple methods reach: the best of those that apply to all, the constant answer, what changes."""
    names, cells = references(metric), [cell for _, cell in placed]
    found = {method: reference(measured, cells, name) for method, name in names.items()}
    level = {method: known[0] for method, known in found.items() if known and known[0] == known[1]}
    changing = {
        method: heights
        for method in names
        if method not in level and (method == BEST or method.endswith(SAME))
        if (heights := _heights(measured, placed, names[method]))
    }
    for method in changing:
        level.pop(method.removesuffix(SAME), None)  # it learned from more labels than any model here
    constant = {method: value for method, value in level.items() if method == PAIRS["majority"]}
    others = {method: value for method, value in level.items() if method not in constant}
    if BEST in others or (len(others) > 1 and not metric.endswith("loss")):
        best = BEST if BEST in others else max(others, key=lambda method: others[method])
        others = {best: others[best]}
    return {**others, **constant}, changing


def _heights(measured: Measurements, placed: Placed, name: str) -> dict[float, float]:
    """The mean score at each position. It is empty if cells at one position have different questions."""
    heights = {}
    for position in sorted({position for position, _ in placed if position is not None}):
        runs = [run for at, cell in placed if at == position for run in measured.of(cell, name).items()]
        by_seed: dict[int, set[float]] = {}
        for seed, row in runs:
            by_seed.setdefault(seed, set()).add(round(row.value, 6))
        if any(len(values) > 1 for values in by_seed.values()):
            return {}
        if by_seed:
            heights[position] = float(np.mean([values.pop() for values in by_seed.values()]))
    return heights


def _through(
    axes: Axes, level: dict[str, float], changing: dict[str, list[float]], metric: str
) -> tuple[set[str], list[Named]]:
    """Draws the lines that go through the panel; returns what is near enough to the data to be drawn, and its names.

    Lines closer than a line of text share one name: no name lies over a point.
    """
    heights = {**{method: [value] for method, value in level.items()}, **changing}
    bottom, top = axes.get_ylim()
    reach = (0.6 if metric.endswith("loss") else 5.0) * (top - bottom)
    near = {method: at for method, at in heights.items() if bottom - reach < min(at) and max(at) < top + reach}
    if not near:
        return set(), []
    low, high = min(map(min, near.values())), max(map(max, near.values()))
    beside = 0.04 * (max(top, high) - min(bottom, low))
    axes.set_ylim(min(bottom, low - beside), max(top, high + beside))
    alike: list[list[tuple[float, str]]] = []
    for value, method in sorted((at[-1], method) for method, at in near.items()):
        if alike and value - alike[-1][0][0] < beside:
            alike[-1].append((value, method))
        else:
            alike.append([(value, method)])
    rank = list(heights).index
    for method in (method for method in level if method in near):
        axes.axhline(level[method], color=FAINT, lw=1, ls=_DASHES, zorder=2)
    return {*near}, [
        Named(
            sum(value for value, _ in group) / len(group),
            _together(sorted((method for _, method in group), key=rank)),
            FAINT,
        )
        for group in alike
    ]


def _together(methods: Sequence[str]) -> str:
    """A name for simple methods with nearly the same score, wrapped to a margin; the page's table has them all."""
    first = BEST if BEST in methods else methods[0]
    more = len(methods) - 1
    return textwrap.fill(first + (f" and {more} more" if more else ""), _NARROW)


_MOST = 12  # ticks below a whole figure
_SCALED = 3  # names that are numbers from which on they are to scale
_LETTER = 0.0125  # the width of a letter of a tick, as a share of the figure's
_LINE = 2.3  # of a line of turned names, in letters


class KnobAxis:
    """The values of a knob as numbers (linear or logarithmic), or as names, evenly spaced.

    Three names or more that are all numbers are numbers.
    """

    def __init__(self, path: str, values: Sequence[Any], listed: Sequence[Any] = (), *, linear: bool = False) -> None:
        """``listed`` are the values as the grid lists them: the order of names. Names that are numbers come first."""
        self.path = path
        self.values: list[Any] = [v for i, v in enumerate(values) if not any(same(v, before) for before in values[:i])]
        named = [n for value in self.values if isinstance(value, str) and (n := number(value)) is not None]
        if len(named) == len(self.values) >= _SCALED:
            self.values = named  # variants that are called by numbers, such as lengths
        self.is_numeric = len(self.values) > 1 and all(map(is_number, self.values))
        if self.is_numeric:
            self.values = sorted(self.values)
        else:
            places = {str(value): place for place, value in reversed(list(enumerate(listed)))}
            numbers = {str(value): number(str(value)) for value in self.values}
            rank = {name: math.inf if found is None else found for name, found in numbers.items()}
            self.values.sort(key=lambda value: (rank[str(value)], places.get(str(value), len(places))))
        self.is_log = self.is_numeric and not linear and self._is_geometric()

    def _is_geometric(self) -> bool:
        """Whether the steps are more even as ratios than as differences, over a factor of four or more."""
        low, high = self.values[0], self.values[-1]
        if is_share(self.path) or low <= 0 or high < 4 * low or len(self.values) < 3:
            return False
        unevenness = [np.std(gaps) / np.mean(gaps) for gaps in (np.diff(self.values), np.diff(np.log(self.values)))]
        return bool(unevenness[1] < unevenness[0])

    def at(self, value: Any) -> float | None:
        """The position of a value; None if it is not on the axis."""
        if self.is_numeric:
            return float(value) if is_number(value) else number(str(value))
        return next((float(i) for i, known in enumerate(self.values) if same(known, value)), None)

    def format(self, axes: Axes, *, panels: int, stands_for: Mapping[float, Any] = MappingProxyType({})) -> None:
        """Sets ticks at the values, as many as fit into one of so many panels side by side, and names the knob.

        A tick at a stand-in names the published value below its own: ``stands_for``, by position.
        """
        if self.is_log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        places = self.values if self.is_numeric else list(range(len(self.values)))
        kept = places[:: max(1, -(-len(places) * panels // _MOST))] if self.is_numeric else places
        texts = [shown(value_text(self.path, self.values[places.index(place)]), 34) for place in kept]
        has_unit = self.is_numeric and is_share(self.path)  # once below the axis, not at every tick
        texts = [text.removesuffix(" %") for text in texts] if has_unit else texts
        known = {place: shown(value_text(self.path, value), 18) for place, value in stands_for.items()}
        texts = [f"{text}\nfor {known[at]}" if at in known else text for at, text in zip(kept, texts, strict=True)]
        axes.set_xticks(kept, self._apart(kept, texts, panels) if self.is_numeric else texts)
        if not self.is_numeric:
            axes.set_xlim(-0.5, len(self.values) - 0.5)
            self._name(axes, texts, 68 // panels)
        axes.set_xlabel(shown(axis_text(self.path)) + " (%)" * has_unit)

    def _apart(self, places: Sequence[float], texts: Sequence[str], panels: int) -> list[str]:
        """The labels of numbers without those that would lie over the one before."""
        at = np.log(places) if self.is_log else np.asarray(places, dtype=float)
        span, last, kept = float(at[-1] - at[0]) or 1.0, -math.inf, []
        for place, text in zip(at, texts, strict=True):
            has_room = (place - last) / span > _LETTER * panels * (max(map(len, text.split("\n"))) + 1)
            last = place if has_room else last
            kept.append(text if has_room else "")
        return kept

    def _name(self, axes: Axes, texts: list[str], room: int) -> None:
        """Wraps tick labels that exceed their room in characters, or turns them."""
        broken = ["\n".join(text.split(" ")) for text in texts]
        widest = [max(map(len, text.split("\n"))) for text in broken]
        if max((len(line) for text in texts for line in text.split("\n")), default=0) * len(texts) <= room:
            return
        if max(widest) * len(texts) <= room and max(text.count("\n") for text in broken) < 3:
            axes.set_xticks(range(len(texts)), broken)
        else:
            turned = max(20, 5 * math.ceil(math.degrees(math.asin(min(1.0, _LINE * len(texts) / room))) / 5))
            axes.set_xticks(range(len(texts)), texts, rotation=turned, ha="right", rotation_mode="anchor")


def number(text: str) -> float | None:
    """The number that a text is; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


_ASIDE = 0.04  # of the points of single runs from their name, next to the bar of their mean
_LEGEND = 100  # letters next to each other in a legend
_MARGIN = 20  # letters next to a panel
_HEIGHT = 30  # letters along a panel
_ACROSS = 80  # letters of the title of a strip, over all columns
_MANY = 9  # names below a panel, from which on it is as wide as the figure
_IN_A_ROW = 2  # panels
_STRIPS, _MEAN = 4, "Avg"  # strips at most; where the first has the mean of the others, it alone is drawn
_IN_HOLE = 4  # strips that have room next to a last panel
_HIGH, _LOW, _ROOM = 2.9, 0.85, 1.4  # inches: a panel, a strip of published values, titles and a legend
_FEWEST = 3  # seeds of an interval; that of two is twelve times as wide as their distance
_MARKS = "DsovP^"  # of means over names, so that no series rests on its colour alone


def knob(measured: Measurements, subtitle: str = "", answer: str = "", *, brief: bool = False) -> Drawing | None:
    """The grid's metrics over its knob: seeds as points, means joined, 95 % intervals shaded.

    Each metric has a panel, with the scores of simple methods as horizontal lines. Each combination of the other axes
    is a line, six at most. Published values of the same knob are below, in strips over the same axis. Unfinished runs
    are noted above. A cell that would rule an axis is an arrow at its edge, with its value. ``grid.figure`` names the
    knob and the metrics.

    Args:
        measured: The measurements; their grid's question is the title.
        subtitle: A line at the bottom.
        answer: The title instead of the question, which is then above it.
        brief: For a slide: the first two metrics, without published values.

    Returns:
        None if no run has finished.
    """
    grid = measured.grid
    if grid.figure is None:
        return None
    path, metrics = grid.figure.x, grid.figure.metrics
    plotted = [
        cell for cell in measured.cells if path in cell.values and any(measured.of(cell, name) for name in metrics)
    ]
    metrics = [m for m in metrics if any(measured.of(cell, m) for cell in plotted)][: _IN_A_ROW if brief else None]
    if not metrics:
        return None
    axis = KnobAxis(path, [cell.values[path] for cell in plotted], grid.axes.get(path, ()), linear=grid.figure.linear)
    stands_for = {axis.at(cell.values[path]): cell.printed[path] for cell in plotted if _stands_in(cell, path)}
    known = {k: v for k, v in stands_for.items() if k is not None}
    published = [] if brief else _published_curves(grid, plotted, axis)
    columns = 1 if not axis.is_numeric and len(axis.values) > _MANY else min(len(metrics), _IN_A_ROW)
    rows, strips = -(-len(metrics) // columns), -(-len(published) // columns)
    has_hole = columns > 1 and len(metrics) % columns == 1  # next to the last panel
    in_hole = has_hole and 0 < len(published) <= _IN_HOLE
    strips = 0 if in_hole else strips
    with mpl.rc_context(STYLE):
        figure = blank(_HIGH * rows + _LOW * strips + _ROOM)
        parts = figure.add_gridspec(rows + strips, columns, height_ratios=[_HIGH] * rows + [_LOW] * strips)
        places = [parts[divmod(place, columns)] for place in range(len(metrics))]
        if has_hole and not published:
            places[-1] = parts[rows - 1, :]
        panels = [figure.add_subplot(place) for place in places]
        hole = parts[rows - 1, 1].subgridspec(len(published), 1) if in_hole else None
        for panel, metric in zip(panels, metrics, strict=True):
            _measured(panel, measured, plotted, axis, metric)
            axis.format(panel, panels=columns, stands_for=known)
        if not axis.is_numeric:  # lines have their names at their ends
            _legend(panels[0], columns=3 if columns == 1 else 2)
        for place, (metric, series) in enumerate(published):
            row, column = (place, 1) if in_hole else divmod(place, columns)
            above = panels[min(len(panels) - 1, (rows - 1) * columns + column)]
            limits = above.get_xlim()
            strip = figure.add_subplot(hole[row] if hole else parts[rows + row, column], sharex=above)
            _printed(strip, axis, metric, series, columns)
            above.set_xlim(limits)
        titles(figure, grid.question, subtitle, answer)
    return figure


def _stands_in(cell: Cell, path: str) -> bool:
    """Whether a cell's value replaces another one that is published."""
    return path in cell.printed and not same(cell.printed[path], cell.values[path])


def _legend(panel: Axes, columns: int) -> None:
    """Puts a legend above the first panel if several series have no line; one wider than the panel would widen it."""
    lines, names = panel.get_legend_handles_labels()
    if len(names) > 1:
        fitting = int(_LEGEND / (max(map(len, names)) + 7))  # a line's sample and the space around it: 7 letters
        columns = max(1, min(columns, fitting))
        panel.legend(
            lines, names, loc="lower left", bbox_to_anchor=(0, 1.08), ncols=columns, borderaxespad=0.2, fontsize=9
        )


def _companions(grid: Grid, cells: Sequence[Cell], path: str) -> set[str]:
    """Axes zipped to a path and determined by its value: they make no lines of their own."""
    zipped = {name for group in grid.zip if path in group for name in group} - {path}
    companions = set()
    for name in zipped:
        pairs = {(str(cell.values[path]), str(cell.values.get(name))) for cell in cells}
        if len(pairs) == len({value for value, _ in pairs}):
            companions.add(name)
    return companions


def _series(grid: Grid, cells: Sequence[Cell], path: str) -> list[tuple[dict[str, Any], list[Cell]]]:
    """Cells grouped by all values but one path and its companions, in the order of the plan."""
    left_out = {path} | _companions(grid, cells, path)
    groups: list[tuple[dict[str, Any], list[Cell]]] = []
    for cell in cells:
        rest = {name: value for name, value in cell.values.items() if name not in left_out}
        members = next((group for known, group in groups if known == rest), None)
        if members is None:
            groups.append((rest, [cell]))
        else:
            members.append(cell)
    return groups


def _hues(series: Sequence[tuple[dict[str, Any], list[Cell]]]) -> list[Any]:
    single = [next(iter(rest.values())) for rest, _ in series if len(rest) == 1]
    return colours(single if len(single) == len(series) else [cell_text(rest) for rest, _ in series])


def _line_text(values: Mapping[str, Any], cell: Cell) -> str:
    """What the cells of a line have in common, and which published values it replaces."""
    texts = [(f"{axis_text(path)} {value_text(path, v)}" if "." in path else str(v)) for path, v in values.items()]
    stands = [f" for {cell.printed[path]}" if _stands_in(cell, path) else "" for path in values]
    return ", ".join(text + printed for text, printed in zip(texts, stands, strict=True)) or "the base"


def _measured(axes: Axes, measured: Measurements, cells: Sequence[Cell], axis: KnobAxis, metric: str) -> None:
    series = _series(measured.grid, cells, axis.path)
    lines = [_points(members, metric, measured, axis) for _, members in series]
    drawn = [place for place, points in enumerate(lines) if points]
    ends = [np.mean(list(lines[place][-1][1].values())) for place in drawn]
    drawn = [drawn[place] for place in few([float(end) for end in ends])]
    hues, texts = _hues(series), [shown(_line_text(rest, members[0])) for rest, members in series]
    out = _off_axis([lines[place] for place in drawn])
    if not axis.is_numeric:
        names = [[name for name, _ in points] for points in lines]
        lines = [_beside(points, i, len(lines)) for i, points in enumerate(lines)]
    runs = [measuring_runs(cell, metric) for cell in cells]
    if trunks.are_shared(runs):  # verdicts compare these cells seed by seed
        _pairs(axes, names if not axis.is_numeric else None, lines, hues)
    for order, place in enumerate(drawn):
        mark = _MARKS[order] if len(drawn) > 1 else _MARKS[0]
        beyond = [at for line, at in out if line == order]
        _line(axes, lines[place], axis, beyond, colour=hues[place], label=texts[place], mark=mark)
    axes.set_ylim(_limits([point for order, place in enumerate(drawn) for at, (_, point) in enumerate(lines[place])
                           if (order, at) not in out]))  # fmt: skip
    _notes_above(axes, measured, cells, axis)
    named = {known.name: known for known in measured.grid.metrics}.get(metric)
    label = (named.label or named.name) if named else metric
    wrapped = textwrap.fill(shown(label), _HEIGHT)
    axes.set_ylabel(wrapped + (f"\n{named.better} is better" if named else ""), fontsize=9)
    placed = [(axis.at(cell.values[axis.path]), cell) for cell in cells]
    beside = draw(axes, measured, placed, metric, axis.is_numeric)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    for order, at in sorted(out):
        x, values = lines[drawn[order]][at]
        mark_off_axis(axes, x, float(np.mean(list(values.values()))), hues[drawn[order]])
    if axis.is_numeric and len(drawn) > 1:
        bottom, top = axes.get_ylim()
        for place in drawn:
            x, values = lines[place][-1]
            y = float(np.clip(np.mean(list(values.values())), bottom, top))
            beside.append(Named(y, textwrap.fill(texts[place], _MARGIN), hues[place], (x, y)))
    name_beside(axes, beside, _HIGH * 0.62)


_Points = list[tuple[float, dict[int, float]]]  # position on the knob's axis, the metric by seed


def _points(cells: Sequence[Cell], metric: str, measured: Measurements, axis: KnobAxis) -> _Points:
    points = [(axis.at(cell.values[axis.path]), measured.values(cell, metric)) for cell in cells]
    kept = [(position, values) for position, values in points if position is not None and values]
    return sorted(kept, key=lambda point: point[0])


def _beside(points: _Points, place: int, lines: int) -> _Points:
    """The points of one of several lines over names, which are side by side, not on top of each other."""
    return [(position + 0.14 * (place - (lines - 1) / 2), values) for position, values in points]


def _off_axis(lines: Sequence[_Points]) -> set[tuple[int, int]]:
    """Which cells would rule the axis: the place of the line, and of the point on it."""
    places = [(line, point) for line, points in enumerate(lines) for point in range(len(points))]
    intervals = [mean_interval(list(lines[line][point][1].values())) for line, point in places]
    widths = [2 * (interval.half or 0.0) if interval.n >= _FEWEST else 0.0 for interval in intervals]
    return {places[place] for place in off_axis([interval.mean or 0.0 for interval in intervals], widths)}


def _limits(shown: Sequence[Mapping[int, float]]) -> tuple[float, float]:
    ends: list[float] = []
    for values in shown:
        interval = mean_interval(list(values.values()))
        ends += values.values()
        ends += [end for end in (interval.low, interval.high) if end is not None and interval.n >= _FEWEST]
    room = 0.05 * (max(ends) - min(ends) or abs(ends[0]) or 1.0)
    return min(ends) - room, max(ends) + room


def _pairs(axes: Axes, names: Sequence[Sequence[float]] | None, lines: Sequence[_Points], hues: Sequence[Any]) -> None:
    """Joins the runs of each seed: over numbers along each line, over names across the lines or those of one."""
    if names is None:
        for points, hue in zip(lines, hues, strict=True):
            for at, seen in _by_seed(points):
                axes.plot(at, seen, "-", lw=0.8, color=hue, alpha=0.35, zorder=3)
        return
    together: dict[float, _Points] = defaultdict(list)
    for at_names, points in zip(names, lines, strict=True):
        for name, point in zip(at_names, points, strict=True):
            together[name if len(lines) > 1 else 0.0].append(point)
    for points in together.values():
        for at, seen in _by_seed(points):
            axes.plot(np.subtract(at, _ASIDE), seen, "-", lw=0.8, color=FAINT, alpha=0.5, zorder=2)


def _by_seed(points: _Points) -> Iterator[tuple[list[float], list[float]]]:
    for seed in sorted({seed for _, values in points for seed in values}):
        have = [(position, values[seed]) for position, values in points if seed in values]
        yield [position for position, _ in have], [value for _, value in have]


def _line(
    axes: Axes, points: _Points, axis: KnobAxis, out: Collection[int], *, colour: Any, label: str, mark: str
) -> None:
    """Seeds as points; over numbers the mean as a line in its band, over names the mean with a bar.

    Of one or two seeds there is no interval. What is off the axis has no part in its limits.
    """
    aside = 0.0 if axis.is_numeric else _ASIDE
    inside = [point for place, point in enumerate(points) if place not in out]
    for at, seen in _by_seed(inside):
        axes.plot(np.subtract(at, aside), seen, "o", ms=4, color=colour, alpha=0.6, mew=0, zorder=5)
    intervals = [mean_interval(list(values.values())) for _, values in points]
    means = np.array([interval.mean for interval in intervals], dtype=float)
    half = np.array([(interval.half or 0.0) if interval.n >= _FEWEST else 0.0 for interval in intervals])
    x, kept = np.array([p for p, _ in points]), np.array([place not in out for place in range(len(points))])
    if axis.is_numeric:
        axes.plot(x, means, "-", color=colour, lw=2.4, label=label, zorder=4)
        if half.any():
            axes.fill_between(x, means - half, means + half, color=colour, alpha=0.13, lw=0)
        return
    many = np.array([interval.n >= _FEWEST for interval in intervals]) & kept
    bars: dict[str, Any] = {"fmt": mark, "ms": 5, "capsize": 3, "lw": 1.5, "color": colour, "zorder": 4}
    if many.any():
        axes.errorbar(x[many] + 0.02, means[many], half[many], label=label, **bars)
    else:
        axes.plot([], [], "o", ms=4, color=colour, label=label)


def _notes_above(axes: Axes, measured: Measurements, cells: Sequence[Cell], axis: KnobAxis) -> None:
    """Notes above each value of the knob: whether it is the baseline, and how many runs finished if not all did.

    They are short, because values may be close. The small print says the same of all runs, and alone where each value
    lacks as many.
    """
    baseline = measured.grid.baseline
    groups = [[cell for cell in cells if same(cell.values[axis.path], value)] for value in axis.values]
    counts = [
        (sum(len(measured.finished(cell)) for cell in group), sum(len(cell.planned) for cell in group))
        for group in groups
    ]
    are_alike = len(counts) > 1 and len(set(counts)) == 1
    for value, members, (finished, planned) in zip(axis.values, groups, counts, strict=True):
        is_baseline = axis.path in baseline and any(
            same(baseline[axis.path], as_printed(cell)[axis.path]) for cell in members
        )
        notes = ["baseline"] * is_baseline + [f"{finished}/{planned}"] * (finished < planned and not are_alike)
        position = axis.at(value)
        if position is not None and notes:
            at = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom", "fontsize": 8, "color": FAINT}
            axes.annotate("\n".join(notes), (position, 1.0), **at)
        if position is not None and is_baseline and axis.is_numeric:
            axes.axvline(position, color=FAINT, lw=1, ls=(0, (4, 3)), zorder=1)


# name of a line -> its colour, and of each point its position, the printed value of the knob and the row
_Series = dict[str, tuple[Any, list[tuple[float, str, Published]]]]


def _published_curves(grid: Grid, cells: Sequence[Cell], axis: KnobAxis) -> list[tuple[str, _Series]]:
    """The lines of each published metric: every printed value on the axis, even without a cell in the grid."""
    places = {str(as_printed(cell)[axis.path]): axis.at(cell.values[axis.path]) for cell in cells}
    own = any(axis.path in cell.printed for cell in cells)
    lines, together = _series(grid, cells, axis.path), _companions(grid, cells, axis.path)
    hues = {cell_text(rest): colour for (rest, _), colour in zip(lines, _hues(lines), strict=True)}
    by_metric: dict[str, _Series] = {}
    for source in grid.published:
        column = next((name for name, path in source.match.items() if path == axis.path), None)
        if column is None:
            continue
        for row in chosen(source):
            text = row.columns[column]
            position = places.get(text) if own or not axis.is_numeric else axis.at(number(text))
            line = _line_of(lines, source.match, row)
            if position is None or line is None or (source.metrics and row.metric not in source.metrics):
                continue
            if not _is_of_a_cell(cells, axis.path, source.match, row, together):
                continue
            says_which = any(path != axis.path for path in source.match.values())
            colour = hues[line] if len(lines) > 1 and says_which else PAPER
            by_metric.setdefault(row.metric, {}).setdefault(line, (colour, []))[1].append((position, text, row))
    metrics = [metric for source in grid.published for metric in source.metrics] or list(by_metric)
    by_metric = {metric: {line: one[line] for line in hues if line in one} for metric, one in by_metric.items()}
    known = [(metric, by_metric[metric]) for metric in dict.fromkeys(metrics) if metric in by_metric]
    return known[: 1 if known and known[0][0] == _MEAN else _STRIPS]


def _line_of(lines: Sequence[tuple[dict[str, Any], list[Cell]]], match: dict[str, str], row: Published) -> str | None:
    """The line of the figure that a printed value belongs to, by its other matched columns."""
    for rest, members in lines:
        printed = as_printed(members[0])
        if all(same(printed[path], row.columns[name]) for name, path in match.items() if path in rest):
            return cell_text(rest)
    return None


def _is_of_a_cell(cells: Sequence[Cell], path: str, match: dict[str, str], row: Published, together: set[str]) -> bool:
    """Whether a cell at a printed value of the knob agrees in its companions; True without a cell there."""
    columns = {name: axis for name, axis in match.items() if axis in together}
    text = next(row.columns[name] for name, axis in match.items() if axis == path)
    there = [printed for cell in cells if same((printed := as_printed(cell))[path], text)]
    agreeing = (all(same(values.get(axis), row.columns[name]) for name, axis in columns.items()) for values in there)
    return not there or any(agreeing)


def _printed(axes: Axes, axis: KnobAxis, metric: str, series: _Series, columns: int) -> None:
    """A strip of printed values over the axis of the panel above."""
    for place, (colour, points) in enumerate(series.values()):
        x, values = zip(*sorted((position, row.number) for position, _, row in points), strict=True)
        aside = 0.0 if axis.is_numeric else 0.14 * (place - (len(series) - 1) / 2)  # as in the panel above
        axes.plot(np.add(x, aside), values, "-D" if axis.is_numeric else "D", ms=3.5, lw=1.2, color=colour)
    row = next(iter(series.values()))[1][0][-1]
    papers = ", ".join(dict.fromkeys(row.paper for _, points in series.values() for *_, row in points))
    what = shown(f"{metric}{f' ({row.unit})' if row.unit else ''}", 24)
    told, way = f"published, {shown(papers, 60 // columns - 16)}: {what}", f"{row.better} is better"
    between = ", " if len(told) + len(way) + 2 <= _ACROSS // columns else "\n"
    axes.set_title(f"{told}{between}{way}", fontsize=SMALL, color=PAPER)
    axes.margins(y=0.2)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(labelsize=SMALL, labelbottom=False)
