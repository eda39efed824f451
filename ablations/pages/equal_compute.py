"""The cells of a grid at equal steps, tokens, FLOPs or seconds, from the curves in their records.

A grid holds one of these equal; a reader may want another. In ALBERT the widest model beats BERT-large by 3.5 points
after equal steps (Lan et al. 2020, Table 2) and by 1.5 after equal hours (Table 6). Here each run's held-out loss,
the first that the grid asks for, is interpolated at the largest amount that every finished run has reached.

A training planned for that amount would differ, and not by little: before its end a run has not finished its
learning-rate schedule, so its loss is higher than that of a run planned so short. Within a run, FLOPs and seconds are
assumed to grow in proportion to tokens, because a record keeps only their totals.
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
    value_texts,
)
from ablations.core.statistics import Interval, mean_interval
from ablations.measurements import trunks
from ablations.measurements.curves import Crossing, amounts, crossing, curve, final_slope, geometric_mean, value_at
from ablations.measurements.measurements import BySeed, Measurements, device_class
from ablations.measurements.references import heldout_metric
from ablations.measurements.selection import baseline_of, paths_of
from ablations.measurements.sides import one_text
from ablations.measurements.variances import differences
from ablations.schema.cell import Cell
from ablations.schema.metrics import HELDOUT
from ablations.schema.record import Record

METRIC = HELDOUT[0]  # of a grid that asks for no loss on held-out text
UNITS = ("steps", "tokens", "flops", "seconds")
_NAMES = {"steps": "steps", "tokens": "tokens", "flops": "FLOPs", "seconds": "time"}
_NUMBERS = (
    "amount", "mean", "low", "high", "n", "interpolated", "share", "difference", "difference low", "difference high",
    "difference n",
)  # fmt: skip
_ASKED = ("predictions per step", "predictions per 100 tokens")
_ASKED_NOTE = (
    "Predictions are the tokens predicted in pretraining, counted for full rows of one segment. A language model "
    "predicts every token, a masked one those it hides. At equal tokens one has learned from several times more "
    "predictions than the other. Losses of different kinds of predictions do not compare."
)
_LEARNING = ("crossing (tokens)", "final slope (nats)")
_LEARNING_NOTE = (
    "Crossing: the tokens at which the loss passes the bigram baseline, read off the curve in the logarithm of tokens. "
    "It is the geometric mean over runs, with the measured points on either side in brackets. Final slope: by how much "
    "the loss fell over the last doubling of tokens."
)
_QUIET = 1.25  # how many times as long as another an equal run may take, or time reflects the machine's other work


@dataclass(frozen=True)
class CellAtBudget:
    """One cell at the common amount.

    Attributes:
        values: Held-out loss by seed, nats.
        runs: The run ids behind them.
        interpolated: How many of the values lie between two measurements.
        share: The fraction of its training that a run has made at this amount, mean over runs, 0 to 1.
        difference: To the baseline, within a device class; None for the baseline, without one, and for
            cells with the runs of the baseline.
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
class EqualCompute:
    """All cells at one amount of one unit.

    Attributes:
        amount: The largest that every finished run has reached; None if the cells cannot be compared.
        why: Why they cannot.
        metric: The loss that is read.
    """

    unit: str
    amount: float | None
    cells: tuple[CellAtBudget, ...]
    why: str = ""
    metric: str = METRIC

    @property
    def heading(self) -> str:
        """``at 2.8 k steps``, ``at 118 s``."""
        if self.amount is None:
            return f"at equal {_NAMES[self.unit]}"
        if self.unit == "seconds":
            return f"at {duration(self.amount)}"
        return f"at {quantity(self.amount)}{'FLOP' if self.unit == 'flops' else f' {self.unit}'}"

    def to_dicts(self) -> list[dict[str, Entry]]:
        """Every number of each cell, by name."""
        return [
            {"cell": at.cell.label, "equal": self.unit, **dict(zip(_NUMBERS, _numbers(self, at), strict=True))}
            for at in self.cells
        ]


