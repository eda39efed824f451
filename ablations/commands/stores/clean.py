"""``ablations clean``: removes what is in the cache and can be made again."""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ablations.commands.terminal import As, Format, Results, complain, echo, known, reporting_errors, tell


def command(
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
        complain(f"not removed: {_and_more(first[reason], count - 1)}: {reason}" for reason, count in counts.items())
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


def _and_more(path: Path, count: int) -> str:
    return f"{path} and {count:,} more" if count else str(path)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
