"""The figures of the simulation study: promises as lines or bands, simulated grids as points."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, WITHIN
from ablations.core.statistics import LEVEL
from ablations.figures.style import FAINT, INK, OKABE_ITO, STYLE, blank, draw_level, keyed, titles
from benchmarks.simulation.simulation import BIMODAL, FAMILIES, LOOKS, METHODS, Row

_HUES = dict(zip(METHODS, (OKABE_ITO[0], OKABE_ITO[4], OKABE_ITO[1]), strict=True))
_MARKS = dict(zip(METHODS, "oDs", strict=True))
_BAND = (93, 97)  # percent: acceptable coverage of a 95 % interval
_LOOKS = " and ".join(map(str, LOOKS.n))
_OFFSETS = dict(zip(METHODS, (0.0, -0.24, 0.24), strict=True))


def coverage(rows: Sequence[Row]) -> Figure:
    """Coverage by which cells are noisier: a panel per number of seeds, a mark per method."""
    kinds = list(dict.fromkeys((row["noisier cells"], row["noise"]) for row in rows))
    with mpl.rc_context(STYLE):
        figure = blank(1.9 + 0.36 * len(kinds))
        key, panels = _panels(figure, len(LOOKS.n))
        for axes, seeds in zip(panels, LOOKS.n, strict=True):
            axes.axvspan(*_BAND, color=OKABE_ITO[2], alpha=0.14, lw=0)
            axes.axvline(100 * LEVEL, color=FAINT, lw=1, ls=(0, (5, 3)))
            for method in METHODS:
                found = [row for row in rows if row["seeds"] == seeds and row["method"] == method]
                places = np.arange(len(found)) + _OFFSETS[method]
                shares, low, high = (
                    100 * np.array([r[name] for r in found]) for name in ("coverage", "lowest", "highest")
                )
                axes.hlines(places, low, high, color=_HUES[method], lw=2, alpha=0.45)
                axes.plot(shares, places, _MARKS[method], ms=5, color=_HUES[method], label=method)
            axes.set_title(f"{seeds} seeds")
            axes.set_xlabel("intervals that contain\nthe true difference (%)")
        panels[0].set_yticks(
            range(len(kinds)), [kind if noise == "normal" else f"{kind}, {noise}" for kind, noise in kinds]
        )
        panels[0].set_ylim(len(kinds) - 0.45, -0.55)
        _key(key, panels[0])
        about = (
            "dot: all contrasts of a grid of eight cells; line: from the least to the most covered; band: 93 to 97 %"
        )
        titles(figure, "Do 95 % intervals cover, whichever cells are noisier?", about)
    return figure


def _panels(figure: Figure, columns: int) -> tuple[Axes, np.ndarray]:
    """A strip for the legend, and panels side by side."""
    key, panels = keyed(figure, 1.2, 1, columns, sharex=True, sharey=True)
    return key, panels[0]


def _key(key: Axes, axes: Axes) -> None:
    key.legend(*axes.get_legend_handles_labels(), loc="center left", ncols=3, fontsize=9, borderaxespad=0)


def examples(rows: Sequence[Row]) -> Figure:
    """Coverage over new runs and new questions over the number of seeds: a panel per kind of answers."""
    kinds, methods = (list(dict.fromkeys(row[name] for row in rows)) for name in ("answers", "method"))
    with mpl.rc_context(STYLE):
        figure = blank(3.4)
        panels = figure.subplots(1, len(kinds), sharey=True)
        for axes, kind in zip(panels, kinds, strict=True):
            axes.axhspan(*_BAND, color=OKABE_ITO[2], alpha=0.14, lw=0)
            axes.axhline(100 * LEVEL, color=FAINT, lw=1, ls=(0, (5, 3)))
            for method, colour, mark in zip(methods, (OKABE_ITO[1], OKABE_ITO[0]), "so", strict=True):
                found = [row for row in rows if row["answers"] == kind and row["method"] == method]
                x = [row["seeds"] for row in found]
                y, error = (100 * np.array([row[name] for row in found]) for name in ("coverage", "standard error"))
                style: dict[str, Any] = {"color": colour, "marker": mark, "ms": 5, "lw": 1.6, "capsize": 2}
                axes.errorbar(x, y, 2 * error, label=f"noise of {method}", **style)
            axes.set_xticks(sorted({row["seeds"] for row in rows}))
            axes.set_xlabel("seeds")
            axes.set_title(kind)
        panels[0].set_ylabel("intervals that contain\nthe true difference (%)")
        panels[0].legend(loc="lower left", fontsize=9)
        about = f"300 fixed questions in 100 documents; {rows[0]['grids']:,} grids per point; bars: two standard errors"
        titles(figure, "Do intervals cover the difference over new questions?", about)
    return figure


def family_wise_error(rows: Sequence[Row]) -> Figure:
    """The share of grids with a false finding by which cells are noisier: a panel per family, a mark per method."""
    shown = [row for row in rows if row["real effects"] == "none"]
    kinds = list(dict.fromkeys(row["noisier cells"] for row in shown))
    with mpl.rc_context(STYLE):
        figure = blank(1.9 + 0.36 * len(kinds))
        key, panels = _panels(figure, len(FAMILIES))
        for axes, size in zip(panels, FAMILIES, strict=True):
            axes.axvline(100 * (1 - LEVEL), color=FAINT, lw=1, ls=(0, (5, 3)))
            for method in METHODS:
                found = {row["noisier cells"]: row[method] for row in shown if row["family"] == size}
                shares = [100 * found[kind] for kind in kinds]
                places = np.arange(len(kinds)) + _OFFSETS[method]
                axes.plot(shares, places, _MARKS[method], ms=5, color=_HUES[method], label=method)
            axes.set_title(f"{size} claim{'s' * (size > 1)}")
        panels[0].set_xlim(0, 108 * max(row[method] for row in shown for method in METHODS))
        panels[len(panels) // 2].set_xlabel("grids with a false finding (%); dashed: the 5 % promised")
        panels[0].set_yticks(
            range(len(kinds)),
            ["another variant fails in 1/5 of its runs" if kind == BIMODAL else kind for kind in kinds],
        )
        panels[0].set_ylim(len(kinds) - 0.45, -0.55)
        _key(key, panels[0])
        about = f"no true effect; looks at {_LOOKS} seeds; {rows[0]['grids']:,} simulated grids per mark"
        titles(figure, "How often does a grid without effects show one?", about)
    return figure


def trunks(rows: Sequence[Row]) -> Figure:
    """The share of grids with a false finding among arms of trunks: a panel per family, a mark per way to compare."""
    methods, families = (list(dict.fromkeys(row[name] for row in rows)) for name in ("method", "family"))
    kinds = list(dict.fromkeys((row["arms"], row["noisier cells"]) for row in rows))
    with mpl.rc_context(STYLE):
        figure = blank(1.9 + 0.36 * len(kinds))
        key, panels = _panels(figure, len(families))
        for axes, size in zip(panels, families, strict=True):
            axes.axvline(100 * (1 - LEVEL), color=FAINT, lw=1, ls=(0, (5, 3)))
            for method, old in zip(methods, METHODS, strict=True):
                found = [row for row in rows if row["family"] == size and row["method"] == method]
                shares = [[100 * row["errs"] for row in found if (row["arms"], row["noisier cells"]) == kind]
                          for kind in kinds]  # fmt: skip
                places = np.arange(len(kinds)) + _OFFSETS[old]
                axes.hlines(places, [min(one) for one in shares], [max(one) for one in shares], color=_HUES[old], lw=2)
                means = [float(np.mean(one)) for one in shares]
                axes.plot(means, places, _MARKS[old], ms=5, color=_HUES[old], label=method)
            axes.set_title(f"{size} claim{'s' * (size > 1)}")
        panels[0].set_xlim(0, 108 * max(row["errs"] for row in rows))
        panels[len(panels) // 2].set_xlabel("grids with a false finding (%); dashed: the 5 % promised")
        panels[0].set_yticks(
            range(len(kinds)), [f"{arms} arms, {kind.replace('variant', 'arm')}" for arms, kind in kinds]
        )
        panels[0].set_ylim(len(kinds) - 0.45, -0.55)
        _key(key, panels[0])
        about = f"lines: trunks of half and of nine tenths of the variance; {rows[0]['grids']:,} simulated grids each"
        titles(figure, "How often do arms of common trunks differ without an effect?", about)
    return figure


def pairs(rows: Sequence[Row]) -> Figure:
    """The share of grids with a false finding among fine-tunings of common seeds: a panel per number of seeds."""
    shown = [row for row in rows if row["errs"] is not None]
    methods, seeds = (list(dict.fromkeys(row[name] for row in shown)) for name in ("method", "seeds"))
    names = ("example variance", "seed variance", "correlation")
    kinds = list(dict.fromkeys(tuple(row[name] for name in names) for row in shown))
    with mpl.rc_context(STYLE):
        figure = blank(1.9 + 0.36 * len(kinds))
        key, panels = _panels(figure, len(seeds))
        for axes, number in zip(panels, seeds, strict=True):
            axes.axvline(100 * (1 - LEVEL), color=FAINT, lw=1, ls=(0, (5, 3)))
            for place, method in enumerate(methods):
                found = [row for row in shown if row["seeds"] == number and row["method"] == method]
                shares = [[100 * row["errs"] for row in found if tuple(row[name] for name in names) == kind]
                          for kind in kinds]  # fmt: skip
                places, hue = np.arange(len(kinds)) + 0.18 * (place - 1.5), OKABE_ITO[(0, 1, 4, 2)[place]]
                axes.hlines(places, [min(one) for one in shares], [max(one) for one in shares], color=hue, lw=2)
                means = [float(np.mean(one)) for one in shares]
                axes.plot(means, places, "oDs^"[place], ms=4.5, color=hue, label=method)
            axes.set_title(f"{number} seeds")
        panels[0].set_xlim(-1, 108 * max(row["errs"] for row in shown))
        panels[len(panels) // 2].set_xlabel("grids with a false finding (%); dashed: the 5 % promised")
        panels[0].set_yticks(range(len(kinds)), [_pair_text(*kind) for kind in kinds])
        panels[0].set_ylim(len(kinds) - 0.45, -0.55)
        _key(key, panels[0])
        about = f"14 claims; lines: 277 to 1,821 examples; {rows[0]['grids']:,} simulated grids each"
        titles(figure, "How often do fine-tunings of common seeds differ without an effect?", about)
    return figure


def _pair_text(examples: str, seeds: str, correlation: float | None) -> str:
    over_seeds = "seeds alike" if correlation is None else f"seeds differ, correlation {correlation:g}"
    return f"{over_seeds}; examples {examples}"


def power(rows: Sequence[Row]) -> Figure:
    """The power to detect an effect over its size: a panel per family; the first look dotted, both looks solid."""
    with mpl.rc_context(STYLE):
        figure = blank(3.8)
        key, panels = _panels(figure, len(FAMILIES))
        for axes, size in zip(panels, FAMILIES, strict=True):
            for method in METHODS:
                found = [row for row in rows if row["family"] == size and row["method"] == method]
                x = [row["effect"] for row in found]
                for name, line in (("first look", ":"), ("both looks", "-")):
                    y = [100 * row[name] for row in found]
                    label = method if name == "both looks" else None
                    axes.plot(x, y, line, marker=_MARKS[method], ms=3.5, color=_HUES[method], lw=1.7, label=label)
            draw_level(axes, "80 %", 80, is_left=True)
            axes.set_ylim(0, 103)
            axes.set_title(f"{size} claim{'s' * (size > 1)}")
        panels[len(panels) // 2].set_xlabel("true difference, in standard deviations of a run")
        panels[0].set_ylabel("grids that find it (%)")
        _key(key, panels[0])
        about = f"dotted: by {LOOKS.n[0]} seeds; solid: by {LOOKS.n[1]}; all cells alike; {rows[0]['grids']:,} grids"
        titles(figure, "How large must a difference be to be found?", about)
    return figure


def same_twice(rows: Sequence[Row]) -> Figure:
    """The shares of the verdicts: one bar per scenario."""
    hues = {AS_CLAIMED: OKABE_ITO[0], WITHIN: "#eeeeee", OPEN: "#dddddd", AGAINST: OKABE_ITO[1]}
    with mpl.rc_context(STYLE):
        figure = blank(1.5 + 0.6 * len(rows))
        axes = figure.subplots()
        start = np.zeros(len(rows))
        for outcome, colour in hues.items():
            shares = 100 * np.array([row[outcome] for row in rows])
            axes.barh(range(len(rows)), shares, left=start, height=0.52, color=colour, label=outcome)
            for place, (left, share) in enumerate(zip(start, shares, strict=True)):
                if share >= 4:
                    ink = INK if outcome in (WITHIN, OPEN) else "white"
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
        about = f"{rows[0]['grids']:,} simulated grids per bar, judged like published claims at {_LOOKS} seeds"
        titles(figure, "Which verdicts does a variant get that changes nothing?", about)
    return figure


def alignment(rows: Sequence[Row]) -> Figure:
    """What is said of arms that differ in speed alone, and in quality alone: one bar per condition, at four seeds."""
    truths = list(dict.fromkeys(row["truth"] for row in rows))
    form = rows[-1]["form"]
    shown = {truth: [r for r in rows if (r["truth"], r["form"], r["seeds"]) == (truth, form, 4)] for truth in truths}
    simple = {"speed": "quality by the end", "quality": "speed by size"}  # what errs without the second condition
    hues = {"quality": OKABE_ITO[1], "open": "#dddddd", "speed": OKABE_ITO[0]}
    with mpl.rc_context(STYLE):
        figure = blank(2.1 + 0.3 * len(shown[truths[0]]))
        key, panels = _panels(figure, len(truths))
        for axes, (truth, found) in zip(panels, shown.items(), strict=True):
            start = np.zeros(len(found))
            for name, colour in hues.items():
                known = [row["quality"] + row["speed"] if name == "open" else row[name] for row in found]
                shares = 100 * np.array([1 - share if name == "open" else share for share in known])
                axes.barh(range(len(found)), shares, left=start, height=0.6, color=colour, label=name)
                start += shares
            wrong = [100 * row[simple[truth]] for row in found]
            axes.plot(wrong, range(len(found)), "x", color=INK, ms=6, mew=1.6, label="wrong by a single condition")
            axes.set_title(f"the truth is {truth}")
            axes.set_xlabel("grids (%)")
            axes.set_xlim(0, 100)
            axes.grid(axis="y", visible=False)
        names = [
            f"{row['effect']:g} nats, {row['multiple']:g} times{', flat end' * (row['end'] == 'flat')}" for row in found
        ]
        panels[0].set_yticks(range(len(names)), names)
        panels[0].set_ylim(len(names) - 0.45, -0.55)
        key.legend(*panels[0].get_legend_handles_labels(), loc="center left", ncols=4, fontsize=9, borderaxespad=0)
        about = f"four seeds, {form} curves; {rows[0]['grids']:,} simulated grids per bar"
        titles(figure, "Is speed ever called quality?", about)
    return figure
