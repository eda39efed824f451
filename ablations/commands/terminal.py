"""How commands print, read ``name=value`` options and report errors."""

import contextlib
import errno
import functools
import html
import itertools
import json
import math
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from ablations.core.store import Records

WRONG = 2  # the exit code for wrong input
_UNFOLDED = 10_000  # columns, wider than any listing
_PLACES, _NAME, _PAGE = 3, 300, 3000  # of a message: places where it is said, letters of a name and of the whole
_SOON, _EACH = 1.5, 0.2  # seconds until a bar is drawn, and until it is drawn again
_ADVICE = {  # error number -> what to do about a path; by default another place may do
    errno.EACCES: "let its owner give you permission, or name another place",
    errno.EPERM: "let its owner give you permission, or name another place",
    errno.EROFS: "name a place on another file system",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "A part of the path is no folder. Check it.",
    errno.EISDIR: "name a file",
    errno.ELOOP: "A link there leads to itself. Remove it.",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_BETWEEN = re.compile(r"(?<!\\)\|")  # cells of a table of Markdown, whose own bars are escaped
_ESCAPED = re.compile(r"\\([\\`*<>|$~_\]()])")


class Format(StrEnum):
    """How listings are printed."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"
    names = "names"


class Notation(StrEnum):
    """How tables are printed: as listings are, or in a notation of documents."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "markdown"
    names = "names"
    tex = "tex"


def plain(form: Notation, what: str) -> Format:
    """The format of what is no table.

    Raises:
        typer.BadParameter: For a notation of documents.
    """
    if form is Notation.tex:
        raise typer.BadParameter(f"--format {form.value} is for tables. Allowed for {what}: {', '.join(Format)}")
    return Format(form.value)


def echo(text: object = "", *, nl: bool = True, err: bool = False, **style: Any) -> None:
    """Prints text, of whatever origin, with its control characters spelt out."""
    from ablations.core.formatting import terminal_text

    shown = terminal_text(str(text))
    typer.echo(typer.style(shown, **style) if style else shown, nl=nl, err=err)


def complain(problems: Iterable[object]) -> None:
    """Prints problems, one a line; one that occurs at many places once, with their number."""
    for problem in shortened(problems):
        echo(problem, err=True, fg="red")


def shortened(problems: Iterable[object]) -> Iterator[str]:
    """Problems for people to read: none is said at more than three places, none is longer than a page.

    Of a name that is longer than 300 letters, and of a problem that is longer than 3,000, beginning and end are left.
    """
    alike: dict[str, list[str]] = {}
    for problem in problems:
        alike.setdefault(getattr(problem, "message", str(problem)), []).append(str(problem))
    for said in alike.values():
        few = said if len(said) <= _PLACES else [f"{said[0]} (and {len(said) - 1:,} more like it)"]
        for text in few:
            text = re.sub(rf"\S{{{_NAME + 1},}}", lambda name: _ends(name[0]), text)
            yield _ends(text) if len(text) > _PAGE else text


def _ends(text: str) -> str:
    return f"{text[: _NAME * 2 // 3]} … {text[-_NAME // 3 :]}"


def _notation(text: str) -> Notation:
    """The notation of this name; ``md`` is the former name of ``markdown``."""
    from lightning_modules.config import did_you_mean

    try:
        return Notation({"md": "markdown"}.get(text, text))
    except ValueError:
        allowed = [str(form) for form in Notation]
        raise typer.BadParameter(f"no '{text}'.{did_you_mean(text, allowed, listed=True)}") from None


As = Annotated[
    Format, typer.Option("--format", help="table or markdown for people, json or csv for programs, or only names.")
]
In = Annotated[
    Notation,
    typer.Option(
        "--format",
        parser=_notation,
        metavar="table|json|csv|markdown|names|tex",
        help="table for people, json or csv for programs, markdown or tex for papers, or only names.",
    ),
]
Shown = Annotated[str, typer.Option("--scale", "-s", help="The size that is shown (see `ablations list`).")]
USUAL = "laptop"  # the scale that commands show if none is named; what trains asks for one
Results = Annotated[
    str | None,
    typer.Option(
        "--results-dir",
        help="Results folder. Default: results, and results/unpublished for trials and, in a clone, own grids.",
    ),
]
Grid = Annotated[str, typer.Argument(help="A grid's name (see `ablations list`) or the path of a YAML file.")]
Filter = Annotated[
    list[str] | None, typer.Option("--filter", help="knob=value: only cells of a grid with this value. Repeatable.")
]
Slice = Annotated[
    list[str] | None,
    typer.Option(
        "--slice",
        help="axis=value, or tasks=[sst2]: only this part of the grid. tasks=[]: pretrainings alone. Repeatable.",
    ),
]
Axis = Annotated[list[str] | None, typer.Option("--axis", help="knob=v1,v2: an axis with these values. Repeatable.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="knob=value: a knob of every cell. Repeatable.")]
Scale = Annotated[
    str, typer.Option("--scale", "-s", help="A size, such as smoke, laptop, gpu or paper (see `ablations list`).")
]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds. Default: the scale's.")]
Look = Annotated[
    int | None, typer.Option(help="2: also the further seeds of claims that are open after look 1. Default: as begun.")
]
Engine = Annotated[
    str, typer.Option(help="local (a process per core or GPU), inline (this process), slurm or ray (a cluster).")
]
EngineOption = Annotated[
    list[str] | None, typer.Option(help="name=value for local, slurm or ray: slots=1, partition=gpu. Repeatable.")
]
Parameter = Annotated[
    list[str] | None, typer.Option("--parameter", "-p", help="name=value for the notebook. Repeatable.")
]
Devices = Annotated[
    int, typer.Option(help="GPUs that share each step of a pretraining (processes where there are none).", min=1)
]
Nodes = Annotated[int, typer.Option(help="Machines, with so many devices each, that share them (slurm).", min=1)]
Sharing = Annotated[
    Literal["ddp", "fsdp"],
    typer.Option(help="What each of several devices holds: all weights (ddp) or its part of them (fsdp)."),
]
Checkpointing = Annotated[
    bool,
    typer.Option("--activation-checkpointing", help="Keep less for the backward pass and compute layers again in it."),
]
Compiling = Annotated[
    bool, typer.Option("--compile", help="Compile transformer layers. It changes the rounding, and records say so.")
]
For = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="A time, such as 20m: no run begins that does not fit it, and at its end the active ones are interrupted.",
    ),
]
Logger = Annotated[
    str, typer.Option("--logger", help="Live curves, offline: csv, tensorboard, wandb or mlflow. No part of a run.")
]
Train = Annotated[bool, typer.Option("--train", help="Train the run again if its weights are missing.")]


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Prints errors of configuration and of paths as messages instead of tracebacks, and exits; warnings plainly.

    An error of the system that names no path is none of these: it keeps its traceback.
    """
    from lightning_modules.config import ConfigError

    usual = warnings.showwarning
    warnings.showwarning = functools.partial(_warn, usual, set())
    try:
        yield
    except ConfigError as error:
        complain(error.problems)
        raise typer.Exit(WRONG) from None
    except OSError as error:
        if not (message := _of_path(error)):
            raise
        complain([message])
        raise typer.Exit(WRONG) from None
    except KeyboardInterrupt:
        echo("interrupted. Run the command again to continue.", err=True)
        raise typer.Exit(130) from None
    finally:
        warnings.showwarning = usual


def _of_path(error: OSError) -> str:
    """Path, reason and advice of an error of the system; empty if it names no path."""
    from ablations.core.disk.publishing import StoreError
    from lightning_modules.cached import CacheError
    from lightning_modules.files import Refused, is_full

    if isinstance(error, (CacheError, StoreError)):  # they say what to do
        return str(error)
    if is_full(error):
        return f"{error.filename}: {error.strerror}. Free some space and try again."
    if error.errno is None or not isinstance(error.filename, (str, bytes, os.PathLike)):
        return ""
    names = filter(None, (error.filename, error.filename2))
    places = " -> ".join(os.fsencode(name).decode(errors="backslashreplace") for name in names)
    advice = "" if isinstance(error, Refused) else f". {_ADVICE.get(error.errno, 'Name another place.')}"
    return f"{places}: {error.strerror}{advice}"


def _warn(
    usual: Callable[..., None], told: set[str], message: Any, category: type[Warning], *place: Any, **more: Any
) -> None:
    if not category.__module__.startswith("ablations."):
        usual(message, category, *place, **more)
    elif str(message) not in told:  # several parts of a command may read one damaged record
        told.add(str(message))
        echo(f"warning: {message}", err=True, fg="yellow")


def listed(rows: list[dict[str, Any]], form: Format, name: str) -> str:
    """Rows for programs and documents: as JSON, CSV or Markdown, or only their column ``name``."""
    if form in (Format.csv, Format.markdown):
        from ablations.core.formatting import Sheet, comma_separated, markdown

        heads = list(rows[0]) if rows else [name]
        sheet = Sheet(heads, [[_entry(row.get(head)) for head in heads] for row in rows])
        return (comma_separated(sheet) if form is Format.csv else markdown(sheet)).removesuffix("\n")
    return _json(rows) if form is Format.json else "\n".join(str(row[name]) for row in rows)


def _entry(value: Any) -> Any:
    """A value as an entry of a table: lists and mappings as JSON."""
    value = _strict(value)
    return value if isinstance(value, (str, float, int, bool)) or value is None else json.dumps(value, default=str)


def wrapped(text: str) -> str:
    """Text in lines as wide as the terminal; elsewhere as it is."""
    import textwrap

    width = shutil.get_terminal_size().columns
    return "\n".join(textwrap.wrap(text, width)) if sys.stdout.isatty() else text


def listing(rows: list[dict[str, Any]], form: Format, name: str, colours: Mapping[str, str] | None = None) -> None:
    """Prints rows as a table, as JSON, CSV or Markdown, or only their column ``name``.

    Args:
        name: The column that names a row.
        colours: Value of that column -> the colour in which a table shows it.
    """
    if form is not Format.table:
        echo(listed(rows, form, name))
    else:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from ablations.core.formatting import terminal_text

        table = Table(box=box.SIMPLE_HEAD)
        for column in rows[0] if rows else ():
            table.add_column(Text(terminal_text(column)), overflow="fold")
        for row in rows:
            style = (colours or {}).get(str(row[name]), "")
            table.add_row(*(Text(terminal_text(str(value)), style * (key == name)) for key, value in row.items()))
        console = Console()
        if console.is_terminal:
            console.print(table)
            return
        console = Console(width=console.measure(table, options=console.options.update(width=_UNFOLDED)).maximum)
        with console.capture() as captured:  # a file or a pipe has no width
            console.print(table)
        echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def tell(data: Mapping[str, Any], form: Format, name: str, *people: str) -> None:
    """Prints the answer of a command: lines for people, ``data`` for programs, or only the part of it called ``name``.

    As CSV and Markdown it is a table of two columns, ``name`` and ``value``.
    """
    if form is Format.json:
        echo(_json(data))
        return
    if form in (Format.csv, Format.markdown):
        listing([{"name": key, "value": value} for key, value in data.items()], form, "name")
        return
    part = data[name] if isinstance(data[name], list) else [data[name]]
    for line in people if form is Format.table else part:
        echo(line)


@contextmanager
def aside(form: Format) -> Iterator[None]:
    """Sends what is said meanwhile to standard error, unless people read it: programs read standard output."""
    with contextlib.nullcontext() if form is Format.table else contextlib.redirect_stdout(sys.stderr):
        yield


@contextmanager
def bar(unit: str, form: Format) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of progress on a terminal's standard error, which is wiped at the end."""
    from rich.console import Console

    console = Console(stderr=True)
    if form is not Format.table or not console.is_terminal:
        yield None
        return
    with _bars(console) as progress:
        task = progress.add_task(unit, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def watching() -> Iterator[None]:
    """A bar on a terminal's standard error for the `counted` loops that run meanwhile, once they take long.

    It is wiped at the end.
    """
    if not sys.stderr.isatty():
        yield
        return
    from ablations.core.counted import watched

    with contextlib.ExitStack() as drawn, watched(_Patient(drawn)):
        yield


class _Patient:
    """Draws how far a loop is, if it is still going on after a while."""

    def __init__(self, drawn: contextlib.ExitStack) -> None:
        self.drawn, self.due = drawn, time.monotonic() + _SOON
        self.progress: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() < self.due:
            return
        if self.progress is None:
            from rich.console import Console  # a tenth of a second

            self.progress = self.drawn.enter_context(_bars(Console(stderr=True)))
            self.task = self.progress.add_task(what)
        self.progress.update(self.task, description=what, completed=done, total=total)
        self.due = time.monotonic() + _EACH


def _bars(console: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True)


def _json(data: Any) -> str:
    from ablations.core.formatting import json_text

    return json_text(json.dumps(_strict(data), indent=1, ensure_ascii=False, allow_nan=False, default=str))


def _strict(data: Any) -> Any:
    """Data as strict JSON takes them: no NaN and no infinities, numbers of Python."""
    if isinstance(data, Mapping):
        return {str(key): _strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_strict(value) for value in data]
    data = data.item() if hasattr(data, "item") else data  # a number of numpy
    return None if isinstance(data, float) and not math.isfinite(data) else data


def existing(results_dir: str | Path | None) -> "Records":
    """The records of a results folder that is there."""
    from ablations.core.store import Records

    return Records(existing_folder(results_dir))


def existing_folder(results_dir: str | Path | None) -> Path:
    """A results folder that is there.

    Raises:
        ConfigError: If it is not, or the folder is none of results. What writes results makes a new one.
    """
    from lightning_modules.config import ConfigError, Problem
    from lightning_modules.places import results

    folder = results(results_dir)
    if not folder.is_dir():
        raise ConfigError([Problem("--results-dir", f"there is no folder {folder}. `ablations run` makes one.")])
    if not (folder / "records").is_dir():
        text = f"{folder} is no results folder: it has no folder 'records'. `ablations run` makes one."
        raise ConfigError([Problem("--results-dir", text)])
    return folder


def known(results_dir: str | Path | None) -> "Records":
    """The records of a results folder for who names a run: by default all, published or not.

    Raises:
        ConfigError: As `existing`, for a folder that is named.
    """
    from ablations.core.store import Records
    from lightning_modules.places import UNPUBLISHED, results

    return existing(results_dir) if results_dir else Records(results() / UNPUBLISHED)


def show(*pieces: Any) -> None:
    """Prints Markdown: rendered in a terminal, verbatim elsewhere. No cell of a table is cut, however narrow."""
    from rich.console import Console
    from rich.markdown import Markdown

    from ablations.core.formatting import terminal_text

    console = Console()
    for piece in pieces:
        text = terminal_text(str(piece))
        if not console.is_terminal:
            echo(text)
            continue
        for is_table, lines in itertools.groupby(text.splitlines(), lambda line: line.startswith("|")):
            block = list(lines)
            console.print(_table(block, console.width) if is_table else Markdown("\n".join(block), hyperlinks=False))


def _table(lines: Sequence[str], width: int) -> Any:
    """A table of Markdown that fits, its words unbroken; else turned, rows as columns; else a block for each row."""
    from rich.table import Table
    from rich.text import Text

    split = (_BETWEEN.split(line.strip()[1:-1]) for line in lines)
    headings, aligned, *rows = ([unescaped(cell.strip()) for cell in cells] for cells in split)
    sides: list[Any] = ["right" if mark.endswith(":") else "left" for mark in aligned]
    table = [headings, *rows]
    if _wide(table) > width:
        table, sides = [list(column) for column in zip(*table, strict=True)], ["left", *["right"] * len(rows)]
    if _wide(table) > width:
        told = ([f"{name}: {cell}" for name, cell in zip(headings, row, strict=True) if cell] for row in rows)
        return Text("\n\n".join("\n".join(pairs) for pairs in told) + "\n")
    drawn = Table(header_style="bold")
    for name, side, letters in zip(table[0], sides, _widths(table, width), strict=True):
        drawn.add_column(Text(name), justify=side, width=letters)
    for row in table[1:]:
        drawn.add_row(*map(Text, row))
    return drawn


def _words(table: Sequence[Sequence[str]]) -> list[int]:
    """The letters of the longest word of each column."""
    return [max((len(w) for cell in column for w in cell.split()), default=0) for column in zip(*table, strict=True)]


def _widths(table: Sequence[Sequence[str]], width: int) -> list[int]:
    """The letters of each column: its longest word, and more from the left as long as there is room."""
    widths, room = _words(table), width - _wide(table)
    for place, column in enumerate(zip(*table, strict=True)):
        more = min(room, max(map(len, column)) - widths[place])
        widths[place], room = widths[place] + more, room - more
    return widths


def _wide(table: Sequence[Sequence[str]]) -> int:
    """The fewest columns of a terminal that a table needs: its longest words, and the lines between them."""
    words = _words(table)
    return sum(words) + 3 * len(words) + 1


def unescaped(text: str) -> str:
    """Markdown of one line, as people read it."""
    return html.unescape(_ESCAPED.sub(r"\1", text))


def moment(duration: str | None) -> float | None:
    """The moment of the monotonic clock that lies a duration ahead, such as ``90s``, ``20m`` or ``2.5h``.

    Raises:
        ConfigError: For a text that is no duration.
    """
    return None if duration is None else time.monotonic() + seconds_of(duration)


def seconds_of(duration: str) -> float:
    """The seconds of a duration such as ``90s``, ``20m`` or ``2.5h``.

    Raises:
        ConfigError: For a text that is no duration.
    """
    from lightning_modules.config import ConfigError, Problem

    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smh])", duration)
    if not found or not float(found[1]):
        raise ConfigError([Problem("--for", f"{duration!r} is no time. Write it as 90s, 20m or 2.5h.")])
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def axes(pairs: list[str] | None) -> dict[str, Any]:
    """Reads the repeatable option ``--axis PATH=V1,V2``: axis -> its values."""
    return values([re.sub(r"=\[?(.*?)\]?$", r"=[\1]", pair, count=1) for pair in pairs or []], "--axis")


def overridden(axis: list[str] | None, set: list[str] | None, filter: list[str] | None) -> dict[str, Any]:
    """What ``--axis``, ``--set`` and ``--filter`` change of a grid, as arguments of `Study`."""
    return {"axes": axes(axis), "set": values(set, "--set"), "filters": values(filter, "--filter")}


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
            raise ConfigError([Problem(option, f"{name!r} is given twice. Write several values as one list: {both!r}")])
        read[name] = strict_yaml.value(text)
    return read
