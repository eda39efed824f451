"""``ablations status`` shows what is made now, and ``ablations stop`` ends it with checkpoints, from any terminal."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import As, Format, Results, aside, echo, known, listing, reporting_errors

if TYPE_CHECKING:
    from ablations.core.store import Records
    from ablations.running.attempts import Attempt
    from ablations.running.launchers import Launcher

Which = Annotated[str, typer.Argument(help="A grid. Default: all.")]


def status(grid: Which = "", results_dir: Results = None, form: As = Format.table) -> None:
    """Shows which runs are made now: where, since when, how far. Names attempts whose process has died."""
    with reporting_errors():
        from ablations.running import attempts

        working, stores = _working(grid, results_dir), known(results_dir).parts
        rows = [_row(store, one) for store in stores for one in attempts.known(store) if grid in ("", one.grid)]
        listing(rows, form, "run")
        if form is Format.table:
            for one in working:
                echo(f"{_named(one)} makes {one.runs} runs, since {one.since}")
            if not working:
                echo(f"no launcher works on {grid or 'this results folder'}")


def stop(grid: Which = "", results_dir: Results = None, form: As = Format.table) -> None:
    """Stops the launchers of a grid, on whatever machine: runs write checkpoints, and `ablations run` resumes them."""
    with reporting_errors():
        from ablations.running import launchers

        found = _working(grid, results_dir)
        for one in found:
            launchers.stop(one)
        with aside(form):
            for one in found:
                echo(f"{_named(one)} writes checkpoints and ends")
            if not found:
                echo(f"no launcher works on {grid or 'this results folder'}")
        if form is not Format.table:
            named = ("grid", "scale", "host", "pid", "since")
            listing([{name: getattr(one, name) for name in named} for one in found], form, "grid")
        if not found:
            raise typer.Exit(1)


def _working(grid: str, results_dir: str | None) -> "list[Launcher]":
    from ablations.planning import grids
    from ablations.running import launchers
    from lightning_modules.config import ConfigError, did_you_mean

    every = [one for store in known(results_dir).parts for one in launchers.living(store)]
    names = {*grids.available(), *(one.grid for one in every)}
    if grid and grid not in names:
        raise ConfigError([f"there is no grid '{grid}'.{did_you_mean(grid, names)}"])
    return [one for one in every if grid in ("", one.grid)]


def _named(launcher: "Launcher") -> str:
    return f"process {launcher.pid} on {launcher.host}, {launcher.grid} at {launcher.scale},"


def _row(records: "Records", attempt: "Attempt") -> dict[str, Any]:
    from ablations.core.formatting import duration
    from ablations.running.worker import PROGRESS
    from lightning_modules.files import read

    row: dict[str, Any] = {
        "run": attempt.run_id,
        "grid": attempt.grid,
        "what": attempt.label,
        "attempt": attempt.number,
    }
    row |= {"host": attempt.host, "process": attempt.pid, "since": attempt.since}
    if not records.is_locked(attempt.run_id):
        return row | {"state": "dead: the next `ablations run` records it as killed", "step": "", "left": ""}
    try:
        progress = json.loads(read(records.work_folder(attempt.run_id) / PROGRESS))
        step, steps = progress["step"], progress["steps"]
        left = (datetime.now(UTC) - datetime.fromisoformat(attempt.since)).total_seconds() * (steps - step) / step
    except (OSError, ValueError, LookupError, TypeError, ZeroDivisionError):
        return row | {"state": "begins", "step": "", "left": ""}
    return row | {"state": "runs", "step": f"{step:,.0f}/{steps:,.0f}", "left": duration(left)}
