"""``ablations benchmark inference``: time and memory of a forward pass of each model of a grid, on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.commands.terminal import USUAL, As, Format, Results, Shown, echo, known, listing, reporting_errors

app = typer.Typer(help="Speed and memory of models on this machine.", no_args_is_help=True)


@app.callback()
def benchmark() -> None:
    """Measures speed and memory of models on this machine."""


@app.command("inference")
def command(
    grid: Annotated[str, typer.Argument(help="A grid's name or file, or a checkpoint's folder.")],
    scale: Shown = USUAL,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda. Default: cuda if available.")] = "",
    threads: Annotated[int, typer.Option("--threads", help="Threads of torch on a CPU.", min=1)] = 1,
    clock: Annotated[str, typer.Option("--clock", help="wall, or cpu: processor time, for a busy machine.")] = "wall",
    batches: Annotated[str, typer.Option("--batches", help="Sequences of a pass, such as 1,4,16,64.")] = "1,32",
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Measures time and memory of a forward pass of each model, with random weights. Trains nothing."""
    from ablations.inspection.models import opened
    from ablations.pages import inference_page
    from ablations.running import inference
    from ablations.schema.cell import Cell
    from ablations.study import Study

    with reporting_errors():
        if clock not in inference.CLOCKS:
            raise typer.BadParameter(f"there is no clock {clock!r}. Allowed: {', '.join(inference.CLOCKS)}.")
        sizes = tuple(dict.fromkeys(int(size) for size in batches.split(",") if size.strip().isdigit()))
        if not sizes or 0 in sizes or len(sizes) < len(batches.split(",")):
            raise typer.BadParameter(f"--batches {batches!r} are no numbers from 1, each once. Write 1,4,16,64.")
        setting = inference.Setting(inference.chosen(device), threads, clock=clock, batches=sizes)
        if Path(grid).is_dir():
            system = opened(grid, known(results_dir), scale=scale).system
            cell = Cell(values={}, label=system.name, system=system, runs=())
            found = inference.measure([cell], setting)["cells"][system.name]
            rows = [
                {"batch": size, **{name: f"{value:.4g}" for name, value in found[str(size)].items()}} for size in sizes
            ]
            listing(rows, form, "batch")
            return
        study = Study(grid, scale, results_dir=results_dir)
        plan = study.resolve()
        say = echo if form is Format.table else lambda _: None
        measured = inference.measure(plan.cells, setting, say)
        kept = inference.keep(study.folder, measured)
        written = inference_page.publish(study.measurements, study.folder)
        reading, everything = inference_page.sheets(study.measurements, [measured])
        sheet = reading if form is Format.table else everything
        listing([dict(zip(sheet.headings, row, strict=True)) for row in sheet.rows], form, sheet.headings[0])
        for path in (kept, *written.values()) if form is Format.table else ():
            echo(f"wrote {path}")
