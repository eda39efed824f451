"""Commands on grids: ``list`` and ``check`` read their files, ``compare`` and ``figures`` their results."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ablations.commands.terminal import (
    USUAL,
    WRONG,
    As,
    Filter,
    Format,
    Grid,
    Results,
    Shown,
    echo,
    known,
    listing,
    reporting_errors,
    show,
    tell,
    values,
)


def list_grids(form: As = Format.table) -> None:
    """Lists the grids with their questions, axes and scales, and the scales at which any grid can be planned."""
    from ablations.planning import grids, scales

    with reporting_errors():
        rows = []
        for name in grids.available():
            grid = grids.read(name)
            shown = USUAL if USUAL in grid.scales else next(iter(grid.scales), "")
            seeds = f"{', then '.join(map(str, grid.looks_at(shown)))} at {shown}"
            lists = {"axes": ", ".join(grid.axes), "scales": ", ".join(grid.scales)}
            rows.append({"grid": name, "question": grid.question, **lists, "seeds": seeds})
        listing(rows, form, "grid")
        if form is Format.table:
            files = map(scales.read, scales.available())
            listing([{"scale": f.name, "like": f.like, "what it is": f.description} for f in files], form, "scale")


def check(
    names: Annotated[list[str] | None, typer.Argument(help="Grids. Default: all.")] = None, form: As = Format.table
) -> None:
    """Reads scales and grids and reports every problem with file and line. Trains nothing."""
    from ablations.planning import grids, scales
    from lightning_modules.config import ConfigError

    rows, problems = [], []
    checks = [("scale", name, scales.read) for name in ([] if names else scales.available())]
    checks += [("grid", name, grids.read) for name in names or grids.available()]
    with reporting_errors():
        for kind, name, read in checks:
            try:
                rows.append({"kind": kind, "name": name, **_about(read(name))})
            except ConfigError as error:
                problems += map(str, error.problems)
        problems = list(dict.fromkeys(problems))  # those of a scale are met in every grid
        found = {"sound": rows, "names": [row["name"] for row in rows], "problems": problems}
        tell(found, form, "names", *(_line(row) for row in rows))
        for problem in problems:
            echo(problem, err=True, fg="red")
        if problems:
            raise typer.Exit(WRONG)


def _about(file: Any) -> dict[str, Any]:
    if hasattr(file, "axes"):
        return {"axes": len(file.axes), "claims": len(file.claims), "scales": list(file.scales)}
    return {"description": file.description}


def _line(row: dict[str, Any]) -> str:
    if row["kind"] == "scale":
        return f"scale {row['name']}: {row['description']}"
    axes, claims = row["axes"], row["claims"]
    counts = f"{axes} {'axis' if axes == 1 else 'axes'}, {claims} claim{'s' * (claims != 1)}"
    return f"{row['name']}: {counts}, scales {', '.join(row['scales'])}"


class Unit(StrEnum):
    """The budget at which curves are read."""

    steps = "steps"
    tokens = "tokens"
    flops = "flops"
    seconds = "seconds"


def compare(
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
