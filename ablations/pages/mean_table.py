"""Rows that no run has: means of the probabilities of two cells, computed when tables are made."""

from typing import Any

from ablations.core.formatting import Sheet, cell_text, difference_text, fixed, mean_text, path_text, places
from ablations.core.statistics import Interval, mean_interval
from ablations.measurements.mean_of_two import problem
from ablations.measurements.measurements import Measurements
from ablations.measurements.selection import parts_of
from ablations.measurements.summaries import planned_metrics
from ablations.schema.cell import Cell
from ablations.schema.grid import Metric

TITLE = "Means of two runs"


def sheets(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row for each mean and metric, with its value in each seed; None where no fine-tuning of a mean has finished."""
    planned = planned_metrics(measured.grid, measured.cells)
    metrics = [metric for metric in planned if not problem(metric.name.partition(".")[0])]
    rows = [(mean, metric) for mean in measured.means for metric in metrics if _finished(measured, mean, metric)]
    if not rows:
        return None
    parts = [parts_of(measured.grid, measured.cells, mean) for mean, _ in rows]
    axes = list(dict.fromkeys(path for mean, _ in rows for path in mean.values))
    seeds = sorted({run.seed for mean, _ in rows for run in mean.planned})
    values = [measured.values(mean, metric.name) for mean, metric in rows]
    notes = [
        "No run has these values. The probabilities that two fine-tunings of one seed give to the classes of an "
        "example are averaged. The class with the higher mean is the answer. Means have 95 % intervals over seeds. So "
        "have differences, seed by seed, not adjusted for the number of comparisons."
    ]
    reading = Sheet(
        [*map(path_text, axes), "mean of", "metric", "runs", "value", "minus the first", "minus the second",
         *(f"seed {seed}" for seed in seeds)],
        [
            [*(cell_text({path: mean.values[path]}) for path in axes),
             " and ".join(cell_text(part.values) for part in both), metric.label or metric.name,
             f"{len(found)} of {len(mean.planned)}", mean_text(mean_interval(list(found.values()))),
             *(difference_text(_minus(measured, found, part, metric)) for part in both),
             *(_text(found.get(seed)) for seed in seeds)]
            for (mean, metric), both, found in zip(rows, parts, values, strict=True)
        ],
        left=len(axes) + 2,
        notes=[*notes, *(f"{label}: {'; '.join(why)}." for label, why in measured.apart.items())],
        brief=["runs", "value", "minus the first", "minus the second"],
    )  # fmt: skip
    ends = ("", " low", " high")
    everything = Sheet(
        ["row", "first", "second", "metric", "planned", "done",
         *(f"{name}{end}" for name in ("mean", "minus the first", "minus the second") for end in ends),
         *(f"seed {seed}" for seed in seeds)],
        [
            [cell_text(mean.values), *(part.label for part in both), metric.name, len(mean.planned), len(found),
             *mean_interval(list(found.values())).ends,
             *(end for part in both for end in _minus(measured, found, part, metric).ends),
             *(found.get(seed) for seed in seeds)]
            for (mean, metric), both, found in zip(rows, parts, values, strict=True)
        ],
    )  # fmt: skip
    trace = [
        {"row": mean.label, "metric": metric.name,
         "runs": {str(seed): row.run for seed, row in measured.of(mean, metric.name).items()}}
        for mean, metric in rows
    ]  # fmt: skip
    return reading, everything, {"means": trace}


def _finished(measured: Measurements, mean: Cell, metric: Metric) -> bool:
    parts = parts_of(measured.grid, measured.cells, mean)
    return all(measured.of(part, metric.name) for part in parts)


def _minus(measured: Measurements, found: dict[int, float], part: Cell, metric: Metric) -> Interval:
    """The mean minus one of its cells, seed by seed."""
    others = measured.values(part, metric.name)
    return mean_interval([value - others[seed] for seed, value in found.items() if seed in others])


def _text(value: float | None) -> str:
    return "" if value is None else fixed(value, places(None, value))
