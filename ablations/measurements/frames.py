"""Records gathered: one row a run, one summary a cell, the pairs of a contrast. Functions of cells and records alone.

Only runs that are ``done`` enter a mean; every other outcome is counted and shown. Pairs are formed by seed, and never
across device classes: a run on a GPU and one on a CPU differ by more than the knob.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from ablations.core.formatting import plain
from ablations.core.metrics import COST, HELDOUT
from ablations.core.statistics import Contrast, Interval, mean_interval, minimum_detectable_effect, paired
from ablations.literature.published_values import same
from ablations.measurements.derived import DERIVED, gathered, possible
from ablations.measurements.layer_metrics import LAYER_METRICS
from ablations.measurements.layer_metrics import gathered as of_layers
from ablations.schema.cell import Cell, Trial
from ablations.schema.grid import Grid, Metric
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.config import canonical
from lightning_modules.tasks import TASKS

PLATEAU = "heldout.plateau"
COSTS = ("parameters", "tokens", "flops", "flops a token", "flops a step", "seconds")
MAJORITY, SHARED = "majority class", "TF-IDF + logistic regression, shared words"
WORDS, NEIGHBOURS = "TF-IDF + logistic regression", "counts of neighbours"


class Lookup(Protocol):
    """Where records come from: a store, or a dictionary in tests."""

    def get(self, id: str, /) -> Record | None:
        """The record of a run, None where there is none."""


def device_class(record: Record) -> str:
    """What a run was computed on, as one comparable word."""
    device = record.provenance.get("device", "")
    return device if isinstance(device, str) else canonical(device)


def runs_of(cell: Trial, metric: str = "") -> tuple[Run, ...]:
    """The runs of a cell that a metric is measured in: fine-tunings for ``<task>.<metric>``, else pretrainings.

    Those of an average over tasks are the pretrainings whose fine-tunings it is made of.
    """
    task = metric.partition(".")[0]
    return tuple(run for run in cell.tuned if run.task == task) or cell.runs


def planned_metrics(grid: Grid, cells: Sequence[Cell]) -> list[Metric]:
    """The metrics of a grid that its cells will have: of tasks, only those that are fine-tuned on at this scale."""
    tasks = {task for cell in cells for task in cell.tasks}

    def planned(name: str) -> bool:
        task = name.partition(".")[0]
        return possible(name, tasks) if name in DERIVED else task in tasks or task not in TASKS

    return [metric for metric in grid.metrics if planned(metric.name)]


def done(cell: Trial, records: Lookup, metric: str = "") -> dict[int, Record]:
    """The finished records of a cell by seed: of its pretrainings, or of the runs that a metric is measured in."""
    if metric in DERIVED:
        return gathered(cell, records, metric)
    if metric in LAYER_METRICS:
        return of_layers(cell, records, metric)
    found = {run.seed: records.get(run.id) for run in runs_of(cell, metric)}
    return {seed: record for seed, record in found.items() if record is not None and record.outcome == "done"}


def metric_by_seed(cell: Trial, records: Lookup, metric: str) -> dict[int, float]:
    """One metric, or what a ``cost.`` entry says, of the finished runs that have it, by seed."""
    key = metric.removeprefix(COST)
    found = {
        seed: record.metrics if key == metric else record.cost
        for seed, record in sorted(done(cell, records, metric).items())
    }
    return {seed: float(values[key]) for seed, values in found.items() if key in values}


def as_printed(cell: Cell) -> dict[str, Any]:
    """The values of a cell as papers print them: grids name baselines and claims by those."""
    return {**cell.values, **cell.printed}


def matching(cells: Sequence[Cell], wanted: Mapping[str, Any]) -> list[Cell]:
    """The cells that have these values, as printed; a path that is no axis of a cell never matches."""
    return [
        cell
        for cell in cells
        if all(path in cell.values and same(as_printed(cell)[path], value) for path, value in wanted.items())
    ]


def side_of(grid: Grid, cells: Sequence[Cell], wanted: Mapping[str, Any]) -> list[Cell]:
    """The cells meant by a few values: every other axis stands at the baseline, or moves along where it is zipped."""
    home = {**(as_printed(cells[0]) if cells else {}), **grid.baseline}
    return matching(cells, _moved(grid, home, wanted))


def baseline_of(grid: Grid, cells: Sequence[Cell], cell: Cell) -> Cell | None:
    """The cell that ``cell`` is compared with: itself but for the baseline's values. None where there is none."""
    if not grid.baseline:
        return None
    found = matching(cells, _moved(grid, as_printed(cell), grid.baseline))
    return found[0] if len(found) == 1 else None


