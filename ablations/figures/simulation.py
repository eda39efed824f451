"""The figures of the simulation study: nominal levels as lines or bands, simulated ones as points."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablations.claims.judging import CONTRADICTS, NOT_RESOLVED, REPLICATES
from ablations.core.simulation import FAMILY_KINDS, SEEDS, Row
from ablations.core.statistics import LEVEL, paired_power
from ablations.figures.style import FAINT, INK, OKABE_ITO, STYLE, blank, draw_level, titles

_METHODS = ("t", "t over seeds", "percentile-t bootstrap", "BCa bootstrap", "seeds and examples")
_HUES = dict(zip(_METHODS, (OKABE_ITO[0], OKABE_ITO[0], *OKABE_ITO[1:4]), strict=True))
_MARKS = dict(zip(_METHODS, "ooDsD", strict=True))
_LEVELS = ("not corrected (dashed: 5 %)", "Holm's levels (dashed: 5 % promised)")
_BAND = (93, 97)  # percent: acceptable coverage of a 95 % interval


def coverage(rows: Sequence[Row]) -> Figure:
    """Coverage over the number of seeds: a panel per noise, a line per method."""
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    with mpl.rc_context(STYLE):
        figure = blank(5.6)
        panels = figure.subplots(2, -(-len(noises) // 2), sharex=True, sharey=True).ravel()
        for panel in panels[len(noises) :]:
            panel.set_axis_off()
        for axes, noise in zip(panels, noises, strict=False):
            axes.axhspan(*_BAND, color=OKABE_ITO[2], alpha=0.14, lw=0)
            axes.axhline(100 * LEVEL, color=FAINT, lw=1, ls=(0, (5, 3)))
            _coverage_lines(axes, [row for row in rows if row["noise"] == noise])
            axes.set_title(noise.partition(" (")[0])
            axes.set_xscale("log")
            axes.set_xlim(2.6, 11.6)
            axes.set_xticks(SEEDS, [str(n) for n in SEEDS])
            axes.set_xticks([], minor=True)
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("seeds")
        for axes in panels[:: len(panels) // 2]:
            axes.set_ylabel("intervals that contain\nthe true difference (%)")
        _legend(panels[-1], panels[: len(noises)])
        titles(
            figure,
            "Do 95 % intervals contain the truth in 95 % of grids?",
            f"{rows[0]['grids']:,} simulated grids per point (answers: {rows[-1]['grids']:,}); band: 93 to 97 %; the "
            "percentile-t interval of 3 seeds is unbounded",
        )
    return figure


def _coverage_lines(axes: Axes, rows: Sequence[Row]) -> None:
    for method in dict.fromkeys(row["method"] for row in rows):
        points = [row for row in rows if row["method"] == method and row["coverage"] is not None]
        x = [row["seeds"] for row in points]
        y, error = (100 * np.array([row[name] for row in points]) for name in ("coverage", "standard error"))
        style = {"color": _HUES[method], "marker": _MARKS[method], "ms": 4.5, "lw": 1.6, "capsize": 2, "label": method}
        axes.errorbar(x, y, 2 * error, **style)


def _legend(empty: Axes, panels: Sequence[Axes]) -> None:
    """Puts the legend of all panels into the empty one."""
    named = {}
    for axes in panels:
        lines, names = axes.get_legend_handles_labels()
        named |= {name.removesuffix(" over seeds"): line for line, name in zip(lines, names, strict=True)}
    empty.legend(named.values(), named.keys(), loc="center left", title="interval", alignment="left")


def family_wise_error(rows: Sequence[Row], seeds: int = 5) -> Figure:
    """The share of grids with a false finding over the size of the family, with and without correction."""
    with mpl.rc_context(STYLE):
        figure = blank(3.9)
        panels = figure.subplots(1, 2)
        for axes, column, name in zip(panels, ("uncorrected", "Holm"), _LEVELS, strict=True):
            for colour, mark, kind in zip(OKABE_ITO, "oDs", FAMILY_KINDS, strict=False):
                points = [row for row in rows if row["contrasts"] == kind and row["seeds"] == seeds]
                sizes, shares = [row["family"] for row in points], [100 * row[column] for row in points]
                error = [200 * row["standard error"] for row in points] if column == "Holm" else None
                style = {"color": colour, "marker": mark, "ms": 4.5, "lw": 1.6, "capsize": 2, "label": kind}
                axes.errorbar(sizes, shares, error, **style)
            axes.axhline(100 * (1 - LEVEL), color=FAINT, lw=1, ls=(0, (5, 3)))
            axes.set_xscale("log")
            sizes = sorted({row["family"] for row in rows})
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_xticks([], minor=True)
            axes.set_ylim(0, 70 if column == "uncorrected" else 7)
            axes.set_xlabel("contrasts in the family")
            axes.set_title(name)
        panels[0].set_ylabel("grids with a false finding (%)")
        panels[0].legend(loc="upper left", fontsize=8)
        about = f"{rows[0]['grids']:,} simulated grids of {seeds} seeds per point; bars: two standard errors"
        titles(figure, "How often does a grid without effects show one?", about)
    return figure


def power(rows: Sequence[Row]) -> Figure:
    """The power to detect an effect over its size: the formula as lines, simulated grids as points."""
    with mpl.rc_context(STYLE):
        figure = blank(4.0)
        axes = figure.subplots()
        largest = max(row["effect"] for row in rows)
        curve = np.linspace(0, largest, 121)
        for colour, seeds in zip(OKABE_ITO, SEEDS, strict=False):
            points = [row for row in rows if row["seeds"] == seeds]
            x, y = ([row[name] for row in points] for name in ("effect", "simulated"))
            chance = [100 * paired_power(effect, 1.0, seeds) for effect in curve]
            axes.plot(curve, chance, color=colour, lw=1.8, label=f"{seeds} seeds")
            axes.plot(x, 100 * np.array(y), "o", ms=5, color=colour)
        draw_level(axes, "80 %", 80, is_left=True)
        axes.set_ylim(0, 103)
        axes.set_xlabel("true difference, in standard deviations of the difference between paired seeds")
        axes.set_ylabel("grids that detect it (%)")
        axes.legend(loc="lower right")
        about = f"lines: noncentral t distribution; points: {rows[0]['grids']:,} simulated grids each"
        titles(figure, "How many seeds does it take to detect an effect?", about)
    return figure


def same_twice(rows: Sequence[Row]) -> Figure:
    """The shares of the verdicts: one bar per scenario."""
    hues = {REPLICATES: OKABE_ITO[0], NOT_RESOLVED: "#dddddd", CONTRADICTS: OKABE_ITO[1]}
    with mpl.rc_context(STYLE):
        figure = blank(3.9)
        axes = figure.subplots()
        start = np.zeros(len(rows))
        for outcome, colour in hues.items():
            shares = 100 * np.array([row[outcome] for row in rows])
            axes.barh(range(len(rows)), shares, left=start, height=0.52, color=colour, label=outcome)
            for place, (left, share) in enumerate(zip(start, shares, strict=True)):
                if share >= 4:
                    ink = INK if outcome == NOT_RESOLVED else "white"
                    axes.text(left + share / 2, place, f"{share:.1f}", ha="center", va="center", color=ink, fontsize=9)
            start += shares
        for place, row in enumerate(rows):
            note = f"{row['scenario']}: wrong in {100 * row['share wrong']:.1f} % of grids"
            axes.text(0, place - 0.32, note, ha="left", va="bottom", fontsize=9)
        axes.set_ylim(len(rows) - 0.6, -0.75)
        axes.set_yticks([])
        axes.set_xlim(0, 100)
        axes.grid(False)
        axes.set_xlabel("verdicts (%)")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, fontsize=9, borderaxespad=0.2)
        about = (
            f"{rows[0]['grids']:,} simulated grids of {rows[0]['seeds']} seeds per bar, judged like published claims"
        )
        titles(figure, "Which verdicts does a variant get that changes nothing?", about)
    return figure
