"""Each contrast at equal tokens, at equal FLOPs and at equal multiples of the crossing: points and intervals."""

from collections import Counter
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ablations.claims.alignment import Contrast, Kind
from ablations.core.statistics import Interval
from ablations.figures.style import FAINT, INK, OKABE_ITO, STYLE, Drawing, blank, keyed, shown, titles

CAPTION = "Each pair of cells at equal tokens, at equal FLOPs, and at equal multiples of the crossing."
MARKS = "bars: 95 % intervals over runs; hollow: a sixth earlier"
_ALIGNMENTS = {  # field of a contrast -> its colour, its mark, its name
    "tokens": (OKABE_ITO[0], "o", "at equal tokens"),
    "flops": (OKABE_ITO[5], "s", "at equal FLOPs"),
    "multiples": (OKABE_ITO[1], "D", "at equal multiples of the crossing"),
}
_MOST = 12  # rows; of more those that differ most
_STEP = 0.23  # from mark to mark, in rows
_SAID = {  # of one pair, and of more
    Kind.QUALITY: ("differs in quality", "differ in quality"),
    Kind.SPEED: ("differs in speed alone", "differ in speed alone"),
    Kind.OPEN: ("is open", "are open"),
    Kind.NONE: ("is not aligned", "are not aligned"),
}
_WORDS = {Kind.OPEN: "open", Kind.NONE: "not aligned"}


def alignments(contrasts: Sequence[Contrast], subtitle: str = "") -> Drawing | None:
    """A row for each pair of cells, with a mark for each alignment; to the right the first of the pair is better.

    Args:
        contrasts: Of a page; those of more than two cells are left out.
        subtitle: A line at the bottom.

    Returns:
        None without a pair that is aligned.
    """
    pairs = [one for one in contrasts if one.is_pair]  # aligned ones first, large differences before small ones
    pairs = sorted(pairs, key=lambda one: (one.multiples is None, -abs(one.tokens.mean or 0.0)))[:_MOST]
    if not any(one.multiples for one in pairs):
        return None
    with mpl.rc_context(STYLE):
        figure = blank(1.8 + 0.62 * len(pairs))
        key, panels = keyed(figure, 1.3, 1, 1)
        axes = panels[0, 0]
        axes.axvline(0, color=FAINT, lw=1, zorder=1)
        for row, one in enumerate(pairs):
            _draw(axes, row, one)
        axes.set_yticks(range(len(pairs)), [_in_two_lines(one.name) for one in pairs])
        axes.set_ylim(len(pairs) - 0.45, -0.55)
        axes.set_xlabel("nats by which the first is better")
        axes.grid(axis="y", visible=False)
        for row in range(1, len(pairs)):
            axes.axhline(row - 0.5, color="#eeeeee", lw=0.8, zorder=0)
        marks = [Line2D([], [], color=hue, marker=mark, ms=6, lw=2.2, label=name)
                 for hue, mark, name in _ALIGNMENTS.values()]  # fmt: skip
        marks.append(Line2D([], [], color=INK, marker="|", ms=10, mew=1.6, ls="", label="if it were an offset"))
        key.legend(
            handles=marks, loc="center left", ncols=4, fontsize=9, borderaxespad=0, handlelength=1.2, columnspacing=1.2
        )
        titles(figure, "Faster, or better?", subtitle, answer(contrasts))
    return figure


def answer(contrasts: Sequence[Contrast]) -> str:
    """``Of 5 pairs 1 differs in quality, 1 is open, 3 are not aligned``; empty without a pair."""
    counts = Counter(one.kind for one in contrasts if one.is_pair)
    if counts.total() == 1:
        return f"The pair {_SAID[next(iter(counts))][0]}"
    parts = [f"{counts[k]} {many if counts[k] > 1 else one}" for k, (one, many) in _SAID.items() if counts[k]]
    return f"Of {counts.total()} pairs {', '.join(parts)}" if parts else ""


def _draw(axes: Axes, row: int, one: Contrast) -> None:
    for place, (name, (hue, mark, _)) in enumerate(_ALIGNMENTS.items()):
        _point(axes, row + (place - 1) * _STEP, one.facing(getattr(one, name)), hue, mark)
    hue, mark, _ = _ALIGNMENTS["multiples"]
    _point(axes, row + 1.55 * _STEP, one.facing(one.earlier), hue, mark, is_small=True)
    if one.left is not None:
        left = -one.left if one.is_turned else one.left
        axes.plot(left, row + _STEP, "|", color=INK, ms=10, mew=1.6, zorder=5)
    says = _WORDS.get(one.kind, str(one.kind))
    axes.annotate(says, (1.015, row), xycoords=("axes fraction", "data"), ha="left", va="center", fontweight="bold")


def _point(axes: Axes, y: float, interval: Interval | None, hue: str, mark: str, *, is_small: bool = False) -> None:
    if interval is None or interval.mean is None:
        return
    low, high = (interval.mean if end is None else end for end in (interval.low, interval.high))
    axes.plot([low, high], [y, y], "-", color=hue, lw=0.9 if is_small else 2.2, zorder=3)
    inside, edge, size = ("white", 0.9, 3.6) if is_small else (hue, 1.0, 6.0)
    axes.plot(interval.mean, y, mark, color=hue, mfc=inside, mew=edge, ms=size, zorder=4)


def _in_two_lines(name: str) -> str:
    """What differs, and below it what both have."""
    first, bracket, rest = name.partition(" (")
    return "\n".join([shown(first, 44), *([shown(rest.removesuffix(")"), 44)] if bracket else [])])
