"""The inference section of a page: its table and figure, from `inference.json` and the records."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ablations.core import store
from ablations.core.formatting import (
    Entry,
    Sheet,
    cell_text,
    comma_separated,
    fixed,
    markdown,
    mean_text,
    path_text,
    places,
    quantity,
    value_text,
    value_texts,
)
from ablations.core.statistics import Interval, mean_interval
from ablations.figures.style import FAINT, OKABE_ITO, STYLE, blank, keyed, save, shown, titles
from ablations.measurements import pareto
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import paths_of
from ablations.running import inference
from ablations.schema.cell import Cell

_CAPTION = "Score over parameters, FLOPs, file size and time, with the Pareto front"
_COLUMNS = 3  # of panels
_DOMINATED = "#909090"
_MARKERS = "osD^vPX<>"


def publish(known: Measurements, folder: Path) -> dict[str, Path]:
    """Writes ``inference.md``, ``.csv`` and ``.svg`` next to the measurements of a folder.

    The bytes depend only on the measurements and the records.

    Returns:
        The files written, by name; none if inference was not measured.
    """
    measured = inference.read(folder)
    if not measured:
        return {}
    try:
        reading, everything = sheets(known, measured)
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
    if not inference.read(folder):
        return []
    links = ", ".join(f"[{end}]({inference.NAME}.{end})" for end in ("md", "csv", "json"))
    image = f"![{_CAPTION}]({inference.NAME}.svg)"
    return ["## Inference, measured", image, f"As files: {links}."]


def sheets(known: Measurements, measured: Sequence[Mapping[str, Any]]) -> tuple[Sheet, Sheet]:
    """The table to read and the table of every number: one row per cell and device.

    Where some cell has a score, the table to read has it, and on the front of which costs a cell is.
    """
    cells, main = known.cells, known.grid.metrics[0]
    paths = paths_of(cells)
    batches, score = inference.batches(measured), pareto.scores(known, main.name)
    headings = [*map(path_text, paths), "encoder parameters", "FLOPs", "MB of the file"]
    is_alone = len(measured) == 1  # of several devices a page has no room for memory, which the CSV has
    headings += [f"{what}, batch of {n}" for n in batches for what in ("ms per pass", "peak MB")[: 1 + is_alone]]
    every = ["cell", *paths, "device", "threads", "length", "parameters", "flops", "file mb"]
    every += [f"{what}, batch {b}" for b in batches for what in ("ms", "ms low", "ms high", "peak MB")]
    reading: list[list[Entry]] = []
    numbers: list[list[Entry]] = []
    for device in measured:
        device_text = f"{device['device']}{_threads(device)}"
        fronts = {cost.name: pareto.front(cost.of, score, main.better) for cost in pareto.costs([device], batches)}
        for cell in _by_size(cells, [device]):
            row = device["cells"][cell.label]
            by_batch = [row[str(batch)] for batch in batches]
            on = [_brief(name) for name, labels in fronts.items() if cell.label in labels]
            scored = (
                [mean_text(score[cell.label]), ", ".join(on) or "none"] if cell.label in score else ["no record", ""]
            )
            reading.append([
                *value_texts(cell.values, paths), *(scored if score else []),
                quantity(row["parameters"]), quantity(row["flops"]), f"{row['file_mb']:.2f}",
                *(text for b in by_batch for text in (_milliseconds(b), f"{b['mb']:.1f}")[: 1 + is_alone]),
                *([device_text] if len(measured) > 1 else []),
            ])  # fmt: skip
            raw: list[Entry] = [str(cell.values[path]) if path in cell.values else None for path in paths]
            numbers.append([
                cell.label, *raw, device["device"], device["threads"], device["length"], row["parameters"],
                row["flops"], row["file_mb"], *(b[name] for b in by_batch for name in ("ms", "low", "high", "mb")),
            ])  # fmt: skip
    if score:
        headings[len(paths) : len(paths)] = [main.label or main.name, "on the front of"]
    if len(measured) > 1:
        headings.append("device")
    return Sheet(headings, reading, left=len(paths), notes=_notes(known, measured, score)), Sheet(every, numbers)


def _brief(name: str) -> str:
    """A cost in a word or two; of times all but the machine, which a row names."""
    short = {pareto.PARAMETERS: "parameters", pareto.FLOPS: "FLOPs", pareto.FILE: "file"}
    return short.get(name) or ", ".join(name.split(", ")[:2])


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


def _notes(known: Measurements, measured: Sequence[Mapping[str, Any]], score: Mapping[str, Interval]) -> list[str]:
    devices = "; ".join(
        f"{device['device']}{_threads(device)}, torch {device['torch']}, {device['length']} positions, "
        f"{device['turns']} turns, {'processor time of the one thread' if device['clock'] == 'cpu' else 'wall time'}, "
        f"{device['measured'][:10]}"
        for device in measured
    )
    headless = any(device.get("heads_removed") for device in measured)
    missing = "Heads that a cell removes are missing, spread evenly over the layers. " if headless else ""
    notes = [
        f"Measured on {devices}. One forward pass of the encoder without a head, fp32 unless a cell says int8, random "
        "weights, no padding. Median over turns with the quartiles in brackets. Each turn times all models one after "
        "another. FLOPs: of the matrix products for a sequence. MB of the file: 10^6 bytes of the weights as torch "
        "saves them, zeros included. Peak MB: 10^6 bytes of weights and tensors together, by torch's allocator. "
        f"Another machine gives other numbers. {missing}No verdict depends on them."
    ]
    if not score:
        return notes
    unscored = [cell_text(cell.values) for cell in known.cells if cell.label not in score]
    notes.append(
        "On the front of a cost: no other model with a record costs no more and scores as well or better. Means decide "
        "it, so two whose intervals overlap may change places."
    )
    absent = f"Not compared, without a finished run: {'; '.join(unscored)}."
    return [*notes, absent] if unscored else notes


def figure(known: Measurements, measured: Sequence[Mapping[str, Any]]) -> Figure:
    """The grid's main metric over each cost, with the Pareto front: a panel per cost, dominated cells in grey.

    A cell has one marker in all panels. Cells without a finished run are listed and have none. While no cell has a run
    the y axis shows the encoder's parameters instead.
    """
    cells, main = _by_size(known.cells, measured), known.grid.metrics[0]
    shown_cells, score = {cell.label for cell in cells}, pareto.scores(known, main.name)
    every = pareto.costs(measured, inference.batches(measured))
    if is_scored := bool(shown_cells & score.keys()):
        heights = {label: interval for label, interval in score.items() if label in shown_cells}
        fronts = {cost.name: pareto.front(cost.of, heights, main.better) for cost in every}
    else:
        sizes, *every = every
        heights = {label: mean_interval([float(sizes.of[label])]) for label in shown_cells}
        fronts = {cost.name: [cell.label for cell in cells] for cost in every}
    names = {cell.label: ", ".join(value_text(path, value) for path, value in cell.values.items()) for cell in cells}
    bright = [cell.label for cell in cells if any(cell.label in front for front in fronts.values())]
    colour = {label: OKABE_ITO[i % len(OKABE_ITO)] for i, label in enumerate(bright)}
    marker = dict(zip((cell.label for cell in cells if cell.label in heights), itertools.cycle(_MARKERS), strict=False))
    rows, lines = -(-len(every) // _COLUMNS), -(-len(cells) // _COLUMNS)
    with mpl.rc_context(STYLE):
        drawing = blank(1.6 + 0.2 * lines + 2.5 * rows)
        key, grid = keyed(drawing, lines + 1, rows, _COLUMNS, sharey=True)
        panels = grid.flatten()
        for axes, cost in zip(panels, every, strict=False):
            on = fronts[cost.name]
            if is_scored:
                steps = [(cost.of[label], _height(heights[label])) for label in on]
                axes.step(*zip(*steps, strict=True), where="post", color=FAINT, lw=1.0, zorder=1)
            for label, interval in heights.items():
                x, is_on = cost.of[label], label in on
                low, high = cost.spread.get(label, (x, x))
                spread = [[max(0.0, x - low)], [max(0.0, high - x)]]
                half = None if interval.half is None else [[interval.half], [interval.half]]
                look = {"color": colour[label], "zorder": 3} if is_on else {"color": _DOMINATED, "zorder": 2}
                axes.errorbar(x, _height(interval), half, spread, fmt=marker[label], ms=6, lw=1.2, capsize=2,
                              **look)  # fmt: skip
            _format(axes, cost.name, is_log=not is_scored)
        for axes in panels[len(every) :]:
            axes.axis("off")
        for first in grid[:, 0]:
            scored = f"{shown(main.label or main.name)}\n{main.better} is better"
            first.set_ylabel(scored if is_scored else "encoder parameters")
        dots = [key.plot([], [], marker=marker.get(one), ls="", color=colour.get(one, _DOMINATED))[0] for one in names]
        told = [name if label in heights else f"{name} (no run)" for label, name in names.items()]
        heading = shown(", ".join(map(path_text, paths_of(cells))), 80)
        key.legend(dots, [shown(name, 34) for name in told], ncols=_COLUMNS, loc="center left", title=heading,
                   alignment="left", fontsize=9, title_fontsize=9, borderaxespad=0)  # fmt: skip
        devices = "; ".join(dict.fromkeys(f"{device['device']}" for device in measured))
        grey = " Line: the best score for a cost. Grey: another model costs no more and scores as well." * is_scored
        asked = "Which models are worth their cost?" if is_scored else "How long does a forward pass take?"
        titles(
            drawing,
            asked,
            f"{known.grid.name}: {devices}. Bars: quartiles of times{', 95 % intervals of scores' * is_scored}.{grey}",
        )
    return drawing


def _height(interval: Interval) -> float:
    assert interval.mean is not None, "cells without a mean have no score"
    return interval.mean


def _format(axes: Axes, name: str, *, is_log: bool) -> None:
    axes.margins(0.12)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    if is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    axes.set_xlabel(name, fontsize=9)
