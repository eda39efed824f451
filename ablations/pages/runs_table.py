"""``results/runs.csv``: every number of every record in long form, so that pandas is enough to analyse it again.

One row per run and metric. A run that several cells share has its rows once for each cell, which ``grid``, ``scale``
and ``cell`` name; a run on no page has them once, with these columns empty. ``docs/records.md`` describes the columns
and metrics.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ablations.core import store
from ablations.core.formatting import csv_entry
from ablations.core.store import Snapshot
from ablations.measurements.dictionary import unit
from ablations.measurements.measurements import Measurement, Measurements, device_class, measured, record_rows
from ablations.schema.cell import Cell, Trial
from ablations.schema.record import Record

NAME = "runs.csv"


class Row(NamedTuple):
    """One line of the file; its fields are the columns, in order."""

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
            rows += [_row(page.grid.name, scale, trial, row, page.get(row.run)) for row in _measured(trial, page)]
    return rows


def frame(scale: str, page: Measurements) -> pd.DataFrame:
    """The rows of a page as a DataFrame, as pandas reads them from the file; values are numbers."""
    return pd.DataFrame(sorted(set(rows_of_page(scale, page))), columns=Row._fields).astype({"value": float})


def _measured(trial: Trial, page: Measurements) -> Iterable[Measurement]:
    return (row for row in page.rows if row.cell == trial.label) if isinstance(trial, Cell) else measured(trial, page)


def write(snapshot: Snapshot, pages: Iterable[Row], keep: Callable[[str, str], bool]) -> Path:
    """Writes the rows of pages, and those of records on no page.

    The bytes depend only on the records and the grids.

    Args:
        snapshot: The records and their folder.
        pages: The rows of pages.
        keep: Grid and scale of a page -> whether the file's present rows of that page stay.
    """
    kept = (row for row in _present(snapshot.folder / NAME) if row.run in snapshot.found and keep(row.grid, row.scale))
    rows = sorted({*pages, *kept})
    known = {row.run for row in rows}
    rows += sorted(row for row in _others(snapshot) if row.run not in known)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    path = snapshot.folder / NAME
    store.write(path, out.getvalue().encode())
    return path


def _of_cells(line: list[str]) -> Row:
    cells: list[Any] = list(line)
    place = Row._fields.index("seed")
    cells[place] = int(cells[place])
    return Row(*cells)


def _present(path: Path) -> Iterator[Row]:
    """The rows of pages in the file; none if it is missing or is not such a table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
        if lines and tuple(lines[0]) == Row._fields:
            rows = [_of_cells(line) for line in lines[1:]]
            yield from (row for row in rows if row.grid)
    except (OSError, ValueError, TypeError, csv.Error):
        return


def _others(snapshot: Snapshot) -> Iterator[Row]:
    for _, record in snapshot.survey():
        if isinstance(record, Record):
            config, device = record.config, device_class(record)
            seed, task = config.get("seed", 0), str(config.get("task", ""))
            seed = seed if isinstance(seed, int) else 0  # `ablations verify` names a configuration that is none
            where = Measurement("", seed, record.id, task, record.outcome, device, None, "", 0)
            for row in record_rows(where, record):
                yield _row("", "", None, row, record)


def _row(grid: str, scale: str, trial: Trial | None, row: Measurement, record: Record | None) -> Row:
    provenance = record.provenance if record else {}
    dirty = provenance.get("dirty")
    knobs = json.dumps(trial.values, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if trial else ""
    return Row(
        grid=grid,
        scale=scale,
        cell=csv_entry(trial.label) if trial else "",
        knobs=knobs,
        kind=record.kind if record else "pretrain",
        task=row.task,
        seed=row.seed,
        run=row.run,
        outcome=row.outcome,
        metric=row.metric,
        value=repr(float(row.value)),
        unit=unit(row.metric),
        device=csv_entry(row.device),
        commit=str(provenance.get("commit") or ""),
        dirty="" if dirty is None else str(bool(dirty)),
    )