def compare(measured: Measurements, unit: str) -> EqualCompute:
    """Compares the cells at the largest amount of a unit that every finished run with a curve has reached."""
    cells = measured.cells
    metric = _metric(measured)
    finished = [_curved(cell, measured, unit, metric) for cell in cells]
    used = [(record, amounts(record, unit)[-1]) for runs in finished for record in runs.values()]
    devices = sorted({device_class(record) for record, _ in used})
    if not used:
        return EqualCompute(unit, None, (), "no finished run has a curve of it")
    if unit == "seconds" and len(devices) > 1:
        return EqualCompute(unit, None, (), f"the runs come from several device classes: {', '.join(devices)}")
    if unit == "seconds" and (uneven := _uneven(finished)):
        return EqualCompute(unit, None, (), uneven)
    amount = min(last for _, last in used)
    losses = {cell.label: _values(runs, unit, amount, metric) for cell, runs in zip(cells, finished, strict=True)}
    at_amount = []
    for cell, runs in zip(cells, finished, strict=True):
        by_seed = losses[cell.label]
        shares = [amount / amounts(runs[seed], unit)[-1] for seed in by_seed]
        at_amount.append(
            CellAtBudget(
                cell=cell,
                values={seed: value for seed, (value, _) in by_seed.items()},
                runs=tuple(runs[seed].id for seed in by_seed),
                interpolated=sum(is_interpolated for _, is_interpolated in by_seed.values()),
                share=float(np.mean(shares)) if shares else None,
                difference=_difference(measured, cell, losses),
            )
        )
    return EqualCompute(unit, amount, tuple(at_amount), metric=metric)


def _metric(measured: Measurements) -> str:
    return heldout_metric(measured.grid) or METRIC


def _curved(cell: Cell, measured: Measurements, unit: str, metric: str) -> dict[int, Record]:
    finished = measured.finished(cell).items()
    return {s: r for s, r in finished if r.curve.get(metric) and (used := amounts(r, unit)) and used[-1] > 0}


def _uneven(finished: Sequence[dict[int, Record]]) -> str:
    """Why the seconds of runs do not compare: runs of one cell compute the same and took other times; or empty."""
    took = [[record.cost["seconds"] for record in runs.values()] for runs in finished]
    longest, shortest = max(((max(times), min(times)) for times in took if times), key=lambda pair: pair[0] / pair[1])
    if longest <= _QUIET * shortest:
        return ""
    return f"runs of one cell, which compute the same, took {duration(shortest)} to {duration(longest)}"


def _values(runs: dict[int, Record], unit: str, amount: float, metric: str) -> dict[int, tuple[float, bool]]:
    return {seed: loss for seed, record in sorted(runs.items()) if (loss := value_at(record, unit, amount, metric))}


def _difference(
    measured: Measurements, cell: Cell, losses: dict[str, dict[int, tuple[float, bool]]]
) -> Interval | None:
    baseline, metric = baseline_of(measured.grid, measured.cells, cell), _metric(measured)
    if baseline is None or baseline is cell or not one_text([cell, baseline], metric):
        return None
    pair = (cell, baseline)
    finished = [{record.id for record in measured.finished(member).values()} for member in pair]
    if finished[0] == finished[1]:
        return None

    def at_amount(member: Cell) -> BySeed:
        rows = measured.of(member, metric)
        return {s: rows[s]._replace(value=value) for s, (value, _) in losses.get(member.label, {}).items() if s in rows}

    _, difference = differences(measured, at_amount)(cell, baseline)
    return difference.interval() if difference else Interval(None, None, None, 0)


# --- tables


def single(measured: Measurements, unit: str) -> Sheet:
    """The table for one unit: loss, difference to the baseline, share of its training that each run has made."""
    measured = measured.in_order()
    equal, paths = compare(measured, unit), paths_of(measured.cells)
    headings = [*map(path_text, paths), "runs", f"held-out loss (nats) {equal.heading}", "minus baseline"]
    rows: list[list[Entry]] = [
        [*value_texts(at.cell.values, paths), len(at.values), _mean(at), _minus(at, measured), _share(at)]
        for at in equal.cells
    ]
    return Sheet([*headings, "share of training"], rows, left=len(paths), notes=_notes([equal]))


