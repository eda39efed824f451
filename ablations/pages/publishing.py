"""Pages from records: of one plan, or of every grid that has something to compare."""

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ablations.claims import judging
from ablations.core import store
from ablations.core.disk.publishing import StoreError, check_inside, turn, unwritten
from ablations.core.store import Records, Snapshot
from ablations.measurements.measurements import Measurements
from ablations.measurements.summaries import planned_metrics
from ablations.pages import cards, lectures_page, parameters_page, report, scoreboard_page
from ablations.planning import grids, scales
from ablations.planning.grids import REQUEST
from ablations.planning.plan import Plan, plan
from ablations.planning.recorded import at_hand, may_have, systems
from ablations.schema.grid import Grid
from lightning_modules.config import ConfigError, Problem
from lightning_modules.data import pins as corpora
from lightning_modules.files import read
from lightning_modules.places import is_unpublished

_REQUESTED = {"axes": dict, "set": dict, "seeds": int, "filters": dict}  # what a request may override

_PATIENCE = 300.0  # seconds for another process that writes pages of the same folder: some minutes, if it has many


class GridWarning(UserWarning):
    """A grid cannot be read and was left out."""


class _Page(NamedTuple):
    """A page to rebuild: its folders below the results, its grid, its scale, and what overrides these."""

    folders: tuple[str, str]
    source: str
    scale: str
    overrides: dict[str, Any]

    @property
    def is_plain(self) -> bool:
        """Whether it is that of a whole grid at a scale, as its file says."""
        return self.folders == (self.source, self.scale)


def publish(source: str, found: Plan, records: Records) -> dict[str, Path]:
    """Writes the page of a plan, the index, and the scoreboard if it counts the scale.

    In the folder of unpublished results it writes the page alone. Other pages stay as they are. A grid that cannot be
    read is left out of the scoreboard with a `GridWarning`.
    """
    with _snapshot(records) as snapshot:
        written = _publish(source, found, Measurements(found.grid, found.cells, snapshot), snapshot.folder)
        if records.published:
            return written
        if scales.is_trial(found.scale):
            return written | _index(snapshot)
        for problem in grids.readable()[1]:
            warnings.warn(f"a grid is left out of the scoreboard: {problem}", GridWarning, stacklevel=2)
        return written | _overviews(snapshot)


@contextmanager
def _snapshot(records: Records) -> Iterator[Snapshot]:
    """The records as they are once no other process writes pages: the last to write has seen the runs of all."""
    try:
        records.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(error, records.folder, "pages") from error
    with turn(records.folder, _PATIENCE):
        yield records.snapshot()


def check_page(source: str, folder: Path) -> None:
    """Checks that a page is not that of another file, which has the same name, and is not linked out of the results.

    Args:
        source: The name of a grid, or the path of its file.

    Raises:
        ConfigError: If it is; a file that is gone has no page.
    """
    try:
        check_inside(folder, folder.parents[1])
    except StoreError as error:
        raise ConfigError([str(error)]) from None
    match _json(folder / REQUEST):
        case {"grid": str(theirs)} if theirs.endswith(grids.ENDINGS):
            other, ours = folder.parents[1] / theirs, grids.locate(source)
            if other.is_file() and not other.samefile(ours):
                where = os.path.normpath(other)
                text = f"{folder} is the page of {where}: rename one of the files, or take another results folder"
                raise ConfigError([f"{ours}: {text}"])


def _publish(source: str, plan: Plan, measured: Measurements, results_dir: Path) -> dict[str, Path]:
    """Writes only the page; that of an overridden grid, or of one given by path, keeps its request."""
    folder = results_dir / plan.grid.name / plan.folder_name
    check_page(source, folder)
    is_known = source in grids.available()
    if plan.overrides or not is_known:
        name = source if is_known else os.path.relpath(source, results_dir)
        request = {"grid": name, "scale": plan.scale, **plan.overrides}
        store.write(folder / REQUEST, (json.dumps(request, indent=1, ensure_ascii=False) + "\n").encode())
    (folder / "runs.csv").unlink(missing_ok=True)  # of an earlier version: it would stay at old numbers
    return report.publish(plan, measured, folder)


