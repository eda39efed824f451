"""The long table of a page: every number of its runs, so that pandas is enough to analyse them again.

One row per run and metric. A run that several cells share has its rows once for each cell, and in the table of each
grid that has it. ``docs/records.md`` describes the columns and metrics. It is nine tenths of the bytes of a page, so it
is made where it is wanted: `ablations show GRID --format csv`, `ablations.frame`.
"""

import csv
import io
import json
import math
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from ablations.core.formatting import csv_entry, json_text
from ablations.measurements.dictionary import unit
from ablations.measurements.measurements import Measurement, Measurements
from ablations.schema.cell import Cell, Trial


class Row(NamedTuple):
    """One line of the table; its fields are the columns, in order."""

    grid: str
    scale: str
    cell: str
    knobs: str
    kind: str
    task: str
    seed: int
    run: str
    outcome: str
    metric: str
    value: str
    unit: str
    device: str
    commit: str
    dirty: str


def rows_of_page(scale: str, page: Measurements) -> list[Row]:
    """The rows of a page: of its cells, and of the trials of their searches."""
    rows = []
    for cell in page.cells:
        for trial in (cell, *cell.search):
            rows += [_row(page.grid.name, scale, trial, row, page) for row in _measured(trial, page)]
    return rows


def frame(scale: str, page: Measurements) -> pd.DataFrame:
    """The rows of a page as a DataFrame, as pandas reads them from CSV; values are numbers."""
    return pd.DataFrame(sorted(set(rows_of_page(scale, page))), columns=Row._fields).astype({"value": float})


class Point(NamedTuple):
    """A measurement during a pretraining; the columns of the table of curves, in order."""

    grid: str
    scale: str
    cell: str
    knobs: str
    seed: int
    run: str
    step: float
    tokens: float
    metric: str
    value: float
    unit: str


def curves(scale: str, page: Measurements) -> pd.DataFrame:
    """What the finished pretrainings of a page measured on the way, a row for each run, point and metric."""
    points = []
    for cell in page.cells:
        knobs = json.dumps(cell.values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for seed, record in page.finished(cell).items():
            curve, origin = {**record.curve}, (page.grid.name, scale, cell.label, knobs, seed, record.id)
            tokens = curve.pop("tokens", [])
            steps = curve.pop("step", [math.nan] * len(tokens))
            for metric, values in curve.items():
                numbers = zip(steps, tokens, values, strict=True)
                points += [Point(*origin, step, at, metric, value, unit(metric)) for step, at, value in numbers]
    return pd.DataFrame(sorted(points), columns=Point._fields)


def _measured(trial: Trial, page: Measurements) -> Iterable[Measurement]:
    return (row for row in page.rows if row.cell == trial.label) if isinstance(trial, Cell) else page.rows_of(trial)


def comma_separated(scale: str, page: Measurements) -> str:
    """The rows of a page as CSV with Unix line ends; they depend only on the records and the grid."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(sorted(set(rows_of_page(scale, page))))
    return out.getvalue()


def _row(grid: str, scale: str, trial: Trial | None, row: Measurement, page: Measurements) -> Row:
    record = page.get(row.run)
    provenance = record.provenance if record else {}
    dirty = provenance.get("dirty")
    knobs = json.dumps(trial.values, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if trial else ""
    return Row(
        grid=csv_entry(grid),
        scale=csv_entry(scale),
        cell=csv_entry(trial.label) if trial else "",
        knobs=json_text(knobs),
        kind=record.kind if record else "pretrain",
        task=csv_entry(row.task),
        seed=row.seed,
        run=row.run,
        outcome=row.outcome,
        metric=csv_entry(row.metric),
        value=repr(float(row.value)),
        unit=csv_entry(unit(row.metric)),
        device=csv_entry(row.device),
        commit=csv_entry(str(provenance.get("commit") or "")),
        dirty="" if dirty is None else str(bool(dirty)),
    )
