"""``ablations data`` lists the data sets; ``ablations data verify`` checks them."""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.commands.terminal import As, Format, listing, reporting_errors, tell

if TYPE_CHECKING:
    from ablations.commands.data_audit import Finding
    from ablations.commands.data_inventory import Item

app = typer.Typer(help="Corpora and tasks: where they are, and whether they match their published sizes and pins.")


@app.callback(invoke_without_command=True)
def data(
    context: typer.Context,
    hub: Annotated[bool, typer.Option("--hub", help="Look on the Hugging Face hub for what no folder holds.")] = False,
    form: As = Format.table,
) -> None:
    """Lists every corpus and task with its place, sizes, fingerprint, split (official or own) and licence."""
    from lightning_modules.places import data_home, unusable_data_home

    if data_home() and (why := unusable_data_home()):
        typer.secho(f"warning: {why}", err=True, fg="yellow")
    if context.invoked_subcommand is not None:
        return
    from ablations.commands.data_inventory import items

    with reporting_errors():
        listed = items(hub=hub)
        if form is not Format.table:
            listing([item.to_dict() for item in listed], form, "name")
            return
        for group, members in groupby(listed, key=lambda item: item.group):
            _show(group, list(members))
        typer.echo(
            "Sizes of data sets that are neither pinned nor available are published ones. Pinned fingerprints are not"
        )
        typer.echo("compared with your files; to compare them, run `ablations data verify`.")


def _show(group: str, members: "list[Item]") -> None:
    typer.secho(group, bold=True)
    rows = [item.row() for item in members]
    if members[0].kind == "corpus":
        rows = [{("heldout" if key == "dev" else key): value for key, value in row.items()} for row in rows]
        for row in rows:
            del row["split"]
    listing(rows, Format.table, "name")
    _lines("Own splits (scores are not comparable with published ones)", members, "own_split")
    _lines("Terms", members, "licence")
    _lines("To get what is missing", members, "how")
    _lines("Cannot be read", members, "problem")
    typer.echo()


def _lines(heading: str, members: "list[Item]", field: str) -> None:
    """One line per text; members with the same text share it."""
    by_text: dict[str, list[str]] = {}
    for item in members:
        by_text.setdefault(getattr(item, field), []).append(item.name)
    if any(by_text):
        typer.echo(f"{heading}:")
    for text, names in by_text.items():
        if text:
            typer.echo(f"  {', '.join(names)}: {text}")


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Corpora and tasks; by default all available ones.")] = None,
    form: As = Format.table,
) -> None:
    """Compares data sets with published sizes and pins. Exits with 1 if anything is wrong."""
    from ablations.commands.data_audit import examine
    from ablations.commands.data_inventory import items

    with reporting_errors():
        findings = []
        for item in items(names or ()):
            findings.append(examine(item, is_named=bool(names)))
            if form is Format.table:
                _report(findings[-1])
        wrong = sum(finding.state == "wrong" for finding in findings)
        read = sum(finding.present for finding in findings)
        found = {"data": [finding.to_dict() for finding in findings], "names": [finding.name for finding in findings]}
        tell(found, form, "names", f"{read} of {len(findings)} data sets are available; wrong: {wrong}")
    if wrong:
        raise typer.Exit(1)


def _report(finding: "Finding") -> None:
    typer.echo(f"{finding.state:<7} {finding.name}: {finding.text}")
    for sentence in finding.wrong:
        typer.secho(f"        {sentence}", fg="red")
    for sentence in finding.notes:
        typer.echo(f"        {sentence}")
