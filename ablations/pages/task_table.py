"""Downstream tasks one by one: spread over restarts, degenerate runs, and the majority vote of the seeds.

A mean hides that fine-tuning can fail: with the same recipe some seeds end at the majority class (Devlin et al. 2019,
section 4.1; Mosbach et al. 2021). Such runs count as degenerate and stay in the mean, unless they answer every
example alike: that is an outcome, counted by itself.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ablations.core.formatting import Entry, Sheet, duration, mean_text, path_text, value_text
from ablations.core.statistics import mean_interval
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import paths_of
from ablations.schema.cell import Cell
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.tasks import TASKS, Task
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.scores.metrics import METRICS

_NUMBERS = ("n", "mean", "low", "high", "sd", "least", "most", "degenerate", "silent", "ensemble")
_SECONDS = ("seconds_before", "seconds")


def per_task(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row per task and cell: the table to read, the table of every number, and the run ids behind them.

    Returns:
        None if no fine-tuning has finished.
    """
    cells = measured.cells
    tasks = list(dict.fromkeys(run.task for cell in cells for run in cell.finetunings if run.task in TASKS))
    pairs = [(TASKS[task], cell) for task in tasks for cell in cells if measured.finished(cell, task)]
    if not pairs:
        return None
    paths = paths_of(cells)
    rows = [(task, cell, _measured(task, cell, measured)) for task, cell in pairs]
    knobs = [[value_text(path, cell.values[path]) for path in paths] for _, cell, _ in rows]
    reading = Sheet(
        ["task", *map(path_text, paths), "metric", "runs", "mean", "standard deviation", "worst", "best",
         "degenerate runs", "all outputs equal", "vote of all seeds", "majority class", "time before",
         "time to fine-tune"],
        [[_title(task), *values, task.main, *_texts(stats)]
         for (task, _, stats), values in zip(rows, knobs, strict=True)],
        left=2 + len(paths),
        notes=_notes([task for task, _, _ in rows]),
        brief=["runs", "mean", "majority class", "worst", "best", "metric"],
    )  # fmt: skip
    numbers = Sheet(
        ["task", "metric", *paths, *_NUMBERS, "majority", *_SECONDS],
        [[task.name, task.main, *values, *(stats[name] for name in (*_NUMBERS, "majority", *_SECONDS))]
         for (task, _, stats), values in zip(rows, knobs, strict=True)],
    )  # fmt: skip
    trace = [{"task": task.name, "cell": cell.label, "runs": stats["runs"]} for task, cell, stats in rows]
    return reading, numbers, {"tasks": trace}


def _title(task: Task) -> str:
    return task.title.partition(":")[0] + (" (own split)" if task.own_split else "")


def _texts(stats: Mapping[str, Any]) -> list[Entry]:
    decimals = [f"{stats[name]:.3f}" if stats[name] is not None else "" for name in ("sd", "least", "most")]
    degenerate = f"{stats['degenerate']} of {stats['n']}" if stats["degenerate"] else ""
    rest = [f"{stats[name]:.3f}" if stats[name] is not None else "" for name in ("ensemble", "majority")]
    times = [duration(stats[name]) if stats[name] is not None else "" for name in _SECONDS]
    return [stats["n"], mean_text(stats["interval"]), *decimals, degenerate, stats["silent"] or "", *rest, *times]


def _measured(task: Task, cell: Cell, measured: Measurements) -> dict[str, Any]:
    metric = f"{task.name}.{task.main}"
    finished = measured.finished(cell, task.name)
    values = list(measured.values(cell, metric).values())
    floors = set(measured.values(cell, f"{metric}.majority").values())
    floor = floors.pop() if len(floors) == 1 else None
    interval = mean_interval(values)
    runs = [run for run in cell.finetunings if run.task == task.name and run.seed in finished]
    return {
        "interval": interval,
        "n": len(values),
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "sd": statistics.stdev(values) if len(values) > 1 else None,
        "least": min(values, default=None),
        "most": max(values, default=None),
        "silent": len(measured.silent(cell, metric)),
        "degenerate": None if floor is None else sum(value <= floor for value in values),
        "ensemble": ensemble(task, list(finished.values())).get(task.main),
        "majority": floor,
        "seconds_before": _mean([_before(run, measured) for run in runs]),
        "seconds": _mean([finished[run.seed].cost.get("seconds") for run in runs]),
        "runs": [record.id for record in finished.values()],
    }


def _before(run: Run, measured: Measurements) -> float | None:
    """Seconds of computing before a fine-tuning: its parents or word vectors; None if a record is missing."""
    costs = [record.cost if (record := measured.get(member.id)) else {} for member in run.lineage]
    if any("seconds" not in cost for cost in costs):
        return None
    roots = (cost for cost, member in zip(costs, run.lineage, strict=True) if not member.parents)
    vectors = sum(cost.get("word_vectors_seconds", 0.0) for cost in roots)
    return sum((cost["seconds"] for cost in reversed(costs[1:])), vectors)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if values and len(known) == len(values) else None


def ensemble(task: Task, records: Sequence[Record]) -> dict[str, float]:
    """The metrics of the majority vote of the seeds on each example; ties go to the lowest class.

    Records hold answers and whether they are right, not labels. A right answer is the label; with two classes, a wrong
    answer is the other class. With more classes only the accuracy is certain.

    Args:
        records: Fine-tunings from several seeds.

    Returns:
        Metric -> value; empty for fewer than two records with answers, or if answers are not classes.
    """
    kept = [record.examples for record in records if {"answer", "right"} <= record.examples.keys()]
    classes = task.shape.classes
    if len(kept) < 2 or classes < 2:
        return {}
    answers, right = (np.stack([unpack(examples[name]) for examples in kept]) for name in ("answer", "right"))
    chosen = np.stack([(answers == label).sum(0) for label in range(classes)]).argmax(0)
    is_right = ((answers == chosen) & right.astype(bool)).any(0)
    if classes > 2:
        return {"accuracy": float(is_right.mean())}
    labels = np.where(is_right, chosen, 1 - chosen)
    return {name: METRICS[name].of(labels, chosen) for name in task.metrics}


def _notes(tasks: Sequence[Task]) -> list[str]:
    notes = [
        "Mean ± half-width of the 95 % interval over seeds. Degenerate: runs no better than the majority class. They "
        "stay in the mean. All outputs equal: runs that answer every dev example alike. They are in no mean. Vote: the "
        "most frequent answer of the seeds with stored answers, for classification. Times: means over seeds. Time "
        "before: pretraining or word vectors, in full even if several fine-tunings share them."
    ]
    own = dict.fromkeys(f"{_title(task)}: {task.own_split}." for task in tasks if task.own_split)
    return notes + (["Not comparable with published scores. " + " ".join(own)] if own else [])
