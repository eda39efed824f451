"""``ablations published``: lists or prints the tables of published values."""

from typing import TYPE_CHECKING, Annotated

import typer

from ablations.commands.terminal import Format, In, Notation, echo, listing, reporting_errors

if TYPE_CHECKING:
    from ablations.core.formatting import Sheet
    from ablations.literature.published_tables import PrintedTable


def command(
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
            _print(list(chosen.values()), form)
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


def _print(tables: "list[PrintedTable]", form: Notation) -> None:
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
