"""``ablations sync``: records of another results folder, brought into this one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ablations.commands.terminal import As, Format, Results, complain, echo, reporting_errors, tell, watching


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Another results folder: mounted, or copied by rclone or rsync.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied. Write nothing.")] = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Copies records that are missing here from another results folder, which is only read. Overwrites nothing.

    Exits with 1 if something of it is not here afterwards. A run has two different final records, a file is damaged, or
    a process makes the run now.
    """
    from ablations.core.store import Records
    from ablations.core.sync import bring
    from lightning_modules.config import ConfigError, Problem

    with reporting_errors():
        there, here = Records(folder.expanduser().absolute()), Records(results_dir)
        if not (there.folder / "records").is_dir():
            near = f" Did you mean {folder / 'results'}?" * (there.folder / "results" / "records").is_dir()
            text = f"{folder} is no results folder: it has no folder 'records'.{near} Other machines' folders are"
            raise ConfigError([Problem("FOLDER", f"{text} mounted first, or copied by rclone or rsync.")])
        if here.folder.exists() and there.folder.samefile(here.folder):
            raise ConfigError([Problem("FOLDER", f"{folder} is the results folder itself. Name the other one.")])
        with watching():
            report = bring(there, here, dry_run)
        complain(f"skipped: {place}/{damage}" for place, damage in report.damages)
        for run, differing in report.conflicts.items():
            echo(f"conflict in run {run}: {differing}", err=True, fg="red")
            echo(f"  To take the other, copy it and its .heldout from {folder} over {here.path(run)}.", err=True)
        complain(f"run {run} is made here now. Sync again later." for run in report.busy)
        said = [f"{'would copy' if dry_run else 'copied'} {len(report.copied)}", f"{report.same} here already"]
        said += [f"{len(report.conflicts)} in conflict"] if report.conflicts else []
        said += [f"{len(report.damages)} damaged files skipped"] if report.damages else []
        people = [f"records of {folder}: {', '.join(said)}"]
        people += ["next:  ablations tables"] if report.copied and not dry_run else []
        damages = [{"store": place, **asdict(damage)} for place, damage in report.damages]
        tell({"store": there.folder, **asdict(report), "damages": damages}, form, "copied", *people)
        if not report.whole:
            raise typer.Exit(1)
