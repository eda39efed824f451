"""Commands on whole stores of records: ``sync``, ``keep`` and ``clean``."""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ablations.commands.terminal import (
    As,
    Format,
    Results,
    Train,
    aside,
    complain,
    echo,
    existing,
    known,
    reporting_errors,
    tell,
    watching,
)


def sync(
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


def keep(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of finished pretrainings, or first digits.")],
    train: Train = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Copies weights and tokenizer of finished pretrainings into the results folder, so that a clone has them.

    Fine-tunings and continued pretrainings then start from them on any machine, and `ask` and `export`
    need neither training nor corpora. Meant for runs that many others start from.
    """
    from ablations.inspection import trained

    with reporting_errors():
        records, folders = existing(results_dir), []
        for record in [trained.finished(run, records, "pretrain") for run in runs]:
            with aside(form):
                folders.append(trained.keep(record, records, train))
        size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
        people = [f"kept {folder.relative_to(records.folder.parent)}" for folder in folders]
        people.append(f"{size / 1e6:.1f} MB. Commit them with the records.")
        tell({"folders": folders, "bytes": size}, form, "folders", *people)


def clean(
    everything: Annotated[
        bool, typer.Option("--all", help="Also remove token stores, tokenizers and checkpoints of unfinished runs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask first, as off a terminal.")] = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Removes checkpoints, weights and logs of finished runs. Keeps records and pages.

    With --all it lists what ablations made in the cache, asks on a terminal, and removes it. What is in use stays, and
    so does what others put there. Exits with 1 if something could not be removed.
    """
    from ablations.core import cleaning
    from ablations.core.store import Records
    from lightning_modules.places import cache

    with reporting_errors():
        home, records = cache(), Records(results_dir) if everything and results_dir else known(results_dir)
        found = cleaning.of_all(records) if everything else cleaning.of_finished(records)
        if everything:
            for part, size in _by_part(found.going, home).items():
                echo(f"{part}: {_megabytes(size)}", err=form is not Format.table)
            if found.going and sys.stdin.isatty() and not yes:
                typer.confirm(f"Remove all of it from {home}?", abort=True, err=True)
        stuck = cleaning.remove(found.going)
        gone = {path: size for path, size in found.going.items() if path not in stuck}
        left = found.left | stuck
        folders = [part for part in _by_part(gone, home) if not part.exists()] if everything else [*gone]
        counts = Counter(left.values())
        first = {reason: path for path, reason in reversed(left.items())}
        complain(
            f"not removed: {first[reason]}{f' and {count - 1:,} more' * (count > 1)}: {reason}"
            for reason, count in counts.items()
        )
        size = sum(gone.values())
        data = {"folders": folders, "bytes": size, "left": [{"path": path, "reason": left[path]} for path in left]}
        tell(data, form, "folders", f"removed {len(folders)} folders, {_megabytes(size)}")
        if stuck:
            raise typer.Exit(1)


def _by_part(sizes: Mapping[Path, int], home: Path) -> dict[Path, int]:
    """Folder of the cache -> the bytes of what lies in it."""
    parts: dict[Path, int] = {}
    for path, size in sizes.items():
        part = home / path.relative_to(home).parts[0]
        parts[part] = parts.get(part, 0) + size
    return parts


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
