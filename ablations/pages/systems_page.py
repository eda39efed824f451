"""The page of systems of 2018 to 2020: their sizes over the date, and what their trainings are said to have taken."""

from pathlib import Path

from ablations.core import store
from ablations.core.formatting import Entry, Sheet, comma_separated, markdown, quantity
from ablations.figures.style import svg
from ablations.figures.systems import draw
from ablations.literature.systems import SECOND_HAND, Released, peak_share, released, told, training
from lightning_modules.systems import SYSTEMS

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
        "that hardware, days and recipe do not belong together.",
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
