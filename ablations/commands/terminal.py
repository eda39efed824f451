"""How commands print, read ``name=value`` options and report errors."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import typer

_UNFOLDED = 10_000  # columns, wider than any listing


class Format(StrEnum):
    """How listings are printed."""

    table = "table"
    json = "json"
    names = "names"


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Prints errors of configuration and of disks as messages instead of tracebacks, and exits."""
    from ablations.core.store import StoreError
    from lightning_modules.cached import CacheError
    from lightning_modules.config import ConfigError
    from lightning_modules.files import is_full

    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            typer.secho(str(problem), err=True, fg="red")
        raise typer.Exit(2) from None
    except OSError as error:
        if isinstance(error, (CacheError, StoreError)):
            typer.secho(str(error), err=True, fg="red")
        elif is_full(error):
            typer.secho(f"{error.filename}: {error.strerror}; free some space and try again", err=True, fg="red")
        else:
            raise
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; run the command again to continue", err=True)
        raise typer.Exit(130) from None


def listing(rows: list[dict[str, Any]], form: Format, name: str) -> None:
    """Prints rows as a table, as JSON, or only their column ``name``."""
    if form is Format.json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False, default=str))
    elif form is Format.names:
        typer.echo("\n".join(str(row[name]) for row in rows))
    else:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD)
        for column in rows[0] if rows else ():
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        console = Console()
        if not console.is_terminal:  # a file or a pipe has no width
            console = Console(width=console.measure(table, options=console.options.update(width=_UNFOLDED)).maximum)
        console.print(table)


def show(*pieces: Any) -> None:
    """Prints Markdown: rendered in a terminal, verbatim elsewhere."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    for piece in pieces:
        text = str(piece)
        console.print(Markdown(text)) if console.is_terminal else typer.echo(text)


def values(pairs: list[str] | None, option: str) -> dict[str, Any]:
    """Reads a repeatable ``name=value`` option, its values as YAML.

    Raises:
        ConfigError: For every text without an equals sign, and for a repeated name.
    """
    from ablations.core import strict_yaml
    from lightning_modules.config import ConfigError, Problem

    wrong = [pair for pair in pairs or [] if "=" not in pair]
    if wrong:
        raise ConfigError(Problem(option, f"{pair!r} is not of the form name=value") for pair in wrong)
    split = [pair.split("=", 1) for pair in pairs or []]
    read: dict[str, Any] = {}
    for name, text in split:
        if name in read:
            both = f"{name}=[{', '.join(value for key, value in split if key == name)}]"
            raise ConfigError([Problem(option, f"{name!r} is given twice; write several values as one list: {both!r}")])
        read[name] = strict_yaml.value(text)
    return read