def _overviews(snapshot: Snapshot) -> dict[str, Path]:
    """Writes the scoreboard, the tables of the lectures and the index of all pages."""
    scoreboard_page.write(snapshot)
    lectures_page.write(snapshot.folder)
    return _index(snapshot)


def _index(snapshot: Snapshot) -> dict[str, Path]:
    return {"results/README.md": report.index(snapshot.folder)}


def republish(results_dir: str | Path | None = None, grid: str | None = None) -> list[Path]:
    """Rebuilds every page under a results folder, or those of one grid, from its records.

    Trains nothing and reads no corpus.

    A grid with nothing to compare gets no page. A grid that answers none of its claims and has only runs of other pages
    gets none either. A scale without a page is skipped if the grid does not list it, or if one of its tasks or texts is
    neither pinned nor available: the ids of its runs are then unknown.

    Also writes the page of published configurations, which needs no records. Reads each record once.

    Args:
        grid: The grid whose pages are rebuilt, with the scoreboard and the index; by default all.

    Returns:
        The folders of the pages written.

    Raises:
        ConfigError: For grids that cannot be read and pages that cannot be planned, once everything else is written.
            These pages stay as they were. If ``grid`` has no page.
    """
    with _snapshot(Records(results_dir)) as snapshot:
        if grid is None:
            known, problems = grids.readable()
            if not is_unpublished(snapshot.folder):
                parameters_page.publish(snapshot.folder)
        else:
            known, problems = {(read := grids.read(grid)).name: read}, []
        return _republish(snapshot, known, problems, next(iter(known)) if grid else None)


def _republish(snapshot: Snapshot, known: Mapping[str, Grid], problems: list[Problem], only: str | None) -> list[Path]:
    folders: list[Path] = []
    for page, found, measured in _worth_showing(_planned(snapshot, known, problems, only), snapshot):
        try:
            _publish(page.source, found, measured, snapshot.folder)
        except ConfigError as error:  # a file in its folder
            problems += error.problems
            continue
        folders.append(snapshot.folder / found.grid.name / found.folder_name)
    if only and not folders and not problems:
        command = f"ablations run {only} --scale SCALE"
        raise ConfigError([f"'{only}' has no page in {snapshot.folder}. `{command}` trains and publishes"])
    if not is_unpublished(snapshot.folder):
        _overviews(snapshot)
    if problems:
        raise ConfigError(problems)
    return folders


def _planned(
    snapshot: Snapshot, known: Mapping[str, Grid], problems: list[Problem], only: str | None
) -> Iterator[tuple[_Page, Plan, Measurements]]:
    """The pages that a folder, or one of its grids, has or may have, with plans and measurements; adds to ``problems``.

    A new page is one of many that may show the same runs, so of one grid alone only the pages that are there count.
    """
    recorded = systems(snapshot)
    for page in (*_plain_pages(snapshot, known), *_overridden_pages(snapshot, problems, only)):
        has_page = snapshot.folder.joinpath(*page.folders).is_dir()
        if only is not None and not (page.folders[0] == only and has_page):
            continue
        try:
            grid = grids.read(page.source)
            if not has_page and page.is_plain and not may_have(grid, page.scale, recorded):
                continue
            found = plan(grid, page.scale, **page.overrides, records=snapshot)
        except ConfigError as error:
            if has_page:
                problems += [Problem("/".join(page.folders), f"stays as it was: {text}") for text in error.problems]
            continue
        if _is_published(page, snapshot) or any(run.id in snapshot.found for run in found.runs):
            yield page, found, Measurements(found.grid, found.cells, snapshot)


