"""Pages from records: of one plan, or of every grid that has something to compare."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from ablations.core import store
from ablations.core.store import Records, Snapshot
from ablations.measurements.measurements import Measurements
from ablations.measurements.summaries import planned_metrics
from ablations.pages import parameters_page, report, runs_table, scoreboard_page
from ablations.pages.scoreboard_page import REQUEST
from ablations.planning import grids, scales
from ablations.planning.cells import tasks_at
from ablations.planning.plan import Plan, plan
from lightning_modules.tasks import pins as task_pins


def publish(source: str, found: Plan, records: Records) -> dict[str, Path]:
    """Writes the page of a plan, the scoreboard and the index."""
    snapshot = records.snapshot()
    written = _publish(source, found, Measurements(found.grid, found.cells, snapshot), snapshot.folder)
    return written | _overviews(snapshot)


def _publish(source: str, plan: Plan, measured: Measurements, results_dir: Path) -> dict[str, Path]:
    """Writes only the page; the page of an overridden grid, or of a grid given by path, keeps its request."""
    folder = results_dir / plan.grid.name / plan.folder_name
    is_known = source in grids.available()
    if plan.overrides or not is_known:
        name = source if is_known else os.path.relpath(source, results_dir)
        request = {"grid": name, "scale": plan.scale, **plan.overrides}
        store.write(folder / REQUEST, (json.dumps(request, indent=1, ensure_ascii=False) + "\n").encode())
    return report.publish(plan, measured, folder)


def _overviews(snapshot: Snapshot) -> dict[str, Path]:
    """Writes the scoreboard and the index of all pages."""
    scoreboard_page.write(snapshot)
    return {"results/README.md": report.index(snapshot.folder)}


def republish(results_dir: str | Path | None = None) -> list[Path]:
    """Rebuilds every page under a results folder from its records; trains nothing and reads no corpus.

    A grid with nothing to compare, only runs that it shares with others, gets no page. A scale without a page is
    skipped if the grid does not list it, or if one of its tasks is neither pinned nor available: the ids of its runs
    are then unknown.

    Also writes the page of published configurations, which needs no records, and the table of all runs. Reads each
    record once.

    Returns:
        The folders of the pages written.
    """
    snapshot, folders, rows = Records(results_dir).snapshot(), [], []
    parameters_page.publish(snapshot.folder)
    for source, found, measured in _pages(snapshot):
        _publish(source, found, measured, snapshot.folder)
        folders.append(snapshot.folder / found.grid.name / found.folder_name)
        rows += runs_table.rows_of_page(found.folder_name, measured)
    runs_table.write(snapshot, rows)
    _overviews(snapshot)
    return folders


def _pages(snapshot: Snapshot) -> Iterator[tuple[str, Plan, Measurements]]:
    """The plans that have a page, with their sources and measurements: whole grids first, then overridden ones."""
    for name in grids.available():
        grid = grids.read(name)
        for scale in dict.fromkeys((*grid.scales, *scales.available())):
            has_page = (snapshot.folder / name / scale).is_dir()
            is_known = scale in grid.scales and all(task_pins.at_hand(task) for task in tasks_at(grid, scale))
            if has_page or is_known:
                found = plan(grid, scale, records=snapshot)
                if any(run.id in snapshot.found for run in found.runs):
                    measured = Measurements(found.grid, found.cells, snapshot)
                    if _compares(measured):
                        yield name, found, measured
    for path in sorted(snapshot.folder.glob(f"*/*/{REQUEST}")):
        request = json.loads(path.read_text(encoding="utf-8"))
        source, scale = request.pop("grid"), request.pop("scale")
        source = source if source in grids.available() else str(snapshot.folder / source)
        found = plan(grids.read(source), scale, **request, records=snapshot)
        yield source, found, Measurements(found.grid, found.cells, snapshot)


def _compares(measured: Measurements) -> bool:
    """Whether some metric of the grid has been measured in two cells, or in the only cell of a grid.

    Cells that differ only in fine-tuning share their pretraining; its metrics compare nothing.
    """
    for metric in planned_metrics(measured.grid, measured.cells):
        values = (tuple(measured.values(cell, metric.name).items()) for cell in measured.cells)
        if len(set(filter(None, values))) >= min(2, len(measured.cells)):
            return True
    return False
