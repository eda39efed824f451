"""``ablations clean``: what is kept in the cache and can be made again."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ablations.commands.terminal import As, Format, Results, reporting_errors, tell


def command(
    everything: Annotated[
        bool, typer.Option("--all", help="Also remove token stores, tokenizers and checkpoints of unfinished runs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask, as off a terminal.")] = False,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Removes checkpoints, weights and logs of finished runs; keeps records and pages.

    With --all, lists all that ablations made in the cache with its size, asks on a terminal, and removes it. What is in
    use and what ablations did not make stay. Exits with 1 if something could not be removed.
    """
    from ablations.core import cleaning
    from ablations.core.store import Records
    from lightning_modules.places import cache

    with reporting_errors():
        records = Records(results_dir)
        found = cleaning.of_all(records) if everything else cleaning.of_finished(records)
        if everything and found.going:
            for part, sizes in _by_part(found.going, cache()).items():
                typer.echo(
                    f"{part}: {len(sizes):,} files and folders, {_megabytes(sizes)}", err=form is not Format.table
                )
            if sys.stdin.isatty() and not yes:
                typer.confirm(f"Remove all of it from {cache()}?", abort=True, err=True)
        stuck = cleaning.remove(found.going)
        gone = {path: size for path, size in found.going.items() if path not in stuck}
        folders = list(gone)
        if everything:
            folders = [cache() / part for part in _by_part(gone, cache()) if not (cache() / part).exists()]
        left = found.left | stuck
        for reason in dict.fromkeys(left.values()):
            first, *more = [path for path, why in left.items() if why == reason]
            typer.secho(
                f"not removed: {first}{f' and {len(more):,} more' if more else ''}: {reason}", err=True, fg="red"
            )
        data = {"folders": folders, "bytes": sum(gone.values())}
        data["left"] = [{"path": path, "reason": reason} for path, reason in left.items()]
        tell(data, form, "folders", f"removed {len(folders):,} folders, {_megabytes(gone.values())}")
        if stuck:
            raise typer.Exit(1)


def _by_part(sizes: Mapping[Path, int], home: Path) -> dict[str, list[int]]:
    """Part of the cache -> the sizes of what lies in it."""
    parts: dict[str, list[int]] = {}
    for path, size in sizes.items():
        parts.setdefault(path.relative_to(home).parts[0], []).append(size)
    return parts


def _megabytes(sizes) -> str:
    return f"{sum(sizes) / 1e6:,.0f} MB"
