"""``ablations unpack``: takes in results that came home in a pack, or lays out a pack of a grid."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.commands.stores.sync import told
from ablations.commands.terminal import As, Format, Results, complain, echo, reporting_errors, tell

if TYPE_CHECKING:
    from ablations.running.homecoming import Homecoming


def command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="A pack, or all of its parts.")],
    into: Annotated[Path | None, typer.Option(help="Of a grid's pack: the new folder.")] = None,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Unites the results in a pack with the results folder, as `sync` does, and takes checkpoints of unfinished runs.

    A checkpoint is copied if its run has no final record, and none here is as far. A pack of a grid is laid out
    in a new folder, as unpack.py does. Nothing is written before all sums are right. Exits with 1 if a run has two
    different final records, or if a damaged file was skipped.
    """
    from ablations.core.packs import unpack
    from ablations.core.store import Records
    from lightning_modules.config import ConfigError, Problem

    with reporting_errors():
        try:
            kind = unpack.kind(files)
            if (kind == "results") == (into is not None):
                text = "names a new folder, and goes with the pack of a grid. This is one of "
                raise ConfigError([Problem("--into", text + ("results" if into else "a grid"))])
            if into is not None:
                said = unpack.next_steps(unpack.lay_out(files, into), files, into)
                tell({"folder": into, "next": said}, form, "folder", *said)
                return
            records = Records(results_dir)
            with tempfile.TemporaryDirectory() as hidden:
                unpack.lay_out(files, Path(hidden) / "pack")
                from ablations.running import homecoming

                home = homecoming.bring(Path(hidden) / "pack", records)
        except unpack.Unfit as error:
            raise ConfigError(str(error).splitlines()) from None
        _tell(home, files, form)
        if not home.whole:
            raise typer.Exit(1)


def _tell(home: "Homecoming", files: list[Path], form: Format) -> None:
    complain(f"{damage}; it was skipped" for damage in home.damages)
    data, people = told(home.report, files[0].name)
    data |= {"weights": home.weights, "checkpoints": home.checkpoints, "left": home.left}
    for run, reason in home.left.items():
        echo(f"checkpoint of {run} not taken: {reason}", err=True)
    if home.weights or home.checkpoints:
        line = f"weights of {len(home.weights)} runs kept, {len(home.checkpoints)} checkpoints to resume from"
        people.insert(1, line)
    tell(data, form, "pulled", *people)
