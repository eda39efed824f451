"""Measurements by cell: means with intervals, differences to the baseline, unfinished runs, costs."""

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ablations.core.estimates import Estimate
from ablations.core.formatting import printable
from ablations.core.statistics import Interval, mean_interval
from ablations.measurements.derived import DERIVED, possible
from ablations.measurements.measurements import SILENT, Measurements, device_class, is_silent, on_plateau
from ablations.measurements.probe_metrics import MEAN_GAIN, PREFIX, gains, probe_of
from ablations.measurements.selection import baseline_of
from ablations.measurements.sides import Compared, one_text
from ablations.measurements.variances import Difference, differences
from ablations.schema.cell import Cell
from ablations.schema.grid import Grid, Metric
from ablations.schema.record import Record
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT

COSTS = ("parameters", "tokens", "flops", "flops a token", "flops a step", "seconds")


def planned_metrics(grid: Grid, cells: tuple[Cell, ...]) -> list[Metric]:
    """The metrics of a grid that its cells will have; those of tasks and probes only if this scale has them."""
    tasks = {task for cell in cells for task in cell.tasks}
    tuned = {task for cell in cells for task in cell.tuned}
    probes = {name for cell in cells for name in cell.system.evaluation.probes}

    def planned(name: str) -> bool:
        task = name.partition(".")[0]
        if name.startswith(PREFIX):
            return probe_of(name) in probes or (name == MEAN_GAIN and bool(probes))
        return possible(name, tuned) if name in DERIVED else task in tasks or task not in (*TASKS, *ZERO_SHOT)

    return [metric for metric in grid.metrics if planned(metric.name)]


@dataclass(frozen=True)
class Measured:
    """One metric of one cell.

    Attributes:
        interval: Mean and interval over the finished seeds.
        runs: The run ids behind the mean.
        compared: The runs of this cell and of its baseline; None for the baseline itself, without one, and for losses
            on different held-out texts.
        contrast: This cell minus its baseline, the noise of runs pooled over cells; None likewise, or without runs.
    """

    interval: Interval
    runs: tuple[str, ...]
    compared: Compared | None
    contrast: Estimate | None

    @property
    def difference(self) -> Interval | None:
        """The difference to the baseline with its unadjusted interval, without the noise of examples."""
        return self.contrast.interval() if self.contrast else None


@dataclass(frozen=True)
class Summary:
    """The results of one cell.

    Attributes:
        planned: Number of runs planned.
        finished: Number of runs done.
        unfinished: Sentences such as ``1 diverged (loss is NaN at step 312)``.
        plateau: Number of finished runs on the plateau.
        floor: Number of finished runs at the floor.
        metrics: Metric name -> its results.
        costs: Mean of each cost over the finished runs (seconds, tokens, flops, parameters ...).
        devices: The device classes of the finished runs.
    """

    cell: Cell
    planned: int
    finished: int
    unfinished: tuple[str, ...]
    plateau: int
    floor: int
    metrics: dict[str, Measured]
    costs: dict[str, float]
    devices: tuple[str, ...]


def summarise(measured: Measurements) -> list[Summary]:
    """One summary per cell, in the order of the cells."""
    names = [metric.name for metric in measured.grid.metrics]
    compare = {name: differences(measured, functools.partial(measured.of, metric=name)) for name in names}
    return [_summarise(measured, cell, compare) for cell in measured.cells]


def _summarise(measured: Measurements, cell: Cell, compare: Mapping[str, Difference]) -> Summary:
    finished, baseline = measured.finished(cell), baseline_of(measured.grid, measured.cells, cell)
    return Summary(
        cell=cell,
        planned=len(cell.planned),
        finished=len(finished),
        unfinished=_unfinished(measured, cell),
        plateau=sum(bool(on_plateau(cell, record)) for record in finished.values()),
        floor=measured.floors(cell),
        metrics={
            name: _measured(measured, cell, None if baseline is cell else baseline, name, difference)
            for name, difference in compare.items()
        },
        costs=_costs(cell, list(finished.values())),
        devices=tuple(sorted({device_class(record) for record in finished.values()})),
    )


def _measured(
    measured: Measurements, cell: Cell, baseline: Cell | None, metric: str, difference: Difference
) -> Measured:
    rows = measured.of(cell, metric)
    both = baseline is not None and rows and measured.of(baseline, metric) and one_text([cell, baseline], metric)
    compared, contrast = difference(cell, baseline) if both and baseline else (None, None)
    return Measured(
        interval=mean_interval([row.value for row in rows.values()]),
        runs=tuple(row.run for row in rows.values()),
        compared=compared,
        contrast=contrast,
    )