def _worth_showing(
    pages: Iterable[tuple[_Page, Plan, Measurements]], snapshot: Snapshot
) -> list[tuple[_Page, Plan, Measurements]]:
    """The pages that compare something, without new ones that answer nothing and show only runs of other pages."""
    known = [
        (*page, snapshot.folder.joinpath(*page[0].folders).is_dir() or not page[0].is_plain or _answers(page[2]))
        for page in pages
        if _is_published(page[0], snapshot) or _compares(page[2])
    ]
    shown = {run.id for _, found, _, stands in known if stands for run in found.runs}
    return [
        (page, found, measured)
        for page, found, measured, stands in known
        if stands or any(run.id in snapshot.found and run.id not in shown for run in found.runs)
    ]


def _is_published(page: _Page, snapshot: Snapshot) -> bool:
    """Whether a page is there; it is rebuilt whatever it shows, for its old numbers may be of runs that no cell has."""
    return not page.is_plain or snapshot.folder.joinpath(*page.folders, cards.NAME).is_file()


def _plain_pages(snapshot: Snapshot, known: Mapping[str, Grid]) -> Iterator[_Page]:
    """The whole grids at the scales that have a page or may have one."""
    for name, grid in known.items():
        for scale in dict.fromkeys((*grid.scales, *scales.available())):
            has_page = (snapshot.folder / name / scale).is_dir()
            is_ours = scale in grid.scales and not is_unpublished(snapshot.folder)
            if has_page or (is_ours and at_hand(grid, scale)):
                yield _Page((name, scale), name, scale, {})


def _overridden_pages(snapshot: Snapshot, problems: list[Problem], only: str | None) -> Iterator[_Page]:
    """The pages with a request of their own, of a grid or of all; adds those that cannot be read to ``problems``."""
    for path in sorted(snapshot.folder.glob(f"{only or '*'}/*/{REQUEST}")):
        folders = (path.parts[-3], path.parts[-2])
        match _json(path):
            case {"grid": str(source), "scale": str(scale), **overrides} if _is_request(overrides):
                source = source if source in grids.available() else os.path.normpath(snapshot.folder / source)
                if unknown := _unknown_text(overrides):
                    text = (
                        f"stays as it was: nobody has read its text here ({unknown}). Open and publish the study again."
                    )
                    problems.append(Problem("/".join(folders), text))
                else:
                    yield _Page(folders, source, scale, overrides)
            case _:
                text = f"stays as it was: its {REQUEST} is no request. Open and publish the study again."
                problems.append(Problem("/".join(folders), text))


def _unknown_text(overrides: Mapping[str, Any]) -> str:
    """A corpus that a request names and that would have to be read, on this machine or the hub; empty if none."""
    named = {**overrides.get("axes", {}), **overrides.get("set", {})}
    listed = [value for path, value in named.items() if path.endswith("corpora")]
    while any(isinstance(value, list) for value in listed):
        listed = [item for value in listed for item in (value if isinstance(value, list) else [value])]
    try:
        return next((name for name in listed if isinstance(name, str) and not corpora.is_known(name)), "")
    except ConfigError as error:
        return str(error)


def _is_request(overrides: Mapping[str, Any]) -> bool:
    are_known = all(isinstance(value, _REQUESTED.get(name, ())) for name, value in overrides.items())
    return are_known and all(isinstance(values, list) for values in overrides.get("axes", {}).values())


def _json(path: Path) -> Any:
    """The content of a file; None if it is not JSON."""
    try:
        return json.loads(read(path, within=path.parents[2]))
    except (OSError, ValueError, RecursionError):
        return None


def _answers(measured: Measurements) -> bool:
    """Whether some claim of the grid has all its sides measured; of a grid without claims there is none to wait for."""
    return not measured.grid.claims or any(verdict.is_measured for verdict in judging.verdicts(measured))


def _compares(measured: Measurements) -> bool:
    """Whether some metric of the grid has been measured in two cells, or in the only cell of a grid.

    Cells that differ only in fine-tuning share their pretraining; its metrics compare nothing.
    """
    for metric in planned_metrics(measured.grid, measured.cells):
        rows = (measured.of(cell, metric.name).values() for cell in measured.cells)
        runs = {tuple((row.run, row.value) for row in found) for found in rows}  # different runs may have equal values
        if len(runs - {()}) >= min(2, len(measured.cells)):
            return True
    return False
