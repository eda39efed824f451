"""``ablations claims``, the scoreboard in a terminal, and ``ablations published``, tables of published values."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.commands.terminal import Format, In, Notation, Results, echo, existing, listing, plain, reporting_errors

if TYPE_CHECKING:
    from ablations.claims.scoreboard import Entry
    from ablations.core.formatting import Sheet
    from ablations.core.store import Records
    from ablations.literature.published_tables import PrintedTable


def claims(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of claims. Default: all.")] = None,
    grid: Annotated[str | None, typer.Option("--grid", "-g", help="Only claims that this grid tests.")] = None,
    paper: Annotated[str | None, typer.Option("--paper", "-p", help="Only claims of this paper.")] = None,
    scale: Annotated[str | None, typer.Option("--scale", "-s", help="Only verdicts at this scale.")] = None,
    survives: Annotated[
        bool,
        typer.Option(
            "--survives",
            help="Only settled claims, all of whose tests survive Holm over all tests of their scale.",
        ),
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="When was each claim stated, and when did its grid first run?")
    ] = False,
    form: In = Notation.table,
    results_dir: Results = None,
) -> None:
    """Shows the published claims with their verdicts and runs: the scoreboard."""
    with reporting_errors():
        if audit:
            _audit(results_dir, plain(form, "an audit"))
            raise typer.Exit()
        from ablations.pages import scoreboard_page, tables

        whole = scoreboard_page.gathered(_records(results_dir).snapshot())
        board = _named(_chosen(whole, grid, paper, scale), ids or ())
        if survives:
            board = _surviving(board, whole)
        if not board:
            asked = {"the grid": grid, "the paper": paper, "the ids": ", ".join(ids or ())}
            said = ", ".join(f"{name} '{value}'" for name, value in asked.items() if value)
            echo(f"No claim has {said or 'a verdict that survives'}.", err=True)
        if form is Notation.names:
            echo("\n".join(entry.claim.id for entry in board))
        elif form is Notation.json:
            _, numbers, runs = scoreboard_page.sheets(board)
            rows = [dict(zip(numbers.headings, row, strict=True)) for row in numbers.rows]
            made = {(claim["asked"], claim["grid"], claim["scale"]): claim["runs"] for claim in runs["claims"]}
            keyed = [row | {"runs": made.get((row["asked"], row["grid"], row["scale"]), ())} for row in rows]
            listing(keyed, Format.json, "claim")
        elif form is Notation.table:
            _print(board, scale, narrowed=any((ids, grid, paper, scale, survives)))
        else:
            echo(tables.rendered(scoreboard_page.sheets(board), form.name), nl=False)


def _chosen(board: "list[Entry]", grid: str | None, paper: str | None, scale: str | None) -> "list[Entry]":
    from dataclasses import replace

    from ablations.claims.published_claims import papers
    from ablations.pages import scoreboard_page
    from ablations.planning import grids
    from lightning_modules.config import ConfigError, Problem, did_you_mean

    by_name = {name.lower(): name for name in papers()}
    levels = scoreboard_page.scales(board)
    for option, value, allowed in (
        ("--grid", grid, grids.available()),
        ("--paper", paper and paper.lower(), by_name),
        ("--scale", scale, levels),
    ):
        if value is not None and value not in allowed:
            raise ConfigError([Problem(option, f"'{value}' has no claims.{did_you_mean(value, allowed)}")])
    kept = []
    for entry in board:
        if (grid and grid not in entry.grids) or (paper and entry.claim.paper.lower() != paper.lower()):
            continue
        answers = [a for a in entry.answers if scale in (None, a.scale) and grid in (None, a.grid)]
        kept.append(replace(entry, answers=tuple(answers)))
    return kept


def _surviving(board: "list[Entry]", whole: "list[Entry]") -> "list[Entry]":
    """The claims that survive every rule, with their verdicts at the scales where they do.

    The board may be narrowed to a grid. Whether a claim survives is decided by the answers of all grids.
    """
    from dataclasses import replace

    all_of = {entry.claim.id: entry for entry in whole}
    kept = [
        replace(entry, answers=tuple(a for a in entry.answers if all_of[entry.claim.id].survives(a.scale)))
        for entry in board
    ]
    return [entry for entry in kept if entry.answers]


def _named(board: "list[Entry]", ids: Sequence[str]) -> "list[Entry]":
    """The claims with some ids; a part of a claim is counted with the whole."""
    from ablations.claims.published_claims import counted_as, unknown, with_parts
    from lightning_modules.config import ConfigError

    known = with_parts()
    if wrong := [name for name in ids if name not in known]:
        raise ConfigError(unknown(name, known) for name in wrong)
    wanted = set(map(counted_as, ids))
    return [entry for entry in board if entry.claim.id in wanted] if ids else board


def _print(board: "list[Entry]", only: str | None, *, narrowed: bool) -> None:
    from ablations.core.formatting import markdown
    from ablations.pages import scoreboard_page

    for scale in scoreboard_page.scales(board):
        echo(f"Published claims at scale {scale}", bold=True)
        echo(markdown(scoreboard_page.summary(board, scale)))
    if narrowed:
        for entry in board:
            echo(f"{entry.claim.id}: {entry.claim.statement}", bold=True)
            echo(f"  {entry.claim.paper}, {entry.claim.table}. Published: {entry.claim.published or 'no numbers'}")
            for answer in entry.answers:
                echo(f"  {answer.grid}/{answer.scale}: {answer.sentence}")
                echo(f"    runs: {', '.join(answer.runs) or 'none'}")
            if not entry.answers:
                unrun = f"tested by {', '.join(entry.grids)}, not run{f' at scale {only}' if only else ''}"
                echo("  " + (unrun if entry.grids else "no grid tests it"))
    else:
        echo(markdown(scoreboard_page.sheets(board)[0]))


def _records(results_dir: str | None) -> "Records":
    from ablations.core.store import Records

    return existing(results_dir) if results_dir else Records()


def _audit(results_dir: str | None, form: Format) -> None:
    """Prints when each claim was stated and when its grid first ran; exits with 1 if one is later and not marked."""
    from ablations.claims import audit as auditing
    from ablations.planning import grids, scales
    from ablations.planning.plan import plan
    from ablations.planning.recorded import at_hand
    from lightning_modules.config import ConfigError

    snapshot, found = _records(results_dir).snapshot(), []
    for name, grid in grids.readable()[0].items():
        known = auditing.stated(grids.locate(name)) if grid.claims else None
        for scale in grid.scales if grid.claims else ():
            if scales.is_trial(scale) or not at_hand(grid, scale):
                continue
            try:
                planned = plan(grid, scale, records=snapshot)
            except ConfigError:  # data that are neither pinned nor available: no run is known
                continue
            ran = functools.partial(auditing.first_seen, grid=grid, cells=planned.cells, records=snapshot)
            found += auditing.registrations(name, scale, planned.grid.claims, known, ran)
    rows = [
        {"claim": one.claim, "grid": one.grid, "scale": one.scale, "standing": one.standing,
         "stated": one.stated.isoformat() if one.stated else "", "first run": one.ran.isoformat() if one.ran else ""}
        for one in found if one.standing != auditing.NOT_RUN
    ]  # fmt: skip
    listing(rows, form, "claim")
    late = [one for one in found if one.standing == auditing.UNMARKED]
    for one in late:
        what = f"{one.claim} of {one.grid} was stated after runs at {one.scale}: mark it 'post_hoc: true'"
        echo(what, err=True, fg="red")
    if late:
        raise typer.Exit(1)


def published(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables such as albert.t4, or papers. Default: a list of all tables.")
    ] = None,
    form: In = Notation.table,
) -> None:
    """Prints published tables as the papers print them. Without a name lists all tables.

    JSON and CSV have a row per value.
    """
    from ablations.literature.published_tables import catalogue, find

    with reporting_errors():
        tables = catalogue()
        chosen = find(names, tables) if names else tables
        if form is Notation.names or (form is Notation.json and not names):
            about = [
                {"name": name, "paper": table.paper, "table": table.title, "values": len(table.rows)}
                for name, table in chosen.items()
            ]
            listing(about, Format(form.value), "name")
        elif form is Notation.json:
            rows = [{"name": name, **row.to_dict()} for name, table in chosen.items() for row in table.rows]
            listing(rows, Format.json, "name")
        elif form is Notation.csv:
            from ablations.literature.published_values import written

            echo(written(row for table in chosen.values() for row in table.rows), nl=False)
        elif names:
            _print_published(list(chosen.values()), form)
        else:
            _list(tables, form)


def _list(tables: "dict[str, PrintedTable]", form: Notation) -> None:
    from ablations.core.formatting import Sheet

    rows = [[name, table.paper, table.title, len(table.rows)] for name, table in tables.items()]
    if form is not Notation.table:
        echo(_text(Sheet(["name", "paper", "table", "values"], rows, left=3), form), nl=False)
        return
    width = max(map(len, tables))
    for paper in dict.fromkeys(table.paper for table in tables.values()):
        of_paper = {name: table for name, table in tables.items() if table.paper == paper}
        echo(f"{paper}: {_count(of_paper)}", bold=True)
        for name, table in of_paper.items():
            echo(f"  {name:<{width}}  {len(table.rows):>3}  {table.title}")
    papers = len({table.paper for table in tables.values()})
    echo(f"{_count(tables)} in {len(tables)} tables of {papers} papers and other sources")


def _count(tables: "dict[str, PrintedTable]") -> str:
    total = sum(len(table.rows) for table in tables.values())
    return f"{total:,} value{'s' * (total != 1)}"


def _print_published(tables: "list[PrintedTable]", form: Notation) -> None:
    from ablations.literature.published_tables import sheet

    for number, table in enumerate(tables):
        heading = f"{table.paper}, {table.table}"
        if number:
            echo()
        if form is Notation.table:
            echo(heading, bold=True)
            _show(sheet(table))
        else:
            echo(f"### {heading}\n" if form is Notation.md else f"% {heading}")
            echo(_text(sheet(table), form), nl=False)


def _text(sheet: "Sheet", form: Notation) -> str:
    from ablations.core.formatting import latex, markdown

    return markdown(sheet) if form is Notation.md else latex(sheet)


def _show(sheet: "Sheet") -> None:
    """Aligns columns whatever the width of the terminal, so that no number is wrapped. Brackets are not markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for place, heading in enumerate(sheet.headings):
        table.add_column(Text(heading), no_wrap=True, justify="left" if place < sheet.left else "right")
    for row in sheet.rows:
        table.add_row(*(Text(str(entry)) for entry in row))
    console = Console(width=10_000, highlight=False, markup=False)
    with console.capture() as text:
        console.print(table)
    for line in filter(str.strip, text.get().splitlines()):
        echo(line.rstrip())
    echo()
    for note in sheet.notes:
        echo(note)
