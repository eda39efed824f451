"""``ablations data`` lists the data sets; ``verify`` checks them.

``formats`` shows what input formats make of the text.
"""

import os
import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from ablations.commands.terminal import USUAL, As, Format, Shown, echo, listing, reporting_errors, tell

if TYPE_CHECKING:
    from ablations.commands.data_sets import Finding, Item
    from lightning_modules.system import System

app = typer.Typer(
    help="Corpora, tasks and texts: where they are, and whether they match their published sizes and pins."
)


@app.callback(invoke_without_command=True)
def data(
    context: typer.Context,
    hub: Annotated[bool, typer.Option("--hub", help="Look on the Hugging Face hub for what no folder holds.")] = False,
    form: As = Format.table,
) -> None:
    """Lists all data with their place, sizes, fingerprint, split (official or own) and licence."""
    from lightning_modules.places import data_home, unusable_data_home

    if data_home() and (why := unusable_data_home()):
        echo(f"warning: {why}", err=True, fg="yellow")
    if context.invoked_subcommand is not None:
        return
    from ablations.commands.data_sets import items

    with reporting_errors():
        listed = items(hub=hub)
        if form is not Format.table:
            listing([item.to_dict() for item in listed], form, "name")
            return
        for group, members in groupby(listed, key=lambda item: item.group):
            _show(group, list(members))
        echo("Sizes of data sets that are neither pinned nor available are published ones. Pinned fingerprints are not")
        echo("compared with your files. To compare them, run `ablations data verify`.")


def _show(group: str, members: "list[Item]") -> None:
    echo(group, bold=True)
    rows = [item.row() for item in members]
    if members[0].kind == "corpus":
        for row in rows:
            del row["split"]
    listing(rows, Format.table, "name")
    _lines("Own splits (scores are not comparable with published ones)", members, "own_split")
    _lines("Terms", members, "licence")
    _lines("To get what is missing", members, "how")
    _lines("Cannot be read", members, "problem")
    echo()


def _lines(heading: str, members: "list[Item]", field: str) -> None:
    """One line per text; members with the same text share it."""
    by_text: dict[str, list[str]] = {}
    for item in members:
        by_text.setdefault(getattr(item, field), []).append(item.name)
    if any(by_text):
        echo(f"{heading}:")
    for text, names in by_text.items():
        if text:
            echo(f"  {', '.join(names)}: {text}")


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets. Default: all available ones.")] = None,
    form: As = Format.table,
) -> None:
    """Compares data sets with published sizes and pins. Exits with 1 if anything is wrong."""
    from ablations.commands.data_sets import examine, items

    with reporting_errors():
        findings = []
        for item in items(names or ()):
            findings.append(examine(item, is_named=bool(names)))
            if form is Format.table:
                _report(findings[-1])
        wrong = sum(finding.state == "wrong" for finding in findings)
        read = sum(finding.present for finding in findings)
        found = {"data": [finding.to_dict() for finding in findings], "names": [finding.name for finding in findings]}
        tell(found, form, "names", f"{read} of {len(findings)} data sets are available. Wrong: {wrong}")
    if wrong:
        raise typer.Exit(1)


def _report(finding: "Finding") -> None:
    echo(f"{finding.state:<7} {finding.name}: {finding.text}")
    for sentence in finding.wrong:
        echo(f"        {sentence}", fg="red")
    for sentence in finding.notes:
        echo(f"        {sentence}")


@app.command()
def add(
    file: Annotated[str, typer.Argument(help="A .csv, .tsv, .jsonl, .parquet, .conll or SQuAD's .json file.")],
    text: Annotated[str, typer.Option("--text", help="Column of the text, or of the first of two.")] = "text",
    second: Annotated[str, typer.Option("--second", help="Column of the second text.")] = "",
    label: Annotated[str, typer.Option("--label", help="Column of the label.")] = "label",
    dev: Annotated[str, typer.Option("--dev", help="A file of dev examples. Default: a tenth is held out.")] = "",
    name: Annotated[str, typer.Option("--name", help="What grids call it. Default: the name of the file.")] = "",
    quoted: Annotated[bool | None, typer.Option("--quoted/--plain", help="Default: quoted in .csv alone.")] = None,
    form: As = Format.table,
) -> None:
    """Makes a task of a file: looks at it, writes its row below the study's data, and says what to know of it.

    Labels with a fraction are numbers to predict, all others classes. The row may be edited.
    """
    from ablations.commands import data_sets
    from lightning_modules.tasks import TASKS, rows

    with reporting_errors():
        called = name or re.sub(r"\W", "_", Path(file).stem)
        path, task = rows.add(called, file, dev, {"text": text, "second": second, "label": label}, quoted, TASKS)
        TASKS[called] = task
        (item,) = data_sets.items([called])
        finding = data_sets.examine(item, is_named=True)
        told = {"name": called, "file": str(path), "row": task.title, **finding.to_dict()}
        tell(told, form, "name", f"wrote {called} to {path}", f"next:  ablations data verify {called}")
        if form is Format.table:
            _report(finding)