def sheets(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """The tables for all units: the table to read, the table of every number, and the runs behind them.

    None if the grid asks for no loss on held-out text, or fewer than two cells have finished runs of their own with a
    curve of it.
    """
    if not heldout_metric(measured.grid):
        return None
    measured = measured.in_order()
    cells, by_unit = measured.cells, [compare(measured, unit) for unit in UNITS]
    if len({at.runs for equal in by_unit for at in equal.cells if at.runs}) < 2:
        return None
    asked = _predictions(cells)
    paths, labelled = paths_of(cells), [{at.cell.label: at for at in equal.cells} for equal in by_unit]
    rows = [(cell, [of_unit.get(cell.label) for of_unit in labelled]) for cell in cells]
    reading = Sheet(
        [*map(path_text, paths), *(asked and _ASKED), *(equal.heading for equal in by_unit), *_LEARNING],
        [
            [
                *value_texts(cell.values, paths),
                *asked.get(cell.label, ()),
                *(_mean(at) if at else "" for at in entries),
                _crossing_text(cell, measured),
                mean_text(_final_slope(cell, measured)),
            ]
            for cell, entries in rows
        ],
        left=len(paths),
        notes=[*_notes(by_unit), *(asked and [_ASKED_NOTE]), _LEARNING_NOTE],
    )
    everything = Sheet(
        [
            "cell",
            *paths,
            "predictions a step",
            "predictions a token",
            *(f"{unit} {name}" for unit in UNITS for name in _NUMBERS),
            *("crossing", "crossing low", "crossing high", "crossed", "final slope", "final slope low"),
            "final slope high",
        ],
        [
            [cell.label, *value_texts(cell.values, paths)]
            + [cell.system.predictions_per_step(), cell.system.predictions_per_token()]
            + [entry for equal, at in zip(by_unit, entries, strict=True) for entry in _numbers(equal, at)]
            + [*_crossing_numbers(cell, measured), *_final_slope(cell, measured).ends]
            for cell, entries in rows
        ],
    )
    runs = {
        equal.unit: {"amount": equal.amount, "runs": {at.cell.label: at.runs for at in equal.cells}}
        for equal in by_unit
    }
    return reading, everything, {"metric": _metric(measured), "readings": runs}


def _crossings(cell: Cell, measured: Measurements) -> list[Crossing]:
    """The crossings of a cell's finished runs with curves; none of runs that start from the weights of others."""
    if cell.system.parents():
        return []
    found = (curve(run, _metric(measured)) for run in measured.finished(cell).values())
    return [crossing(of) for of in found if of]


def _crossing_text(cell: Cell, measured: Measurements) -> str:
    """``9.63 M [8.2 M, 10.9 M]``; ``none by 16.4 M``, or for how many runs; ``before 64 k``; empty without any."""
    found = _crossings(cell, measured)
    never = [quantity(one.low) for one in found if one.high is None]
    before = [quantity(one.high) for one in found if one.low is None]
    if not found or never or before:
        of = "" if len(never) in (0, len(found)) else f"{len(never)} of {len(found)} "
        return f"{of}none by {never[0]}" if never else f"before {before[0]}" if before else ""
    at, low, high, _ = _crossing_numbers(cell, measured)
    return f"{quantity(at)} [{quantity(low)}, {quantity(high)}]"


def _crossing_numbers(cell: Cell, measured: Measurements) -> tuple[float | None, float | None, float | None, int]:
    """The mean crossing of a cell, the ends between which those of all runs lie, and how many runs have one."""
    found = _crossings(cell, measured)
    at = geometric_mean([one.at for one in found])
    lows = [one.low for one in found if one.low is not None]
    highs = [one.high for one in found if one.high is not None]
    low, high = (min(lows), max(highs)) if at is not None else (None, None)
    return at, low, high, sum(one.at is not None for one in found)


def _final_slope(cell: Cell, measured: Measurements) -> Interval:
    slopes = (final_slope(run, _metric(measured)) for run in measured.finished(cell).values())
    return mean_interval([slope for slope in slopes if slope is not None])


def _predictions(cells: Sequence[Cell]) -> dict[str, list[Entry]]:
    """Cell -> tokens predicted in a step, and of a hundred; empty where all cells predict the same share."""
    systems = {cell.label: cell.system for cell in cells}
    shares = {label: system.predictions_per_token() for label, system in systems.items()}
    if len({round(share, 9) for share in shares.values()}) < 2:
        return {}
    return {
        label: [quantity(system.predictions_per_step()), f"{100 * shares[label]:.1f}"]
        for label, system in systems.items()
    }


def _numbers(equal: EqualCompute, at: CellAtBudget | None) -> list[Entry]:
    if at is None:
        return [equal.amount, *([None] * 10)]
    mean, minus = at.interval, at.difference
    difference = (*minus.ends, minus.n) if minus else (None,) * 4
    return [equal.amount, *mean.ends, mean.n, at.interpolated, at.share, *difference]


def _mean(at: CellAtBudget) -> str:
    return mean_text(at.interval) + "*" * bool(at.interpolated)


def _minus(at: CellAtBudget, measured: Measurements) -> str:
    if at.difference is not None:
        return difference_text(at.difference)
    baseline = baseline_of(measured.grid, measured.cells, at.cell)
    if baseline is at.cell:
        return "baseline"
    shared = baseline is not None and at.runs and {r.id for r in baseline.runs} == {r.id for r in at.cell.runs}
    return "same runs" if shared else ""


def _share(at: CellAtBudget) -> str:
    return "" if at.share is None else f"{100 * at.share:.0f} %"


def _notes(by_unit: Sequence[EqualCompute]) -> list[str]:
    comparable = [equal for equal in by_unit if equal.amount is not None]
    notes = [f"No comparison {equal.heading}: {equal.why}." for equal in by_unit if equal.amount is None]
    if not comparable:
        return notes
    notes.insert(
        0,
        "Held-out loss in nats, mean ± half-width of the 95 % t interval over seeds. The amount is the largest that "
        "every finished run with a curve has reached. Before its end a run has not finished its learning-rate "
        "schedule. A run planned for that amount would end at another loss.",
    )
    if any(trunks.of_cells([at.cell]) for equal in comparable[:1] for at in equal.cells):
        notes.append(
            f"These are runs of {trunks.WORD}: amounts are their own, without those of their trunks, "
            "and they have no crossing."
        )
    if any(at.interpolated for equal in comparable for at in equal.cells):
        notes.append("*: interpolated between two measurements in at least one run.")
    if any(equal.unit in ("flops", "seconds") for equal in comparable):
        notes.append("Within a run, FLOPs and time are assumed to grow in proportion to tokens.")
    if any(equal.unit == "seconds" for equal in comparable):
        notes.append("Time is measured on the machine of each run, under whatever load it had.")
    if differ := _ranks_differ(by_unit):
        notes.append(differ)
    shown = [at.cell.system.evaluation for equal in comparable for at in equal.cells if at.values]
    sizes = {(evaluation.sequences, evaluation.sequences_at_end) for evaluation in shown}
    if any(during != end for during, end in sizes):
        told = " or ".join(f"{during:,} sequences, there on {end:,}" for during, end in sorted(sizes))
        notes.append(f"Not the text of the results above, but its beginning: curves are measured on {told}.")
    return notes


def in_short(measured: Measurements) -> str:
    """Which cell is best at equal amounts of what, as a sentence; empty where it is the same cell everywhere."""
    return _ranks_differ([compare(measured, unit) for unit in UNITS]) if heldout_metric(measured.grid) else ""


def _ranks_differ(by_unit: Sequence[EqualCompute]) -> str:
    """The best cell at each amount, and those not distinguished from it. Empty if one could be best everywhere."""
    best = {equal.unit: _best(equal) for equal in by_unit if equal.amount is not None and _have_ranks(equal)}
    if not best or set.intersection(*map(set, best.values())):
        return ""
    listed = "; ".join(f"at equal {_NAMES[unit]} {_named(labels)}" for unit, labels in best.items())
    early = " There longer runs are read before the end of their schedule." * ("flops" in best or "seconds" in best)
    return f"The lowest mean loss depends on what is equal: {listed}.{early}"


def _best(equal: EqualCompute) -> list[str]:
    """The cell of the lowest mean loss, then those whose 95 % interval of the difference to it, by seed, has zero."""
    first, *others = sorted((at for at in equal.cells if at.values), key=_mean_loss)
    others = [at for at in others if at.runs != first.runs]  # one model by two names
    behind = [(at, mean_interval([loss - first.values[seed] for seed, loss in at.values.items()])) for at in others]
    return [first.cell.label, *(at.cell.label for at, gap in behind if gap.low is None or gap.low <= 0)]


def _named(labels: Sequence[str]) -> str:
    return f"{labels[0]} (not distinguished from {', '.join(labels[1:])})" if labels[1:] else labels[0]


def _have_ranks(equal: EqualCompute) -> bool:
    """Whether all cells have the same seeds and read one held-out text, so that their means can be ranked."""
    measured = [at for at in equal.cells if at.values]
    return len({frozenset(at.values) for at in measured}) == 1 and one_text([at.cell for at in measured], equal.metric)


def _mean_loss(at: CellAtBudget) -> float:
    mean = at.interval.mean
    return float("inf") if mean is None else mean
