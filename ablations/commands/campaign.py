"""``ablations campaign`` shows a queue of parts of grids, ``run`` works it off where nothing else needs a core."""

import json
import os
import time
from typing import Annotated, Any

import typer

from ablations.commands.terminal import As, For, Format, Results, aside, echo, listing, moment, reporting_errors

app = typer.Typer(help="A queue of parts of grids, what is worth most first: shown, or worked off on one core.")
Queue = Annotated[str | None, typer.Option("--file", help="The queue. Default: the project's, campaign.yaml.")]
_ALONE = {"kind": "local", "slots": 1}
_LOWEST = 19  # niceness


@app.callback(invoke_without_command=True)
def campaign(context: typer.Context, file: Queue = None, results_dir: Results = None, form: As = Format.table) -> None:
    """Shows each row with its state, its cost and the claims that it answers; trains nothing.

    A row costs what is left of it, without what rows above it make.
    """
    if context.invoked_subcommand is None:
        with reporting_errors():
            _show(file, results_dir, form)
    elif file or results_dir:
        raise typer.BadParameter(f"options go behind the command: ablations campaign {context.invoked_subcommand} ...")


@app.command()
def run(duration: For = None, file: Queue = None, results_dir: Results = None, form: As = Format.table) -> None:
    """Works the queue off, one run at a time on one thread, at the lowest priority.

    A row's page is published once its runs have ended. A page that cannot be made stops no row.
    Exits with 1 if runs have failed or pages are missing. Runs that did not fit the time have not failed.
    """
    with reporting_errors():
        until = moment(duration)
        os.nice(_LOWEST)
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and numpy are imported
        from ablations.core.store import Records
        from ablations.planning.campaign import planned
        from ablations.planning.plan import FirstLookOpen
        from ablations.study import Study
        from lightning_modules.config import ConfigError

        failed = False
        for n, (row, _) in enumerate(planned(file, Records(results_dir).snapshot()), start=1):
            if until is not None and time.monotonic() >= until:
                break
            try:
                study = Study(row.grid, row.scale, results_dir=results_dir).at_look(row.look)
            except FirstLookOpen:
                continue
            part = study.resolve().sliced(row.slice)
            if not part.pending and not part.open:
                continue
            with aside(form):
                echo(f"row {n}, {row.grid} at {row.scale}: {row.reason}")
                summary = study.run(_ALONE, slice=row.slice, until=until)
                echo(summary)
            failed = failed or bool(summary.failures or summary.problems)
            try:
                if summary.complete:
                    study.publish()
            except ConfigError as error:
                echo(f"row {n}, {row.grid} at {row.scale} has no page: {error}", err=True)
                failed = True
        _show(file, results_dir, form)
        if failed:
            raise typer.Exit(1)


def _show(file: str | None, results_dir: str | None, form: Format) -> None:
    from ablations.core.store import Records
    from ablations.planning.campaign import planned
    from ablations.running import estimate

    records, rows, known = Records(results_dir), list[dict[str, Any]](), set[str]()
    for n, (row, plan) in enumerate(planned(file, records.snapshot()), start=1):
        told: dict[str, Any] = {"row": n, "grid": row.grid, "scale": row.scale, "look": row.look}
        told |= {
            "slice": json.dumps(row.slice, ensure_ascii=False) if row.slice else "",
            "done": "waits for the first look",
            "core-hours": 0.0,
            "claims": [],
        }
        if plan is not None:
            ahead, whole = estimate.ahead(plan, records), len(plan.runs) + len(plan.awaited)
            done = whole - len(plan.pending) - len(plan.awaited)
            hours = sum(seconds for run_id, seconds in ahead.items() if run_id not in known) / 3600
            told |= {"done": f"{done} of {whole} runs", "core-hours": round(hours, 2), "claims": plan.claims}
            known |= ahead.keys()
        rows.append(told | {"reason": row.reason})
    if form is not Format.table:
        listing(rows, form, "grid")
        return
    listing([row | {"claims": len(row["claims"])} for row in rows], form, "grid")
    echo(f"{sum(row['core-hours'] for row in rows):.1f} core-hours left, without rows that wait for a first look")
