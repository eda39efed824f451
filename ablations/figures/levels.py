"""What simple methods reach, as dashed lines behind a panel of the figure over a knob, named next to it."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ablations.figures.style import FAINT, Named
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import BEST, PAIRS, SAME, in_plain_words, reference, references
from ablations.schema.cell import Cell

Placed = Sequence[tuple[float | None, Cell]]  # position on the knob's axis, if it has one there, and cell

_DASHES = (0, (5, 3))
_HALF = 0.4  # of the way from a name on the axis to the next
_MARGIN = 12  # letters next to a panel


def draw(axes: Axes, measured: Measurements, placed: Placed, metric: str, is_numeric: bool) -> list[Named]:
    """Draws the scores of simple methods near the data: of several the best one and the constant answer.

    A line goes through the panel where all cells have the same question. Sometimes the question changes with the knob,
    such as the number of labels to learn from. Then the best of the simple methods, or the one that has the same
    labels, is drawn at each value of the knob. Of a held-out loss it is the bar where one is kept, what counting
    reaches.

    Args:
        axes: The panel, with the data.
        measured: The measurements.
        placed: The cells of the panel.
        metric: The metric of the panel.
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
    return textwrap.fill(first + (f" and {more} more" if more else ""), _MARGIN)
