"""Figures of the scoreboard: outcomes of each paper's claims, and measured against published effects."""

from collections.abc import Callable, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ablations.claims.judging import CONTRADICTS, NOT_RESOLVED, REPLICATES
from ablations.claims.scoreboard import MIXED, NO_GRID, NOT_RUN, Entry, tally
from ablations.figures.style import FAINT, INK, PAPER, STYLE, blank, shown, titles

COLOURS = {
    REPLICATES: "#009E73",
    CONTRADICTS: "#D55E00",
    MIXED: "#E69F00",
    NOT_RESOLVED: "#56B4E9",
    NOT_RUN: "#c9c9c9",
    NO_GRID: "#efefef",
}
_MOST = 60  # rows of the forest


def board(entries: Sequence[Entry], scale: str) -> Figure | None:
    """One bar per paper: its claims by outcome.

    Returns:
        None without answers.
    """
    rows = tally(entries, scale)
    if not any(entry.answers for entry in entries):
        return None
    with mpl.rc_context(STYLE):
        figure = blank(1.7 + 0.27 * len(rows))
        axes = figure.add_subplot()
        start = np.zeros(len(rows))
        for outcome, colour in COLOURS.items():
            width = np.array([counts[outcome] for _, counts in rows])
            if width.any():
                axes.barh(range(len(rows)), width, left=start, color=colour, label=outcome, height=0.72)
                _count(axes, start, width, outcome)
            start += width
        axes.set_yticks(range(len(rows)), [shown(paper, 30) for paper, _ in rows])
        axes.invert_yaxis()
        axes.set_xlabel("published claims")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower right", fontsize=9, handlelength=1.0)
        measured = sum(counts[name] for _, counts in rows for name in (REPLICATES, CONTRADICTS, MIXED, NOT_RESOLVED))
        total = sum(sum(counts.values()) for _, counts in rows)
        titles(figure, "Which published claims hold?", f"scale {scale}: {measured} of {total} claims measured")
    return figure


def _count(axes: Axes, start: np.ndarray, width: np.ndarray, outcome: str) -> None:
    ink = "white" if outcome in (REPLICATES, CONTRADICTS) else INK
    for row, (left, count) in enumerate(zip(start, width, strict=True)):
        if count:
            axes.text(left + count / 2, row, str(count), ha="center", va="center", fontsize=8, color=ink)


def forest(entries: Sequence[Entry], scale: str) -> Figure | None:
    """One row per answer: the measured effect with its adjusted interval, the published one as a diamond.

    An effect is the share of the worse side's loss or error that the better side removes (`scoreboard.removed`).

    Returns:
        None if no answer has such a share.
    """
    rows = [
        (entry, answer)
        for entry in entries
        for answer in entry.answers
        if answer.scale == scale and answer.removed is not None and answer.low is not None
    ][:_MOST]
    if not rows:
        return None
    with mpl.rc_context(STYLE):
        figure = blank(1.6 + 0.25 * len(rows))
        axes = figure.add_subplot()
        axes.axvline(0, color=FAINT, lw=1, zorder=1)
        answers = [answer for _, answer in rows]
        marks = [a.removed for a in answers] + [a.published for a in answers if a.published]
        limit = _limit(np.array(marks, dtype=float))
        for y, answer in enumerate(answers):
            colour = COLOURS[answer.outcome]
            ends, effect, printed = (
                np.clip(np.array(marks, dtype=float), -limit, limit)
                for marks in ([answer.low, answer.high], [answer.removed], [answer.published])
            )
            axes.plot(ends, [y, y], "-", color=colour, lw=2, zorder=2)
            axes.plot(effect, [y], "o", color=colour, ms=5, zorder=3)
            if answer.published is not None:
                axes.plot(printed, [y], "D", mfc="none", mec=PAPER, ms=5, zorder=4)
        axes.set_yticks(range(len(rows)), [_named(answer.asked, answer.metric) for answer in answers], fontsize=7.5)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(-1.04 * limit, 1.04 * limit)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("share of the loss, or of the error, removed")
        axes.legend(handles=_key({answer.outcome for answer in answers}), loc="lower left", fontsize=8, frameon=True)
        note = (
            f"scale {scale}: adjusted intervals, mostly of proxies; edge marks lie beyond; "
            "clear of 0 but open: both on the plateau"
        )
        titles(figure, "Are measured effects as large as published ones?", note)
    return figure


def _limit(values: np.ndarray) -> float:
    """The edge of the x axis: it shows nine in ten of the marks, and at least a tenth."""
    return float(max(0.1, 1.3 * np.quantile(np.abs(values), 0.9)))


def _named(asked: str, metric: str) -> str:
    return f"{shown(asked, 42)}  ({shown(metric, 32)})"


def _key(outcomes: set[str]) -> list[Line2D]:
    marks = [
        Line2D([], [], color=colour, marker="o", ms=5, lw=2, label=name)
        for name, colour in COLOURS.items()
        if name in outcomes
    ]
    return [*marks, Line2D([], [], color=PAPER, marker="D", mfc="none", ls="", ms=5, label="published")]


FIGURES: dict[str, Callable[[Sequence[Entry], str], Figure | None]] = {"board": board, "forest": forest}
ABOUT = {
    "board": "The claims of each paper by outcome.",
    "forest": "Measured effects with their adjusted intervals, published ones as diamonds.",
}
