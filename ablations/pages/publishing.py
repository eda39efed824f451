"""Pages from records: of one plan, or of every grid that has something to show."""

import json
from pathlib import Path

from ablations.core import store
from ablations.core.store import Records
from ablations.measurements.frames import metric_by_seed, planned_metrics
from ablations.pages import parameters_page, report, scoreboard_page
from ablations.pages.scoreboard_page import REQUEST
from ablations.planning import grids, scales
from ablations.planning.cells import tasks_at
from ablations.planning.plan import Plan, plan
from lightning_modules.tasks import pins as task_pins


def publish(source: str, found: Plan, records: Records) -> dict[str, Path]:
    """Writes the page of a plan, the scoreboard and the index."""
    written = _publish(source, found, records)
    scoreboard_page.write(records.folder, records)
    return written | {"results/README.md": report.index(records.folder)}


def _publish(source: str, found: Plan, records: Records) -> dict[str, Path]:
    """Writes a page alone; those of overridden grids keep the request they came from."""
    folder = records.folder / found.grid.name / found.folder_name
    if found.overrides or source not in grids.available():
        request = {"grid": source, "scale": found.scale, **found.overrides}
        store.write(folder / REQUEST, (json.dumps(request, indent=1, ensure_ascii=False) + "\n").encode())
    return report.publish(found, records, folder)


def republish(results_dir: str | Path | None = None) -> list[Path]:
    """Rebuilds every page under a results folder from its records; nothing is trained and no corpus opened.

    A grid that has no comparison to show, only runs that it shares with others, gets no page.
    Scales without a page are left alone where the grid does not list them, and where they have a task that is neither
    pinned nor at hand: what their runs would be called is not known here.

    What needs no records, the parameters of published configurations, is written beside the pages.

    Returns:
        The folders of the pages written.
    """
    records, folders = Records(results_dir), []
    parameters_page.publish(records.folder)
    known = {path.stem for path in records.files()}
    for name in grids.available():
        grid = grids.read(name)
        for scale in dict.fromkeys((*grid.scales, *scales.available())):
            has_page = (records.folder / name / scale).is_dir()
            if not has_page and scale not in grid.scales:
                continue
            if not has_page and not all(task_pins.at_hand(task) for task in tasks_at(grid, scale)):
                continue
            found = plan(grid, scale, records=records)
            if known & {run.id for run in found.runs} and _compares(found, records):
                _publish(name, found, records)
                folders.append(records.folder / name / found.folder_name)
    for path in sorted(records.folder.glob(f"*/*/{REQUEST}")):
        request = json.loads(path.read_text(encoding="utf-8"))
        source, scale = request.pop("grid"), request.pop("scale")
        found = plan(grids.read(source), scale, **request, records=records)
        _publish(source, found, records)
        folders.append(records.folder / found.grid.name / found.folder_name)
    scoreboard_page.write(records.folder, records)
    report.index(records.folder)
    return folders


def _compares(found: Plan, records: Records) -> bool:
    """Whether some metric of the grid has been measured in two cells; in the one that a grid of one cell has.

    Cells that differ in fine-tuning alone have their pretraining in common, which compares nothing.
    """
    for metric in planned_metrics(found.grid, found.cells):
        values = (tuple(metric_by_seed(cell, records, metric.name).items()) for cell in found.cells)
        if len(set(filter(None, values))) >= min(2, len(found.cells)):
            return True
    return False
