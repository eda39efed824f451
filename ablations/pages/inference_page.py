"""The inference section of a page: its table and figure, from `inference.json` and the records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ablations.core import store
from ablations.core.formatting import (
    Entry,
    Sheet,
    comma_separated,
    fixed,
    markdown,
    path_text,
    places,
    quantity,
    value_text,
)
from ablations.core.statistics import mean_interval
from ablations.figures.style import OKABE_ITO, STYLE, blank, keyed, save, shown, titles
from ablations.measurements.measurements import Measurements
from ablations.running import inference
from ablations.schema.cell import Cell
from lightning_modules import files

_CAPTION = "Score, or parameters, over the time of a forward pass"


def publish(known: Measurements, folder: Path) -> dict[str, Path]:
    """Writes ``inference.md``, ``.csv`` and ``.svg`` beside the measurements of a folder.

    The bytes depend only on the measurements and the records.

    Returns:
        The files written, by name; none if inference was not measured.
    """
    measured = inference.read(folder)
    if not measured:
        return {}
    try:
        reading, everything = sheets(known.cells, measured)
        drawn = figure(known, measured)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # another program wrote it
        raise inference.no_measurements(folder, error) from error
    paths = {end: folder / f"{inference.NAME}.{end}" for end in ("md", "csv", "svg")}
    store.write(paths["md"], markdown(reading).encode())
    store.write(paths["csv"], comma_separated(everything).encode())
    save(drawn, paths["svg"])
    return {path.name: path for path in paths.values()}


def part(folder: Path) -> list[str]:
    """The paragraphs of a page about the files of `publish`; none if inference was not measured."""
    table = folder / f"{inference.NAME}.md"
    if not inference.read(folder):
        return []
    links = ", ".join(f"[{end}]({inference.NAME}.{end})" for end in ("md", "csv", "json"))
    image = f"![{_CAPTION}]({inference.NAME}.svg)"
    return [
        "## Inference, measured",
        files.read_text(table, within=folder.parents[1]).rstrip("\n"),
        f"As files: {links}.",
        image,
    ]


def sheets(cells: Sequence[Cell], measured: Sequence[Mapping[str, Any]]) -> tuple[Sheet, Sheet]:
    """The table to read and the table of every number: one row per cell and device."""
    paths = list(dict.fromkeys(path for cell in cells for path in cell.values))
    batches = inference.batches(measured)
    headings = [*map(path_text, paths), "encoder parameters"]
    headings += [f"{what}, batch of {batch}" for batch in batches for what in ("ms per pass", "peak MB")]
    every = ["cell", *paths, "device", "threads", "length", "parameters"]
    every += [f"{what}, batch {b}" for b in batches for what in ("ms", "ms low", "ms high", "peak MB")]
    reading: list[list[Entry]] = []
    numbers: list[list[Entry]] = []
    for device in measured:
        device_text = f"{device['device']}{_threads(device)}"
        for cell in _by_size(cells, [device]):
            row = device["cells"][cell.label]
            named: list[Entry] = [
                value_text(path, cell.values[path]) if path in cell.values else None for path in paths
            ]
            by_batch = [row[str(batch)] for batch in batches]
            reading.append([
                *named, quantity(row["parameters"]),
                *(text for b in by_batch for text in (_milliseconds(b), f"{b['mb']:.1f}")),
                *([device_text] if len(measured) > 1 else []),
            ])  # fmt: skip
            raw: list[Entry] = [str(cell.values[path]) if path in cell.values else None for path in paths]
            numbers.append([
                cell.label, *raw, device["device"], device["threads"], device["length"], row["parameters"],
                *(b[name] for b in by_batch for name in ("ms", "low", "high", "mb")),
            ])  # fmt: skip
    if len(measured) > 1:
        headings.append("device")
    return Sheet(headings, reading, left=len(paths), notes=_notes(measured)), Sheet(every, numbers)


def _by_size(cells: Sequence[Cell], measured: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """The cells measured on all devices, the smallest first; a grid may have changed since it was measured."""
    common = [cell for cell in cells if all(cell.label in device["cells"] for device in measured)]
    return sorted(common, key=lambda cell: measured[0]["cells"][cell.label]["parameters"])


def _milliseconds(row: Mapping[str, float]) -> str:
    decimals = max(places((row["high"] - row["low"]) / 2, row["ms"]), 0)
    return f"{fixed(row['ms'], decimals)} [{fixed(row['low'], decimals)}, {fixed(row['high'], decimals)}]"


def _threads(device: Mapping[str, Any]) -> str:
    count = device["threads"]
    return "" if count is None else f", {count} thread{'s' * (count > 1)}"


def _notes(measured: Sequence[Mapping[str, Any]]) -> list[str]:
    devices = "; ".join(
        f"{device['device']}{_threads(device)}, torch {device['torch']}, {device['length']} positions, "
        f"{device['turns']} turns, {'processor time of the one thread' if device['clock'] == 'cpu' else 'wall time'}, "
        f"{device['measured'][:10]}"
        for device in measured
    )
    headless = any(device.get("heads_removed") for device in measured)
    missing = "Heads that a cell removes are missing, spread evenly over the layers. " if headless else ""
    return [
        f"Measured on {devices}. One forward pass of the encoder without a head, fp32, random weights, no padding. "
        "Median over turns with the quartiles in brackets. Each turn times all models one after another. "
        "Peak MB: 10^6 bytes of weights and tensors together, by torch's allocator. Another machine gives other "
        f"numbers. {missing}No verdict depends on them."
    ]


def figure(known: Measurements, measured: Sequence[Mapping[str, Any]]) -> Figure:
    """The grid's main metric over the milliseconds per pass: a panel per batch size, a row of panels per device.

    While some cell has no finished run, the y axis shows the encoder's parameters instead.
    """
    cells, batches = _by_size(known.cells, measured), inference.batches(measured)
    main = known.grid.metrics[0]
    scores = {cell.label: mean_interval(list(known.values(cell, main.name).values())) for cell in cells}
    is_scored = all(interval.mean is not None for interval in scores.values())
    paths = list(dict.fromkeys(path for cell in cells for path in cell.values))
    with mpl.rc_context(STYLE):
        drawing = blank(1.6 + 0.2 * -(-len(cells) // 3) + 2.6 * len(measured))
        key, panels = keyed(drawing, -(-len(cells) // 3) + 1, len(measured), len(batches), sharey=True)
        for row_of_panels, device in zip(panels, measured, strict=True):
            for axes, batch in zip(row_of_panels, batches, strict=True):
                for i, cell in enumerate(cells):
                    inference_of_cell, colour = device["cells"][cell.label], OKABE_ITO[i % len(OKABE_ITO)]
                    time, interval = inference_of_cell[str(batch)], scores[cell.label]
                    y = interval.mean if is_scored else inference_of_cell["parameters"]
                    spread = [[time["ms"] - time["low"]], [time["high"] - time["ms"]]]
                    height = interval.half if is_scored else None
                    marker = "o" if i < len(OKABE_ITO) else "s"
                    axes.errorbar(
                        time["ms"], y, _error(height), spread, fmt=marker, ms=6, color=colour, lw=1.2, capsize=2
                    )
                _format(axes, batch, is_log=not is_scored)
            scored = f"{shown(main.label or main.name)}\n{main.better} is better"
            row_of_panels[0].set_ylabel(scored if is_scored else "encoder parameters")
        names = [", ".join(value_text(path, value) for path, value in cell.values.items()) for cell in cells]
        dots = [key.plot([], [], "o" if i < 7 else "s", color=OKABE_ITO[i % 7])[0] for i in range(len(cells))]
        heading = shown(", ".join(map(path_text, paths)), 80)
        key.legend(dots, [shown(n, 30) for n in names], ncols=3, loc="center left", title=heading, alignment="left",
                   fontsize=9, title_fontsize=9, borderaxespad=0)  # fmt: skip
        devices = "; ".join(f"{device['device']}{_threads(device)}" for device in measured)
        titles(drawing, "How long does a forward pass take?", f"{known.grid.name}: {devices}. Bars: quartiles.")
    return drawing


def _error(half: float | None) -> list[list[float]] | None:
    """Error bars of an interval; None if its width is unknown."""
    return None if half is None else [[half], [half]]


def _format(axes: Axes, batch: int, *, is_log: bool) -> None:
    axes.set_xscale("log")
    axes.margins(0.12)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.set_xlabel(f"ms per pass, batch of {batch} (logarithmic)")