@app.command("add-checkpoint")
def add_checkpoint(
    folder: Annotated[Path, typer.Argument(help="The checkpoint's folder: config.json, model.safetensors ...")],
    name: Annotated[str, typer.Option("--name", help="What grids call it. Default: the name of the folder.")] = "",
    form: As = Format.table,
) -> None:
    """Gives a checkpoint of your own a name, so that grids of fine-tunings start from it: `--set checkpoint=NAME`.

    Writes a row to checkpoints.yaml, with settings and digests. Say there which tasks it was trained on.
    """
    from lightning_modules import checkpoints, interop
    from lightning_modules.config import ConfigError

    with reporting_errors():
        if not folder.is_dir():
            raise ConfigError([f"there is no folder {folder}"])
        place, home = folder.resolve(), os.environ.get(checkpoints.HOME)
        inside = bool(home) and place.is_relative_to(Path(home).resolve())
        kept = place.relative_to(Path(home).resolve()) if home and inside else place
        called = name or re.sub(r"\W", "_", place.name)
        path = checkpoints.add(called, interop.row_of(place, folder=str(kept), title=called))
        tell({"name": called, "file": path}, form, "name", f"wrote {called} to {path}")


@app.command()
def formats(
    scale: Shown = USUAL,
    length: Annotated[
        int | None, typer.Option("--length", help="Positions of a row. Default: those of the scale.", min=8)
    ] = None,
    pairing: Annotated[str, typer.Option("--pairing", help="How pairs are made: released, or matched.")] = "released",
    form: As = Format.table,
) -> None:
    """Shows what each input format makes of the text of a scale: lengths, padding, documents. Trains no network."""
    from ablations.planning import filling
    from lightning_modules.config import ConfigError, Problem, did_you_mean
    from lightning_modules.data import open_store
    from lightning_modules.data.formats import FORMATS, NAMED, summary
    from lightning_modules.data.formats.pairs import Pairing

    with reporting_errors():
        if pairing not in (allowed := get_args(Pairing)):
            text = f"there is no {pairing!r}.{did_you_mean(pairing, allowed)} Allowed: {', '.join(allowed)}."
            raise ConfigError([Problem("--pairing", text)])
        system = _at_length(filling.bert(scale), length)
        store, batch = open_store(system.data, "train"), system.training.batch_size
        rows = []
        for name, knobs in NAMED.items():
            given = FORMATS[knobs["kind"]].read(
                {**system.format.to_dict(), **knobs, "pairing": pairing, "duplicates": 1}
            )
            found = summary(store, given)
            step, shown = batch * given.sequence_length / found["mean length"], found.pop("of the text")
            steps = {"rows a step": step, "documents a step": step * found["documents a row"], "of the text": shown}
            rows.append({"format": name, **found, **steps})
        if form is Format.table:
            rows = [{name: _told(name, value) for name, value in row.items()} for row in rows]
        listing(rows, form, "format")
        if form is Format.table:
            echo(
                f"Rows of {system.format.sequence_length} positions. A step is that of training.batch_by 'tokens', "
                f"with the tokens of {batch} full rows. With 'sequences' it has {batch} rows."
            )


def _told(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1%}" if name in ("padding", "of the text") else f"{value:,.{0 if value >= 1000 else 1}f}"


def _at_length(system: "System", length: int | None) -> "System":
    """A system with another sequence length, if one is requested."""
    if length is None:
        return system
    return system.but(**{"format.sequence_length": length, "model.max_positions": max(length, 512)})