def _costs(cell: Cell, finished: list[Record]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for record in finished:
        for name, value in record.cost.items():
            values.setdefault(name, []).append(value)
    costs = {name: float(np.mean(known)) for name, known in values.items()}
    if "parameters" in costs:
        costs["parameters"] -= removed_parameters(cell)
    if costs.get("tokens") and "flops" in costs:
        costs["flops a token"] = costs["flops"] / costs["tokens"]
        costs["flops a step"] = costs["flops a token"] * cell.system.tokens_per_step()
    return dict(sorted(costs.items()))


def removed_parameters(cell: Cell) -> int:
    """Parameters that the fine-tunings of a cell remove from its encoder, zeros included."""
    from lightning_modules.finetuning.weight_pruning import removed  # which imports Lightning

    return max((removed(run.system, run.finetuning) for run in cell.finetunings[:1] if run.finetuning), default=0)


def _unfinished(measured: Measurements, cell: Cell) -> tuple[str, ...]:
    count: Counter[str] = Counter()
    details: dict[str, str] = {}
    for run in cell.work:
        record = measured.get(run.id)
        outcome = "not run" if record is None else SILENT if is_silent(record, run.task) else record.outcome
        if outcome != "done":
            outcome += f" on {run.task}" * bool(run.task)
            count[outcome] += 1
            details.setdefault(outcome, printable(record.detail.partition("\n")[0])[:60] if record else "")
    for run in cell.awaited:
        count["not run" + f" on {run.task}" * bool(run.task) + " (search unfinished)"] += 1
    return tuple(
        f"{number} {outcome}" + (f" ({details[outcome]})" if details.get(outcome) else "")
        for outcome, number in sorted(count.items())
    )


def runs(measured: Measurements) -> pd.DataFrame:
    """One row per pretraining: cell, knob values by path, seed, run id, outcome, detail, device, metrics and costs.

    The row includes the scores of its fine-tunings, their averages, and its measurements. Runs without a record have
    the outcome ``not run``, and no id while their search is open. The choices of searches are in columns named by the
    knobs. Metrics and costs that a run lacks are NaN.
    """
    rows, asked = [], {metric.name for metric in measured.grid.metrics}
    for cell in measured.cells:
        found = {name: measured.values(cell, name) for name in DERIVED if cell.finetunings}
        averages = {name: values for name, values in found.items() if values or name in asked}
        for run in cell.planned:
            record = None if cell.awaited else measured.get(run.id)
            row = {"cell": cell.label, **cell.values, **cell.chosen, "seed": run.seed}
            row["run"] = "" if cell.awaited else run.id
            if record is None:
                rows.append({**row, "outcome": "not run", "detail": "", "device": ""})
                continue
            state = {"outcome": record.outcome, "detail": record.detail, "device": device_class(record)}
            children = [measured.get(child.id) for child in cell.children if child.seed == run.seed]
            scores = {name: value for child in children if child for name, value in child.metrics.items()}
            scores |= {name: values.get(run.seed, math.nan) for name, values in averages.items()}
            rows.append({**row, **state, **record.metrics, **gains(record.metrics), **scores, **record.cost})
    return pd.DataFrame(rows)


def summary(measured: Measurements) -> pd.DataFrame:
    """One row per cell: for each metric mean, interval, n and the difference to the baseline; costs."""
    rows = []
    for item in summarise(measured):
        row: dict[str, Any] = {"cell": item.cell.label, **item.cell.values}
        row |= {"planned": item.planned, "done": item.finished, "unfinished": "; ".join(item.unfinished)}
        row |= {"plateau": item.plateau, "floor": item.floor}
        for name, metric in item.metrics.items():
            row |= {f"{name} {key}": value for key, value in numbers(metric).items()}
        rows.append(row | {name: item.costs.get(name) for name in COSTS})
    return pd.DataFrame(rows)


def numbers(measured: Measured) -> dict[str, float | int | None]:
    """All statistics of one metric of one cell, by short names; None if not available."""
    interval, difference, contrast = measured.interval, measured.difference, measured.contrast
    return {
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "difference": difference.mean if difference else None,
        "difference low": difference.low if difference else None,
        "difference high": difference.high if difference else None,
        "difference n": contrast.n if contrast else None,
        "p": contrast.p if contrast else None,
        "detectable": contrast.detectable() if contrast and contrast.error else None,
    }
