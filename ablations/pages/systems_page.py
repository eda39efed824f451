"""The page of systems of 2018 to 2020: their sizes over the date, and what their trainings are said to have taken."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ablations.core import store
from ablations.core.formatting import Entry, Sheet, comma_separated, markdown, quantity
from ablations.figures.style import FAINT, OKABE_ITO, STYLE, blank, svg, titles
from ablations.literature.systems import SECOND_HAND, Released, peak_share, released, told, training
from lightning_modules.systems import SYSTEMS

_TICKS = (10, 100, 1_000, 10_000, 100_000)
_LEFT, _RIGHT, _BELOW = ((-10, 0), "right", "center"), ((10, 0), "left", "center"), ((0, -10), "center", "top")
_ABOVE = ((0, 10), "center", "bottom")
_PLACES = {
    "ELMo": _BELOW,
    "XLNet": _LEFT,
    "ALBERT": _BELOW,
    "DistilBERT": _RIGHT,
}  # of names that would overlap above their marks


def draw(systems: Sequence[Released]) -> Figure:
    """Every printed size of every system: one column of marks a system, joined, coloured by how it reads the text.

    A hollow mark is a number that the system's authors did not print.
    """
    kinds = list(dict.fromkeys(system.reads for system in systems))
    hues = dict(zip(kinds, OKABE_ITO, strict=False))
    with mpl.rc_context(STYLE):
        figure = blank(5.4)
        axes = figure.add_subplot()
        for system in systems:
            _column(axes, system, hues[system.reads])
        _format(axes, systems)
        marks = [Line2D([], [], color=hue, marker="o", lw=1.6, label=kind) for kind, hue in hues.items()]
        if any(size.second_hand for system in systems for size in system.sizes):
            hollow = {"marker": "o", "mfc": "white", "mec": FAINT, "mew": 1.5, "lw": 0}
            marks.append(Line2D([], [], label="second hand", **hollow))
        axes.legend(handles=marks, loc="upper left", title="reads the text", alignment="left")
        first, last = systems[0].sizes[-1].millions, systems[-1].sizes[-1].millions
        titles(
            figure,
            f"From {systems[0].name} to {systems[-1].name}, models grew by a factor of {last / first:,.0f}",
            "Parameters as printed, at the date of the first version. ELMo's leave out its output layer.",
        )
    return figure


def _column(axes: Axes, system: Released, hue: str) -> None:
    x, sizes = system.months, sorted(size.millions for size in system.sizes)
    axes.plot([x] * len(sizes), sizes, "-", color=hue, lw=2.2, alpha=0.45, zorder=3)
    for size in system.sizes:
        axes.plot(x, size.millions, "o", ms=8, mec=hue, mew=1.8, mfc="white" if size.second_hand else hue, zorder=4)
    values = ", ".join(size.printed.rpartition(" ")[0] for size in sorted(system.sizes, key=lambda s: s.millions))
    unit = system.sizes[0].printed.rpartition(" ")[2]
    offset, ha, va = place = _PLACES.get(system.name, _ABOVE)
    y = {_ABOVE: sizes[-1], _BELOW: sizes[0]}.get(place, (sizes[0] * sizes[-1]) ** 0.5)
    name = {"xytext": offset, "textcoords": "offset points", "ha": ha, "va": va}
    axes.annotate(f"{system.name}\n{values} {unit}", (x, y), **name, fontsize=9.5, color=hue, linespacing=1.2, zorder=6)


def _format(axes: Axes, systems: Sequence[Released]) -> None:
    end = systems[-1].months
    axes.set_yscale("log")
    axes.set_ylim(3, 700_000)
    axes.set_xlim(-2.5, end + 1.5)
    axes.xaxis.set_major_locator(FixedLocator([month for month in range(0, end + 2) if month % 6 == 0]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda month, _: _month(int(month))))
    axes.yaxis.set_major_locator(FixedLocator(_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _quantity(value)))
    axes.set_ylabel("parameters")
    axes.grid(visible=False, axis="x")


def _month(months: int) -> str:
    return f"{'January' if months % 12 == 0 else 'July'}\n{2018 + months // 12}"


def _quantity(millions: float) -> str:
    return f"{millions:,.0f} M" if millions < 1000 else f"{millions / 1000:,.0f} B"


NAME = "systems"


def sizes(systems: tuple[Released, ...]) -> Sheet:
    """Every printed size: system, date, how it reads, parameters, source."""
    rows: list[list[Entry]] = [
        [system.name, system.date, system.reads, size.name, size.printed, size.source, SECOND_HAND * size.second_hand]
        for system in systems
        for size in system.sizes
    ]
    return Sheet(["system", "date", "reads the text", "size", "parameters", "where", "note"], rows, left=7)


def costs() -> Sheet:
    """The blog's table as it is: a row for what it compares, a column for each of its systems."""
    rows = told()
    names = list(dict.fromkeys(_system(row.variant) for row in rows))
    texts: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        size = row.variant.removeprefix(_system(row.variant)).strip("-").capitalize()
        unit = f" {row.unit}" * (row.unit != "text")
        texts.setdefault((row.metric, _system(row.variant)), []).append(f"{size}{': ' * bool(size)}{row.value}{unit}")
    metrics = dict.fromkeys(row.metric for row in rows)
    entries = [[metric, *("; ".join(texts.get((metric, name), ())) for name in names)] for metric in metrics]
    notes = [f"{_system(row.variant)}: {row.note}." for row in rows if row.note != SECOND_HAND]
    return Sheet(["", *names], entries, left=len(names) + 1, notes=list(dict.fromkeys(notes)))


def _system(variant: str) -> str:
    return variant.partition("-")[0]


def beside() -> Sheet:
    """Hardware and days as stated, next to the FLOPs that a training has by our count."""
    rows: list[list[Entry]] = []
    for name, system in SYSTEMS.items():
        said = training(name)
        for hardware in said[1] if said else ():
            speed = hardware.speed(system.flops())
            share = None if speed is None else peak_share(hardware, speed)
            rows.append(
                [name, str(hardware), "" if hardware.chip_days is None else f"{hardware.chip_days:,.0f}",
                 quantity(system.tokens()), f"{system.flops():.2g}", "" if speed is None else f"{speed / 1e12:.0f}",
                 "" if share is None else f"{100 * share:.0f} %"]
            )  # fmt: skip
    notes = [
        "Hardware and days are second hand. Tokens and FLOPs are those of our system of that name, forward and "
        "backward, matrix products only. The last two columns follow: the speed that each chip must have had, and its "
        "share of the printed peak in half precision. Usual are some 20 to 50 %: less means a wasteful training, more "
        "that hardware, days and recipe do not belong together."
    ]
    headings = ["system", "as told", "chip days", "our tokens", "our FLOPs", "TFLOP/s a chip", "of its peak"]
    return Sheet(headings, rows, left=2, notes=notes)


def publish(folder: Path) -> list[Path]:
    """Writes ``systems`` as ``.md``, ``.csv`` and ``.svg`` into a folder; the bytes depend on stored values alone.

    Returns:
        The files written.
    """
    systems = released()
    text = (
        "# Systems of 2018 to 2020\n\n![Printed parameters of nine systems over the date](systems.svg)\n\n"
        f"{markdown(sizes(systems))}\n"
        f"## What their trainings took, second hand\n\n{markdown(costs())}\n"
        f"## Compared with our own count\n\n{markdown(beside())}"
    )
    contents = {"md": text, "csv": comma_separated(sizes(systems)), "svg": svg(draw(systems))}
    paths = [folder / f"{NAME}.{end}" for end in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        store.write(path, content.encode())
    return paths
