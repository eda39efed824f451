"""``ablations compare``: a grid's results under a budget other than the grid's own."""

from enum import StrEnum
from typing import Annotated

import typer

from ablations.commands.terminal import (
    USUAL,
    As,
    Filter,
    Format,
    Grid,
    Results,
    Shown,
    known,
    listing,
    reporting_errors,
    show,
    values,
)


class Unit(StrEnum):
    """The budget at which curves are read."""

    steps = "steps"
    tokens = "tokens"
    flops = "flops"
    seconds = "seconds"


def command(
    grid: Grid,
    equal: Annotated[Unit, typer.Option("--equal", help="The budget that is equal for all runs.")],
    scale: Shown = USUAL,
    filter: Filter = None,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Compares finished runs at equal steps, tokens, FLOPs or seconds, read off their curves. Trains nothing."""
    from ablations.study import Study

    with reporting_errors():
        known(results_dir)
        study = Study(grid, scale, filters=values(filter, "--filter"), results_dir=results_dir)
        if form is Format.table:
            show(study.table(at=equal.value))
        else:
            listing(study.at_equal(equal.value), form, "cell")
