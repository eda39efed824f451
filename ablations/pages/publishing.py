"""Pages from records: of one plan, or of every grid that has something to show."""

import json
from collections.abc import Iterator
from pathlib import Path

from ablations.core import store
from ablations.core.store import Records, Snapshot
from ablations.measurements.summaries import planned_metrics
from ablations.measurements.table import Measurements
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


def _publish(source: str, found: Plan, measured: Measurements, results_dir: Path) -> dict[str, Path]:
    """Writes a page alone; those of overridden grids keep the request they came from."""
    folder = results_dir / found.grid.name / found.folder_name
    if found.overrides or source not in grids.available():
        request = {"grid": source, "scale": found.scale, **found.overrides}
        store.write(folder / REQUEST, (json.dumps(request, indent=1, ensure_ascii=False) + "\n").encode())
    return report.publish(found, measured, folder)


def _overviews(snapshot: Snapshot) -> dict[str, Path]:
    """Writes what all pages have in common: the scoreboard and the index."""
    scoreboard_page.write(snapshot)
    return {"results/README.md": report.index(snapshot.folder)}


def republish(results_dir: str | Path | None = None) -> list[Path]:
    """Rebuilds every page under a results folder from its records; nothing is trained and no corpus opened.

    A grid that has no comparison to show, only runs that it shares with others, gets no page.
    Scales without a page are left alone where the grid does not list them, and where they have a task that is neither
    pinned nor at hand: what their runs would be called is not known here.

    What needs no records, the parameters of published configurations, is written beside the pages; so is the table of
    all runs. Each record is read once.

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
    """The plans that have a page, each with its source and measurements: whole grids first, then overridden ones."""
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
        found = plan(grids.read(source), scale, **request, records=snapshot)
        yield source, found, Measurements(found.grid, found.cells, snapshot)


def _compares(measured: Measurements) -> bool:
    """Whether some metric of the grid has been measured in two cells; in the one that a grid of one cell has.

    Cells that differ in fine-tuning alone have their pretraining in common, which compares nothing.
    """
    for metric in planned_metrics(measured.grid, measured.cells):
        values = (tuple(measured.values(cell, metric.name).items()) for cell in measured.cells)
        if len(set(filter(None, values))) >= min(2, len(measured.cells)):
            return True
    return False