def _moved(grid: Grid, home: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """``home`` with other values; what is zipped to a changed axis is left open."""
    open_paths = {path for group in grid.zip if wanted.keys() & set(group) for path in group}
    return {path: value for path, value in home.items() if path not in open_paths} | dict(wanted)


@dataclass(frozen=True)
class Pairing:
    """Two cells compared on one metric.

    Attributes:
        contrast: ``a - b`` by seed, in the metric's unit.
        runs: The run ids of each pair, as ``(a, b)``.
        notes: What was left out and why, one sentence each.
        plateau: Whether side a, side b had not left the plateau (half of its paired runs or more).
    """

    contrast: Contrast
    runs: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    plateau: tuple[bool, bool]


def pair(a: Cell, b: Cell, records: Lookup, metric: str) -> Pairing:
    """Pairs two cells by seed on one metric, within one device class."""
    left, right = done(a, records, metric), done(b, records, metric)
    apart = [s for s in left.keys() & right.keys() if device_class(left[s]) != device_class(right[s])]
    values = [
        {seed: value for seed, value in metric_by_seed(cell, records, metric).items() if seed not in apart}
        for cell in (a, b)
    ]
    contrast = paired(*values)
    notes = []
    if contrast.alone and all(values):  # else one of the two has no answer to the question at all
        seeds = ", ".join(map(str, contrast.alone))
        notes.append(f"only common seeds are compared; seeds without a partner: {seeds}")
    if apart:
        notes.append(f"never compared across device classes: seeds {', '.join(map(str, sorted(apart)))} left out")
    return Pairing(
        contrast,
        tuple((left[seed].id, right[seed].id) for seed in contrast.seeds),
        tuple(notes),
        (_on_plateau(a, records, contrast.seeds), _on_plateau(b, records, contrast.seeds)),
    )


def _on_plateau(cell: Cell, records: Lookup, seeds: Sequence[int]) -> bool:
    pretrained = done(cell, records)
    flags = [bool(pretrained[seed].metrics.get(PLATEAU, False)) for seed in seeds if seed in pretrained]
    return bool(flags) and 2 * sum(flags) >= len(flags)


def references(metric: str) -> dict[str, str]:
    """What a metric is to be read against: what a simple method is, and the metric that holds its score."""
    kind, _, name = metric.partition(".")
    if metric in HELDOUT:
        return {NEIGHBOURS: f"{metric.removesuffix('loss')}bigram_loss"}
    if name in ("nsp_accuracy", "sop_accuracy"):
        kind = f"heldout.{name[:3]}"
        return {MAJORITY: f"{kind}_majority", SHARED: f"{kind}_overlap", WORDS: f"{kind}_bow"}
    methods = TASKS[kind].shape.methods if kind in TASKS else {}
    return {method: f"{metric}.{name}" for name, method in methods.items()}


def reference(cells: Sequence[Cell], records: Lookup, name: str) -> float | None:
    """The score of a simple method, where all runs agree on it."""
    values = {round(value, 6) for cell in cells for value in metric_by_seed(cell, records, name).values()}
    return values.pop() if len(values) == 1 else None


def reference_losses(records: Iterable[Record], metric: str = HELDOUT[0]) -> dict[str, float]:
    """The held-out losses of the ``bigram`` and ``unigram`` baselines, where all runs agree (one held-out text)."""
    levels, found = {}, [record for record in records if metric in record.metrics]
    for name in ("bigram", "unigram"):
        baseline = f"{metric.removesuffix('loss')}{name}_loss"
        values = {round(float(record.metrics.get(baseline, -1.0)), 3) for record in found}
        if len(values) == 1 and values != {-1.0}:
            levels[name] = values.pop()
    return levels


@dataclass(frozen=True)
class Measured:
    """One metric of one cell.

    Attributes:
        interval: Mean and interval over the finished seeds.
        runs: The run ids behind the mean.
        pairing: This cell minus its baseline; None for the baseline itself or where there is none.
    """

    interval: Interval
    runs: tuple[str, ...]
    pairing: Pairing | None

    @property
    def difference(self) -> Interval | None:
        """The paired difference to the baseline with its unadjusted interval."""
        return self.pairing.contrast.interval() if self.pairing else None


@dataclass(frozen=True)
class Summary:
    """One cell with what its runs gave.

    Attributes:
        planned: Runs planned.
        finished: Runs done.
        unfinished: Sentences such as ``1 diverged (loss is NaN at step 312)``.
        plateau: Finished runs that had not left the plateau.
        metrics: Metric name -> what was measured.
        costs: Mean of each cost over the finished runs (seconds, tokens, flops, parameters ...).
        devices: The device classes of the finished runs.
    """

    cell: Cell
    planned: int
    finished: int
    unfinished: tuple[str, ...]
    plateau: int
    metrics: dict[str, Measured]
    costs: dict[str, float]
    devices: tuple[str, ...]


def summarise(grid: Grid, cells: Sequence[Cell], records: Lookup) -> list[Summary]:
    """One summary a cell, in the order of the plan."""
    return [_summarise(grid, cells, cell, records) for cell in cells]


def _summarise(grid: Grid, cells: Sequence[Cell], cell: Cell, records: Lookup) -> Summary:
    finished, baseline = done(cell, records), baseline_of(grid, cells, cell)
    metrics = {}
    for metric in grid.metrics:
        values = metric_by_seed(cell, records, metric.name)
        compare = baseline is not None and baseline is not cell
        metrics[metric.name] = Measured(
            mean_interval(list(values.values())),
            tuple(done(cell, records, metric.name)[seed].id for seed in values),
            pair(cell, baseline, records, metric.name) if compare else None,
        )
    costs = pd.DataFrame([record.cost for record in finished.values()]).mean()
    if {"flops", "tokens"} <= set(costs.index):
        costs["flops a token"] = costs["flops"] / costs["tokens"]
        costs["flops a step"] = costs["flops a token"] * cell.system.tokens_per_step()
    return Summary(
        cell=cell,
        planned=len(cell.planned),
        finished=len(finished),
        unfinished=_unfinished(cell, records),
        plateau=sum(bool(record.metrics.get(PLATEAU)) for record in finished.values()),
        metrics=metrics,
        costs={name: float(costs[name]) for name in sorted(costs.index)},
        devices=tuple(sorted({device_class(record) for record in finished.values()})),
    )


def _unfinished(cell: Cell, records: Lookup) -> tuple[str, ...]:
    count: Counter[str] = Counter()
    details: dict[str, str] = {}
    for run in (*cell.runs, *cell.tuned):
        record = records.get(run.id)
        outcome = "not run" if record is None else record.outcome
        if outcome != "done":
            outcome += f" on {run.task}" * bool(run.task)
            count[outcome] += 1
            details.setdefault(outcome, plain(record.detail)[:60] if record else "")
    for run in cell.awaited:
        count["not run before the search has chosen" + f" on {run.task}" * bool(run.task)] += 1
    return tuple(
        f"{number} {outcome}" + (f" ({details[outcome]})" if details.get(outcome) else "")
        for outcome, number in sorted(count.items())
    )


def frame(cells: Sequence[Cell], records: Lookup) -> pd.DataFrame:
    """One row a pretraining: cell, knob values by path, seed, run id, outcome, detail, device, metrics and costs.

    The scores of its fine-tunings stand in the same row, and the averages over them.

    Runs without a record are rows too, with outcome ``not run``; those that an open search decides on have no id yet.
    What searches chose stands in columns of the knobs' names. Metrics and costs that a run lacks are NaN.
    """
    rows = []
    for cell in cells:
        averages = {name: metric_by_seed(cell, records, name) for name in DERIVED if cell.tuned}
        for run in cell.planned:
            record = None if cell.awaited else records.get(run.id)
            row = {"cell": cell.label, **cell.values, **cell.chosen, "seed": run.seed}
            row["run"] = "" if cell.awaited else run.id
            if record is None:
                rows.append({**row, "outcome": "not run", "detail": "", "device": ""})
                continue
            state = {"outcome": record.outcome, "detail": record.detail, "device": device_class(record)}
            tuned = [records.get(child.id) for child in cell.tuned if child.seed == run.seed]
            scores = {name: value for found in tuned if found for name, value in found.metrics.items()}
            scores |= {name: values[run.seed] for name, values in averages.items() if run.seed in values}
            rows.append({**row, **state, **record.metrics, **scores, **record.cost})
    return pd.DataFrame(rows)


def summary(grid: Grid, cells: Sequence[Cell], records: Lookup) -> pd.DataFrame:
    """One row a cell, all numbers: for each metric mean, interval, n and the paired difference to the baseline."""
    rows = []
    for item in summarise(grid, cells, records):
        row: dict[str, Any] = {"cell": item.cell.label, **item.cell.values}
        row |= {"planned": item.planned, "done": item.finished, "unfinished": "; ".join(item.unfinished)}
        row["plateau"] = item.plateau
        for name, measured in item.metrics.items():
            row |= {f"{name} {key}": value for key, value in numbers(measured).items()}
        rows.append(row | {name: item.costs.get(name) for name in COSTS})
    return pd.DataFrame(rows)


def numbers(measured: Measured) -> dict[str, float | int | None]:
    """Everything known of one metric of one cell, by short names; None where it cannot be had."""
    interval, difference = measured.interval, measured.difference
    contrast = measured.pairing.contrast if measured.pairing else None
    sd = contrast.sd if contrast else None
    return {
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "difference": difference.mean if difference else None,
        "difference low": difference.low if difference else None,
        "difference high": difference.high if difference else None,
        "pairs": contrast.n if contrast else None,
        "p": contrast.p if contrast else None,
        "detectable": minimum_detectable_effect(sd, contrast.n) if contrast and sd is not None else None,
    }
