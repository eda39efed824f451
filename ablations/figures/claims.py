"""Figures of the scoreboard: the claims that a scale can test by how they ended, and measured effects unit by unit."""

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, SETTLED, WITHIN, Regime
from ablations.claims.scoreboard import BELOW, ELSE, NO_GRID, NOT_RUN, PAST, Answer, Entry, states
from ablations.figures.style import FAINT, INK, PAPER, SMALL, STYLE, blank, keyed, shown, titles
from ablations.measurements.trunks import WORD as CONTINUED

COLOURS = {
    PAST: "#009E73",
    BELOW: "#8fd3bd",
    AGAINST: "#D55E00",
    ELSE: "#7f7f7f",
    WITHIN: "#0072B2",
    OPEN: "#a9d8f5",
    NOT_RUN: "#c9c9c9",
    NO_GRID: "#efefef",
}
_DARK = (PAST, AGAINST, ELSE, WITHIN)
_MOST = 24  # rows of a panel of the forest
_MARGIN = "#efe9d6"
_SCALED = {"share": (100.0, "points"), "correlation": (1.0, "correlation"), "mean score": (1.0, "mean score")}
_DIFFERENCES = (">", "<", "~", "interaction")  # relations whose effect is a difference in the metric's unit


def board(entries: Sequence[Entry], scale: str) -> Figure | None:
    """One bar per paper: its claims that the scale can test, by outcome and regime.

    Returns:
        None without answers.
    """
    rows = _gathered(states(entries, scale))
    if not rows or not any(entry.answers for entry in entries):
        return None
    found = [name for name in COLOURS if any(counts[name] for _, counts in rows)]
    with mpl.rc_context(STYLE):
        figure = blank(2.0 + 0.27 * len(rows))
        key, panels = keyed(figure, 1.3 * (-(-len(found) // 4)), 1, 1)
        axes = panels[0, 0]
        start = np.zeros(len(rows))
        for name in found:
            width = np.array([counts[name] for _, counts in rows])
            axes.barh(range(len(rows)), width, left=start, color=COLOURS[name], height=0.72)
            _count(axes, start, width, "white" if name in _DARK else INK)
            start += width
        axes.set_yticks(range(len(rows)), [f"{shown(paper, 30)}  {sum(counts.values())}" for paper, counts in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, 1.01 * start.max())
        axes.set_xlabel(f"claims that scale {scale} can test")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.grid(axis="y", visible=False)
        patches = [Patch(color=COLOURS[name], label=name) for name in found]
        key.legend(handles=patches, loc="center left", ncols=4, fontsize=9, handlelength=1.0, borderaxespad=0)
        titles(figure, "Which published claims hold?", _of_all(entries, rows, scale), board_answer(entries, scale))
    return figure


def board_answer(entries: Sequence[Entry], scale: str) -> str:
    """``Of 90 measured claims 12 are as claimed, 4 of them past counting``; empty without any."""
    counts = Counter[str]()
    for _, of_paper in states(entries, scale):
        counts.update(of_paper)
    measured = counts.total() - counts[NOT_RUN] - counts[NO_GRID]
    found = f"{counts[PAST] + counts[BELOW]} are as claimed, {counts[PAST]} of them past counting"
    return f"Of {measured} measured claims {found}" if measured else ""


def _gathered(rows: list[tuple[str, dict[str, int]]]) -> list[tuple[str, dict[str, int]]]:
    """The rows with those of papers that no grid asks about summed up in the last."""
    asked = [row for row in rows if sum(row[1].values()) > row[1][NO_GRID]]
    others = [row for row in rows if row not in asked]
    if len(others) < 2:
        return rows
    return [*asked, (f"{len(others)} other papers", {name: sum(row[1][name] for row in others) for name in rows[0][1]})]


def _of_all(entries: Sequence[Entry], rows: Sequence[tuple[str, dict[str, int]]], scale: str) -> str:
    total = sum(sum(counts.values()) for _, counts in rows)
    measured = total - sum(counts[name] for _, counts in rows for name in (NOT_RUN, NO_GRID))
    rest = len(entries) - total
    return (
        f"scale {scale}: {measured} of {total} testable claims measured. {rest} more need a larger scale or other data"
    )


def _count(axes: Axes, start: np.ndarray, width: np.ndarray, ink: str) -> None:
    for row, (left, count) in enumerate(zip(start, width, strict=True)):
        if count:
            axes.text(left + count / 2, row, str(count), ha="center", va="center", fontsize=8, color=ink)


def forest(entries: Sequence[Entry], scale: str) -> Figure | None:
    """Measured differences with the intervals that decide: a panel per unit, a row per answer, in the claims' words.

    Positive is as claimed. A hollow mark is below counting. A band is the margin within which a difference counts as
    equal, a diamond the published difference where it has the same unit. An interval that goes on beyond the edge ends
    in an arrow.

    Returns:
        None if no answer has such a difference.
    """
    kept = [(entry, answer) for entry in entries for answer in entry.answers if _is_shown(entry, answer, scale)]
    by_unit: dict[str, list[Answer]] = {}
    for _, answer in kept:
        by_unit.setdefault(answer.quantity, []).append(answer)
    panels = {unit: sorted(rows, key=lambda row: -(row.effect or 0.0))[:_MOST] for unit, rows in by_unit.items()}
    if not panels:
        return None
    panels = dict(sorted(panels.items(), key=lambda item: -len(item[1])))
    heights = [len(rows) + 1.5 for rows in panels.values()]
    with mpl.rc_context(STYLE):
        figure = blank(1.6 + 0.28 * sum(heights) + 0.3 * len(panels))
        strip = 0.3 / figure.get_figheight()
        grid = figure.add_gridspec(2, 1, height_ratios=[strip, 1 - strip])
        key = figure.add_subplot(grid[0])
        key.axis("off")
        below = grid[1].subgridspec(len(panels), 1, height_ratios=heights)
        for place, (unit, answers) in enumerate(panels.items()):
            _panel(figure.add_subplot(below[place]), unit, answers)
        found = [answer for answers in panels.values() for answer in answers]
        key.legend(handles=_marks(found), loc="center left", ncols=5, fontsize=9, borderaxespad=0, handlelength=1.4)
        note = f"scale {scale}: intervals corrected for looks and claims, mostly of proxies"
        note += _absent(entries, found, scale)
        titles(figure, "How large are the differences?", note, _forest_answer(found))
    return figure


def _forest_answer(found: Sequence[Answer]) -> str:
    """``Of 30 differences 12 are clear of zero, 9 of them as claimed``."""
    low = [answer.effect_low for answer in found if answer.effect_low is not None and answer.effect_low > 0]
    high = [answer.effect_high for answer in found if answer.effect_high is not None and answer.effect_high < 0]
    return f"Of {len(found)} differences {len(low) + len(high)} are clear of zero, {len(low)} of them as claimed"


def _absent(entries: Sequence[Entry], found: Sequence[Answer], scale: str) -> str:
    """How many measured answers have no row, by reason; one that is settled is no difference."""
    ran = [one for entry in entries for one in entry.answers if one.scale == scale and one.outcome != NOT_RUN]
    drawn = {id(answer) for answer in found}
    left = Counter(str(answer.reason or "no difference") for answer in ran if id(answer) not in drawn)
    listed = ", ".join(f"{count} {reason}" for reason, count in left.most_common())
    return f"; without a row: {listed}" * bool(left)


def _is_shown(entry: Entry, answer: Answer, scale: str) -> bool:
    return (
        answer.scale == scale
        and entry.claim.relation in _DIFFERENCES
        and bool(answer.quantity)
        and None not in (answer.effect, answer.effect_low, answer.effect_high)
        and answer.outcome != NOT_RUN
    )


def _panel(axes: Axes, unit: str, answers: Sequence[Answer]) -> None:
    factor, name = _SCALED.get(unit, (1.0, unit))
    middle, low, high, margin, printed = (
        factor * np.array([np.nan if value is None else value for value in values])
        for values in zip(
            *((a.effect, a.effect_low, a.effect_high, a.margin, a.printed_effect) for a in answers), strict=True
        )
    )
    limit = _limit(np.concatenate([middle, margin, printed]), np.concatenate([low, high]))
    axes.axvline(0, color=FAINT, lw=1, zorder=1)
    for y, answer in enumerate(answers):
        colour = COLOURS[_state(answer)]
        if not np.isnan(margin[y]):
            axes.barh(y, 2 * min(margin[y], limit), left=-min(margin[y], limit), height=0.84, color=_MARGIN, zorder=0)
        axes.plot(np.clip([low[y], high[y]], -limit, limit), [y, y], "-", color=colour, lw=2, zorder=2)
        for end, arrow in ((low[y], "<"), (high[y], ">")):
            if abs(end) > limit:
                axes.plot(np.clip(end, -limit, limit), y, arrow, color=colour, ms=6, zorder=3)
        mark = "o" if abs(middle[y]) <= limit else (">" if middle[y] > 0 else "<")
        face = "white" if Regime(answer.regime).is_below else colour
        axes.plot(np.clip(middle[y], -limit, limit), y, mark, color=colour, mfc=face, ms=5, zorder=3)
        if not np.isnan(printed[y]):
            axes.plot(np.clip(printed[y], -limit, limit), y, "D", mfc="none", mec=PAPER, ms=5, zorder=4)
    metrics = {answer.metric for answer in answers}
    axes.set_yticks(range(len(answers)), _names(answers), fontsize=SMALL, linespacing=0.95)
    axes.set_ylim(len(answers) - 0.4, -0.6)
    shown_ends = np.concatenate([low, high, middle, margin, -margin, printed, [0.0]])
    left, right = float(np.nanmin(shown_ends)), float(np.nanmax(shown_ends))  # no room for a side that is empty
    axes.set_xlim(max(1.04 * left, -limit) - 0.04 * limit, min(1.04 * right, limit) + 0.04 * limit)
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.grid(axis="y", visible=False)
    metric = shown(next(iter(metrics)), 40)
    what = name if len(metrics) > 1 else metric if name in metric else f"{metric} ({name})"
    axes.set_xlabel(f"difference in {what}; to the right: as claimed", fontsize=9, loc="right")


def _limit(marks: np.ndarray, ends: np.ndarray) -> float:
    """The edge of the x axis: it shows all marks and ends of intervals but those far beyond nine in ten marks."""
    known = np.abs(marks[~np.isnan(marks)])
    return float(min(1.05 * np.abs([*known, *ends]).max(), 2.5 * np.quantile(known, 0.9))) or 1.0


def _names(answers: Sequence[Answer]) -> list[str]:
    """The statements in two lines at most; the metric where a panel has several, the grid where two say the same."""
    several = len({answer.metric for answer in answers}) > 1
    said = [(answer.statement, answer.metric) for answer in answers]
    names = []
    for answer in answers:
        is_twice = said.count((answer.statement, answer.metric)) > 1
        about = ", ".join([answer.metric] * several + [answer.grid] * is_twice + [CONTINUED] * answer.continued)
        tail = f" [{about}]" if about else ""
        text = shown(answer.statement.rstrip("."), 112 - len(tail)) + tail  # what is cut is the statement
        names.append("\n".join(textwrap.wrap(text, 62)[:2]))
    return names


def _state(answer: Answer) -> str:
    """The key of an answer's colour: its outcome, and of a settled one whether something else explains it."""
    regime = Regime(answer.regime)
    if answer.outcome not in SETTLED:
        return answer.outcome
    return (
        ELSE if not (regime.is_past_counting or regime.is_below) else PAST if answer.outcome == AS_CLAIMED else AGAINST
    )


def _marks(answers: Sequence[Answer]) -> list[Line2D | Patch]:
    names = {PAST: AS_CLAIMED}
    marks: list[Line2D | Patch] = [
        Line2D([], [], color=COLOURS[state], marker="o", ms=5, lw=2, label=names.get(state, state))
        for state in (PAST, AGAINST, ELSE, WITHIN, OPEN)
        if any(_state(answer) == state for answer in answers)
    ]
    if any(Regime(answer.regime).is_below for answer in answers):
        marks.append(Line2D([], [], color=INK, marker="o", mfc="white", ls="", ms=5, label="below counting"))
    if any(answer.margin for answer in answers):
        marks.append(Patch(color=_MARGIN, label="margin"))
    if any(answer.printed_effect is not None for answer in answers):
        marks.append(Line2D([], [], color=PAPER, marker="D", mfc="none", ls="", ms=5, label="published"))
    return marks


FIGURES: dict[str, Callable[[Sequence[Entry], str], Figure | None]] = {"board": board, "forest": forest}
ABOUT = {
    "board": "The claims of each paper that this scale can test, by outcome and regime.",
    "forest": "Measured differences with their adjusted intervals and margins, a panel per unit.",
}
