"""Downstream tasks one by one: spread over restarts, runs that learnt nothing, and what the seeds give together.

A mean hides what fine-tuning is known for: from one recipe some seeds end at the majority class (Devlin et al. 2019,
section 4.1; Mosbach et al. 2021). Such runs are counted as degenerate, and stay in the mean.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ablations.core.formatting import Entry, Sheet, duration, mean_text, path_text, value_text
from ablations.core.statistics import mean_interval
from ablations.measurements.table import Measurements
from ablations.schema.cell import Cell
from ablations.schema.record import Record
from ablations.schema.run import Run
from lightning_modules.tasks import TASKS, Task
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.scores.metrics import METRICS

_NUMBERS = ("n", "mean", "low", "high", "sd", "least", "most", "degenerate", "ensemble")
_SECONDS = ("seconds_before", "seconds")


def per_task(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row a task and cell: the table to read, the table of every number, and the run ids behind them.

    Returns:
        None where nothing was fine-tuned.
    """
    cells = measured.cells
    tasks = list(dict.fromkeys(run.task for cell in cells for run in cell.finetunings if run.task in TASKS))
    found = [(TASKS[task], cell) for task in tasks for cell in cells if measured.finished(cell, task)]
    if not found:
        return None
    paths = list(dict.fromkeys(path for cell in cells for path in cell.values))
    rows = [(task, cell, _measured(task, cell, measured)) for task, cell in found]
    knobs = [[value_text(path, cell.values[path]) for path in paths] for _, cell, _ in rows]
    reading = Sheet(
        ["task", *map(path_text, paths), "metric", "runs", "mean", "standard deviation", "worst", "best",
         "degenerate runs", "vote of all seeds", "majority class", "time before", "time to fine-tune"],
        [[_title(task), *values, task.main, *_said(seen)]
         for (task, _, seen), values in zip(rows, knobs, strict=True)],
        left=2 + len(paths),
        notes=_notes([task for task, _, _ in rows]),
    )  # fmt: skip
    numbers = Sheet(
        ["task", "metric", *paths, *_NUMBERS, "majority", *_SECONDS],
        [[task.name, task.main, *values, *(seen[name] for name in (*_NUMBERS, "majority", *_SECONDS))]
         for (task, _, seen), values in zip(rows, knobs, strict=True)],
    )  # fmt: skip
    trace = [{"task": task.name, "cell": cell.label, "runs": seen["runs"]} for task, cell, seen in rows]
    return reading, numbers, {"tasks": trace}


def _title(task: Task) -> str:
    return task.title.partition(":")[0] + (" (own split)" if task.own_split else "")


def _said(seen: Mapping[str, Any]) -> list[Entry]:
    decimals = [f"{seen[name]:.3f}" if seen[name] is not None else "" for name in ("sd", "least", "most")]
    degenerate = f"{seen['degenerate']} of {seen['n']}" if seen["degenerate"] else ""
    rest = [f"{seen[name]:.3f}" if seen[name] is not None else "" for name in ("ensemble", "majority")]
    times = [duration(seen[name]) if seen[name] is not None else "" for name in _SECONDS]
    return [seen["n"], mean_text(seen["interval"]), *decimals, degenerate, *rest, *times]


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
        "least": min(values),
        "most": max(values),
        "degenerate": None if floor is None else sum(value <= floor for value in values),
        "ensemble": ensemble(task, list(finished.values())).get(task.main),
        "majority": floor,
        "seconds_before": _mean([_before(run, measured) for run in runs]),
        "seconds": _mean([finished[run.seed].cost.get("seconds") for run in runs]),
        "runs": [record.id for record in finished.values()],
    }


def _before(run: Run, measured: Measurements) -> float | None:
    """Seconds of computing behind what a fine-tuning starts from; None where a record of it is missing."""
    here = measured.get(run.id)
    if here is None or "seconds" not in here.cost:
        return None
    if run.parent is None:
        return here.cost.get("word_vectors_seconds", 0.0)
    above, start = _before(run.parent, measured), measured.get(run.parent.id)
    return None if above is None or start is None else above + start.cost["seconds"]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if values and len(known) == len(values) else None


def ensemble(task: Task, records: Sequence[Record]) -> dict[str, float]:
    """The metrics of the commonest answer over seeds to each example; of equally common ones the lowest class.

    Labels lie in no record. They follow from answers and whether these were right: a right answer is the label, and
    of two classes a wrong answer is the other one. With more classes only the accuracy is known for certain.

    Args:
        task: What was fine-tuned on.
        records: Fine-tunings from several seeds.

    Returns:
        Metric -> value; empty for fewer than two records that kept their answers, and where answers are no classes.
    """
    kept = [record.examples for record in records if {"answer", "right"} <= record.examples.keys()]
    classes = task.shape.classes
    if len(kept) < 2 or classes < 2:
        return {}
    answers, right = (np.stack([unpack(one[name]) for one in kept]) for name in ("answer", "right"))
    votes = np.stack([(answers == label).sum(0) for label in range(classes)])
    chosen = votes.argmax(0)
    is_right = ((answers == chosen) & right.astype(bool)).any(0)
    if classes > 2:
        return {"accuracy": float(is_right.mean())}
    labels = np.where(is_right, chosen, 1 - chosen)
    return {name: METRICS[name].of(labels, chosen) for name in task.metrics}


def _notes(tasks: Sequence[Task]) -> list[str]:
    notes = [
        "Mean ± half-width of the 95 % interval over seeds. Degenerate: runs no better than the majority class; they "
        "stay in the mean. Vote: the commonest answer of the seeds that kept theirs, where answers are classes. Times: "
        "means over seeds of the fine-tuning itself, and of what it starts from: pretraining, word vectors or nothing, "
        "however many fine-tunings share it."
    ]
    own = dict.fromkeys(f"{_title(task)}: {task.own_split}." for task in tasks if task.own_split)
    return notes + (["Not comparable with published scores. " + " ".join(own)] if own else [])
