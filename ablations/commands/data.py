"""``ablations data`` and ``ablations data verify``."""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.commands.terminal import Format, listing, told

if TYPE_CHECKING:
    from ablations.commands.data_audit import Finding
    from ablations.commands.data_inventory import Item

app = typer.Typer(help="Corpora and tasks: where they are found, and whether they are what they should be.")


@app.callback(invoke_without_command=True)
def data(
    context: typer.Context,
    hub: Annotated[bool, typer.Option("--hub", help="Ask the Hugging Face hub for what no folder holds.")] = False,
    form: Annotated[Format, typer.Option("--format", help="table for people, json for programs, names alone.")] = (
        Format.table
    ),
) -> None:
    """Lists every corpus and task: where it is found, sizes, fingerprint, official or own split, licence."""
    if context.invoked_subcommand is not None:
        return
    from ablations.commands.data_inventory import items

    with told():
        found = items(hub=hub)
        if form is not Format.table:
            listing([item.plain() for item in found], form, "name")
            return
        for group, members in groupby(found, key=lambda item: item.group):
            _show(group, list(members))
        typer.echo("Sizes of what is neither pinned nor at hand are the published ones. Fingerprints that are pinned ")
        typer.echo("are not compared with the files here: `ablations data verify` reads them.")


def _show(group: str, members: "list[Item]") -> None:
    typer.secho(group, bold=True)
    rows = [item.row() for item in members]
    if members[0].kind == "corpus":
        rows = [{("heldout" if key == "dev" else key): value for key, value in row.items()} for row in rows]
        for row in rows:
            del row["split"]
    listing(rows, Format.table, "name")
    _lines("Own splits, whose scores do not compare with published ones", members, "own_split")
    _lines("Terms", members, "licence")
    _lines("To get what is missing", members, "how")
    _lines("Cannot be read", members, "problem")
    typer.echo()


def _lines(heading: str, members: "list[Item]", field: str) -> None:
    """One line for each member that has something to say; members that say the same share it."""
    said: dict[str, list[str]] = {}
    for item in members:
        said.setdefault(getattr(item, field), []).append(item.name)
    if any(said):
        typer.echo(f"{heading}:")
    for text, names in said.items():
        if text:
            typer.echo(f"  {', '.join(names)}: {text}")


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Corpora and tasks; by default all at hand.")] = None,
) -> None:
    """Reads data sets and compares them with published sizes and pins. Exits with 1 if anything is wrong."""
    from ablations.commands.data_audit import examined
    from ablations.commands.data_inventory import items

    with told():
        found = []
        for item in items(names or ()):
            found.append(examined(item, asked=bool(names)))
            _report(found[-1])
        wrong = sum(finding.state == "wrong" for finding in found)
        read = sum(finding.present for finding in found)
        typer.echo(f"{read} of {len(found)} data sets are at hand, wrong: {wrong}")
    if wrong:
        raise typer.Exit(1)


def _report(finding: "Finding") -> None:
    typer.echo(f"{finding.state:<7} {finding.name}: {finding.text}")
    for sentence in finding.wrong:
        typer.secho(f"        {sentence}", fg="red")
    for sentence in finding.notes:
        typer.echo(f"        {sentence}")
