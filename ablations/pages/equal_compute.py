"""One grid read at equal steps, tokens, FLOPs or seconds, from the curves that its records keep.

A grid holds one of these equal while it runs; a reader may want another. ALBERT is the case: its widest model is ahead
of BERT-large by 3.5 points after equal steps (Lan et al. 2020, Table 2) and by 1.5 after equal hours (Table 6). Here
each run's held-out loss is read at the largest amount that every finished run has reached.

Differences to a training that was planned for that amount, and they are not small: a run that is read on its way has
not finished its learning-rate schedule, and would stand lower had it been planned so short; and FLOPs and seconds are
taken to grow in proportion to tokens within a run, because a record keeps their totals alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablations.core.formatting import (
    Entry,
    Sheet,
    difference_text,
    duration,
    mean_text,
    path_text,
    quantity,
    value_text,
)
from ablations.core.statistics import Interval, mean_interval
from ablations.measurements.pairs import baseline_of, paired_by_seed
from ablations.measurements.table import Measurements, device_class
from ablations.schema.cell import Cell
from ablations.schema.record import Record

METRIC = "heldout.loss"
UNITS = ("steps", "tokens", "flops", "seconds")
_NAMES = {"steps": "steps", "tokens": "tokens", "flops": "FLOPs", "seconds": "time"}
_NUMBERS = (
    "amount", "mean", "low", "high", "n", "interpolated", "share", "difference", "difference low", "difference high",
    "pairs",
)  # fmt: skip
_SAME = 1e-9  # relative difference of two amounts that are one but for rounding


@dataclass(frozen=True)
class Read:
    """One cell at the common amount.

    Attributes:
        values: Held-out loss by seed, nats.
        runs: The run ids behind them.
        interpolated: How many of them lie between two measurements.
        share: How much of its training a run has behind it there, mean over runs, 0 to 1.
        difference: To the baseline, paired by seed within a device class; None for the baseline or without one, and
            where the runs are those of the baseline.
    """

    cell: Cell
    values: dict[int, float]
    runs: tuple[str, ...]
    interpolated: int
    share: float | None
    difference: Interval | None

    @property
    def interval(self) -> Interval:
        """Mean over seeds with its 95 % interval."""
        return mean_interval(list(self.values.values()))


@dataclass(frozen=True)
class Reading:
    """All cells at one amount of one unit.

    Attributes:
        amount: The largest that every finished run has reached; None where there is none or none is comparable.
        why: Why there is none.
    """

    unit: str
    amount: float | None
    cells: tuple[Read, ...]
    why: str = ""

    @property
    def heading(self) -> str:
        """``at 2.8 k steps``, ``at 118 s``."""
        if self.amount is None:
            return f"at equal {_NAMES[self.unit]}"
        if self.unit == "seconds":
            return f"at {duration(self.amount)}"
        return f"at {quantity(self.amount)}{'FLOP' if self.unit == 'flops' else f' {self.unit}'}"


def amounts(record: Record, unit: str) -> list[float]:
    """How much of a unit a run had used at each point of its curve; empty where the record does not say."""
    tokens, total = record.curve.get("tokens", []), record.cost.get("tokens")
    if unit == "steps":
        return record.curve.get("step", [])
    if unit == "tokens":
        return tokens
    whole = record.cost.get(unit)
    return [count * whole / total for count in tokens] if whole and total else []


def value_at(record: Record, unit: str, amount: float, metric: str = METRIC) -> tuple[float, bool] | None:
    """A measurement of a run at an amount, and whether it is interpolated.

    Linear between two points in the logarithm of the amount; nothing is extrapolated.

    Returns:
        None before the first point of the curve, beyond the last, or without a curve.
    """
    used, values = amounts(record, unit), record.curve.get(metric, [])
    if not used or len(used) != len(values) or used[0] <= 0:
        return None
    for at, value in zip(used, values, strict=True):
        if abs(at - amount) <= _SAME * amount:
            return value, False
    if not used[0] < amount < used[-1]:
        return None
    return float(np.interp(np.log(amount), np.log(used), values)), True


def read(measured: Measurements, unit: str) -> Reading:
    """Every cell at the largest amount of a unit that all finished runs with a curve have reached."""
    cells = measured.cells
    finished = [_curved(cell, measured, unit) for cell in cells]
    used = [(record, amounts(record, unit)[-1]) for runs in finished for record in runs.values()]
    devices = sorted({device_class(record) for record, _ in used})
    if not used:
        return Reading(unit, None, (), "no finished run has a curve of it")
    if unit == "seconds" and len(devices) > 1:
        return Reading(unit, None, (), f"the runs come from several device classes: {', '.join(devices)}")
    amount = min(last for _, last in used)
    found = {cell.label: _values(runs, unit, amount) for cell, runs in zip(cells, finished, strict=True)}
    reads = []
    for cell, runs in zip(cells, finished, strict=True):
        here = found[cell.label]
        shares = [amount / amounts(runs[seed], unit)[-1] for seed in here]
        reads.append(
            Read(
                cell=cell,
                values={seed: value for seed, (value, _) in here.items()},
                runs=tuple(runs[seed].id for seed in here),
                interpolated=sum(between for _, between in here.values()),
                share=float(np.mean(shares)) if shares else None,
                difference=_difference(measured, cell, found),
            )
        )
    return Reading(unit, amount, tuple(reads))


def _curved(cell: Cell, measured: Measurements, unit: str) -> dict[int, Record]:
    return {s: r for s, r in measured.finished(cell).items() if r.curve.get(METRIC) and amounts(r, unit)}


def _values(runs: dict[int, Record], unit: str, amount: float) -> dict[int, tuple[float, bool]]:
    return {seed: found for seed, record in sorted(runs.items()) if (found := value_at(record, unit, amount))}


def _difference(measured: Measurements, cell: Cell, found: dict[str, dict[int, tuple[float, bool]]]) -> Interval | None:
    home = baseline_of(measured.grid, measured.cells, cell)
    if home is None or home is cell:
        return None
    finished = [{record.id for record in measured.finished(side).values()} for side in (cell, home)]
    if finished[0] == finished[1]:
        return None
    rows = [(measured.of(side, METRIC), found[side.label]) for side in (cell, home)]
    sides = [{seed: of[seed]._replace(value=value) for seed, (value, _) in here.items()} for of, here in rows]
    return paired_by_seed(sides).contrast.interval()


# --- as tables


def single(measured: Measurements, unit: str) -> Sheet:
    """The grid at equal amounts of one unit: loss, difference to the baseline, how far each run had come."""
    measured = measured.in_order()
    reading, paths = read(measured, unit), _paths(measured.cells)
    headings = [*map(path_text, paths), "runs", f"held-out loss (nats) {reading.heading}", "minus baseline"]
    rows: list[list[Entry]] = [
        [*_knobs(one.cell, paths), len(one.values), _mean(one), _minus(one, measured), _share(one)]
        for one in reading.cells
    ]
    return Sheet([*headings, "of its training"], rows, left=len(paths), notes=_notes([reading]))


def sheets(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """The grid at equal steps, tokens, FLOPs and seconds: to read, every number, and the runs behind them.

    None where fewer than two cells have finished runs of their own with a curve.
    """
    measured = measured.in_order()
    cells, readings = measured.cells, [read(measured, unit) for unit in UNITS]
    if len({one.runs for reading in readings for one in reading.cells if one.runs}) < 2:
        return None
    paths, at = _paths(cells), [{one.cell.label: one for one in reading.cells} for reading in readings]
    lines = [(cell, [found.get(cell.label) for found in at]) for cell in cells]
    shown = Sheet(
        [*map(path_text, paths), *(reading.heading for reading in readings)],
        [[*_knobs(cell, paths), *(_mean(one) if one else "" for one in found)] for cell, found in lines],
        left=len(paths),
        notes=_notes(readings),
    )
    everything = Sheet(
        ["cell", *paths, *(f"{unit} {name}" for unit in UNITS for name in _NUMBERS)],
        [
            [cell.label, *_knobs(cell, paths)]
            + [entry for reading, one in zip(readings, found, strict=True) for entry in _numbers(reading, one)]
            for cell, found in lines
        ],
    )
    runs = {r.unit: {"amount": r.amount, "runs": {one.cell.label: one.runs for one in r.cells}} for r in readings}
    return shown, everything, {"metric": METRIC, "readings": runs}


def plain(reading: Reading, one: Read) -> dict[str, Entry]:
    """Every number of a cell at the common amount, by name."""
    return {"cell": one.cell.label, "equal": reading.unit, **dict(zip(_NUMBERS, _numbers(reading, one), strict=True))}


def _numbers(reading: Reading, one: Read | None) -> list[Entry]:
    if one is None:
        return [reading.amount, *([None] * 10)]
    mean, minus = one.interval, one.difference
    difference = (minus.mean, minus.low, minus.high, minus.n) if minus else (None,) * 4
    return [reading.amount, mean.mean, mean.low, mean.high, mean.n, one.interpolated, one.share, *difference]


def _paths(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(path for cell in cells for path in cell.values))


def _knobs(cell: Cell, paths: Sequence[str]) -> list[Entry]:
    return [value_text(path, cell.values[path]) if path in cell.values else None for path in paths]


def _mean(one: Read) -> str:
    return mean_text(one.interval) + "*" * bool(one.interpolated)


def _minus(one: Read, measured: Measurements) -> str:
    if one.difference is not None:
        return difference_text(one.difference)
    home = baseline_of(measured.grid, measured.cells, one.cell)
    if home is one.cell:
        return "baseline"
    shared = home is not None and one.runs and {r.id for r in home.runs} == {r.id for r in one.cell.runs}
    return "same runs" if shared else ""


def _share(one: Read) -> str:
    return "" if one.share is None else f"{100 * one.share:.0f} %"


def _notes(readings: Sequence[Reading]) -> list[str]:
    shown = [reading for reading in readings if reading.amount is not None]
    notes = [f"No reading {reading.heading}: {reading.why}." for reading in readings if reading.amount is None]
    if not shown:
        return notes
    notes.insert(
        0,
        "Held-out loss in nats, mean ± half-width of the 95 % t interval over seeds, at the largest amount that every "
        "finished run has reached. A run that is read before its end has not finished its learning-rate schedule; one "
        "planned for that amount would stand lower.",
    )
    if any(one.interpolated for reading in shown for one in reading.cells):
        notes.append("*: interpolated between two measurements of at least one run.")
    if any(reading.unit in ("flops", "seconds") for reading in shown):
        notes.append("FLOPs and time are taken to grow in proportion to tokens within a run.")
    if any(reading.unit == "seconds" for reading in shown):
        notes.append("Time is that of each run on its machine, as busy as that was.")
    best = {r.unit: min((one for one in r.cells if one.values), key=_height).cell.label for r in shown if _even(r)}
    if len(set(best.values())) > 1:
        said = "; ".join(f"at equal {_NAMES[unit]} {name}" for unit, name in best.items())
        notes.append(f"The lowest mean loss depends on what is equal: {said}.")
    return notes


def _even(reading: Reading) -> bool:
    """Whether all cells are read in the same seeds, so that their means may be ranked."""
    seeds = {frozenset(one.values) for one in reading.cells if one.values}
    return len(seeds) == 1


def _height(one: Read) -> float:
    mean = one.interval.mean
    return float("inf") if mean is None else mean
