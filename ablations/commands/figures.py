"""``ablations figures``: the figures of a grid's page as pictures for documents and slides."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablations.commands.terminal import (
    USUAL,
    Filter,
    Format,
    Grid,
    Results,
    Shown,
    known,
    reporting_errors,
    tell,
    values,
)


class Picture(StrEnum):
    """What is written, or how the paths of what is written are printed."""

    png = "png"
    pdf = "pdf"
    table = "table"
    json = "json"
    names = "names"


class Use(StrEnum):
    """What a picture is for: its size, and that of its letters."""

    page = "page"
    slide = "slide"


def figures(
    grid: Grid,
    scale: Shown = USUAL,
    form: Annotated[
        Picture,
        typer.Option("--format", help="png or pdf. With table, json or names: png, and the paths in this form."),
    ] = Picture.png,
    use: Annotated[Use, typer.Option("--for", help="slide: 16:9 with larger letters.")] = Use.page,
    to: Annotated[Path, typer.Option("--to", help="The folder of the pictures. Created if missing.")] = Path("."),
    filter: Filter = None,
    results_dir: Results = None,
) -> None:
    """Writes the figures of a grid's page as PNG or PDF. Reads records, trains nothing."""
    from ablations.study import Study

    with reporting_errors():
        known(results_dir)
        study = Study(grid, scale, filters=values(filter, "--filter"), results_dir=results_dir)
        ending = form.value if form in (Picture.png, Picture.pdf) else Picture.png.value
        written = study.pictures(to, ending, slide=use is Use.slide)
        shown = Format(form.value) if form.value in Format.__members__ else Format.table
        tell({"figures": written}, shown, "figures", *written)
