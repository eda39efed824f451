"""``ablations sync``: the records of this store and of one elsewhere, united."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import As, Format, Results, bar, complain, existing, reporting_errors, tell

if TYPE_CHECKING:
    from ablations.core.sharing.sync import Report

_SECONDS = 60.0  # for each answer, a slow line included


def command(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The other store: a folder, s3://bucket/folder, ssh://host/folder.")
    ],
    push_only: Annotated[bool, typer.Option("--push-only", help="Copy from here to there alone.")] = False,
    pull_only: Annotated[bool, typer.Option("--pull-only", help="Copy from there to here alone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied. Write nothing.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for each answer.", min=0.1)] = _SECONDS,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Copies to each of two stores the records that only the other has. Nothing is overwritten.

    Exits with 1 if a run has two different final records, or if a damaged file was skipped. `ablations verify`
    explains both.
    """
    from ablations.core.sharing.remote import site
    from ablations.core.sharing.sites import Folder
    from ablations.core.sharing.sync import unite
    from ablations.core.store import Records
    from lightning_modules.config import ConfigError, Problem

    with reporting_errors():
        if push_only and pull_only:
            raise ConfigError(["--push-only and --pull-only exclude each other. Without both, records go both ways."])
        here = Folder((existing(results_dir) if push_only else Records(results_dir)).folder)
        there = site(url, timeout)
        if isinstance(there, Folder) and there.folder.resolve() == here.folder.resolve():
            raise ConfigError([Problem("URL", f"{there.address} is this store itself. Name the other one.")])
        if pull_only and not there.files():
            raise ConfigError([Problem("URL", f"there is no store at {there.address}. Check the address.")])
        with bar("records", form) as on_step:
            report = unite(here, there, push=not pull_only, pull=not push_only, dry_run=dry_run, on_step=on_step)
        data, people = told(report, there.address, dry_run)
        tell(data, form, "pulled", *people)
        if not report.whole:
            raise typer.Exit(1)


def told(report: "Report", address: str, dry_run: bool = False) -> tuple[dict[str, Any], list[str]]:
    """What uniting two stores did, for programs and for people. Names conflicts and damages on standard error."""
    complain(f"skipped: {place}/{damage}" for place, damage in report.damages)
    complain(f"conflict in {conflict}" for conflict in report.conflicts)
    complain(f"run {run} got a record of another process meanwhile. Sync again." for run in report.overtaken)
    verbs = ("would push", "would pull") if dry_run else ("pushed", "pulled")
    parts = [f"{verbs[0]} {len(report.pushed)}", f"{verbs[1]} {len(report.pulled)}", f"{report.same} in both already"]
    parts += [f"{len(report.conflicts)} in conflict: both kept, see `ablations verify`"] if report.conflicts else []
    parts += [f"{len(report.damages)} damaged files skipped"] if report.damages else []
    people = [f"records with {address}: {', '.join(parts)}"]
    if report.pulled and not dry_run:
        people.append("next:  ablations tables")
    said = asdict(report) | {"damages": [{"store": place, **asdict(damage)} for place, damage in report.damages]}
    return {"store": address, **said}, people
