"""``ablations read``: a grid's results at an equal amount of something else than it held equal."""

from enum import StrEnum
from typing import Annotated

import typer

from ablations.commands.terminal import Format, listing, show, told, values


class Unit(StrEnum):
    """What is equal when curves are read."""

    steps = "steps"
    tokens = "tokens"
    flops = "flops"
    seconds = "seconds"


def read(
    grid: Annotated[str, typer.Argument(help="A grid's name (see `ablations list`) or the path of a YAML file.")],
    scale: Annotated[str, typer.Option("--scale", "-s", help="One of the grid's scales.")],
    equal: Annotated[Unit, typer.Option("--equal", help="What every run is given the same amount of.")],
    filter: Annotated[list[str] | None, typer.Option("--filter", help="knob=value: only such cells.")] = None,
    results: Annotated[str | None, typer.Option("--results", help="Results folder.")] = None,
    form: Annotated[Format, typer.Option("--format", help="table for people, json for programs.")] = Format.table,
) -> None:
    """Reads finished runs at equal steps, tokens, FLOPs or seconds, from their curves; trains nothing."""
    from ablations.study import Study

    with told():
        study = Study(grid, scale, filters=values(filter, "--filter"), results_dir=results)
        if form is Format.table:
            show(study.table(at=equal.value))
        else:
            listing(study.readings(equal.value), form, "cell")
