"""``ablations pick``: the model of a grid that scores best within a file size and a time, from records."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import USUAL, As, Format, Results, Shown, echo, listing, reporting_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ablations.core.statistics import Interval
    from ablations.measurements.pareto import Choice, Cost
    from ablations.schema.cell import Cell
    from ablations.schema.grid import Metric


def command(
    grid: Annotated[str, typer.Argument(help="A grid whose inference was measured.")] = "small_models",
    mb: Annotated[float | None, typer.Option("--mb", help="10^6 bytes that the file may have.", min=0)] = None,
    ms: Annotated[
        float | None, typer.Option("--ms", help="Milliseconds that a sequence may take, alone in its batch.", min=0)
    ] = None,
    threads: Annotated[int, typer.Option("--threads", help="Threads of torch on a CPU.", min=1)] = 1,
    metric: Annotated[str, typer.Option("--metric", help="A metric of the grid. Default: its first.")] = "",
    scale: Shown = USUAL,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:
    """Names the model that scores best within a file size and a time. Trains and measures nothing."""
    from ablations.measurements import pareto
    from ablations.running import inference
    from ablations.study import Study
    from lightning_modules.config import ConfigError, Problem, did_you_mean

    with reporting_errors():
        study = Study(grid, scale, results_dir=results_dir)
        known, measured = study.measurements, inference.read(study.folder)
        metrics = {one.name: one for one in known.grid.metrics}
        if metric and metric not in metrics:
            raise ConfigError([Problem("--metric", f"{grid} has no metric {metric!r}.{did_you_mean(metric, metrics)}")])
        asked = metrics[metric] if metric else known.grid.metrics[0]
        of_threads = [one for one in measured if one["threads"] == threads and 1 in one.get("batches", ())]
        if not of_threads:
            todo = f"ablations benchmark inference {grid} --scale {scale} --batches 1 --threads {threads}"
            text = f"nobody has measured {grid} at {scale} with {threads} thread{'s' * (threads > 1)}. Run `{todo}`."
            raise ConfigError([Problem("--threads", text)])
        machine = of_threads[-1]
        every = {cost.name: cost for cost in pareto.costs([machine], [1])}
        file, time = every[pareto.FILE], list(every.values())[-1]
        limits = [(cost, most) for cost, most in ((file, mb), (time, ms)) if most is not None]
        score = pareto.scores(known, asked.name)
        choice = pareto.choose(known.cells, score, asked.better, limits)
        rows = [_row(cell, choice, score, (file, time), limits, asked) for cell in choice.ordered]
        if form is Format.table:
            echo(_answer(choice, score, (file, time), limits, asked))
        listing(rows, form, "model")
        if form is Format.table:
            echo(
                f"One sequence of {machine['length']} positions, {pareto.machine(machine, [machine])} of "
                f"{machine['device']}, {machine['measured'][:10]}. Another machine gives other times. Scores are means "
                f"with their 95 % intervals over seeds of {grid} at {scale}."
            )


def _answer(
    choice: "Choice",
    score: "Mapping[str, Interval]",
    costs: "tuple[Cost, Cost]",
    limits: "Sequence[tuple[Cost, float]]",
    asked: "Metric",
) -> str:
    """The choice in words."""
    from ablations.core.formatting import cell_text, mean_text

    within = " and ".join(f"{most:g} {cost.name.partition(' ')[0].rstrip(',')}" for cost, most in limits)
    within = f" within {within}" if within else ""
    if not choice.fits:
        return f"No model that has a score fits{within}."
    best = choice.fits[0]
    file, time = (cost.of[best.label] for cost in costs)
    scored = f"{asked.label or asked.name} {mean_text(score[best.label])}"
    return f"Best{within}: {cell_text(best.values)}. {scored}, {file:.2f} MB, {time:.2f} ms."


def _row(
    cell: "Cell",
    choice: "Choice",
    score: "Mapping[str, Interval]",
    costs: "tuple[Cost, Cost]",
    limits: "Sequence[tuple[Cost, float]]",
    asked: "Metric",
) -> dict[str, Any]:
    from ablations.core.formatting import cell_text, mean_text

    beyond = [cost.name.partition(" ")[0].rstrip(",") for cost, most in limits if cost.of.get(cell.label, 0.0) > most]
    if cell in choice.fits:
        best, own = score[choice.fits[0].label], score[cell.label]
        overlaps = own.low is not None and own.high is not None and own.low <= (best.mean or 0.0) <= own.high
        said = "best" if cell is choice.fits[0] else "as good within its interval" if overlaps else "fits"
    else:
        said = f"too many {' and '.join(beyond)}" if beyond else "never measured" if cell in choice.unmeasured else ""
    return {
        "model": cell_text(cell.values),
        asked.label or asked.name: mean_text(score[cell.label]) if cell.label in score else "no record",
        **{
            unit: f"{cost.of[cell.label]:.2f}" if cell.label in cost.of else ""
            for unit, cost in zip(("MB", "ms"), costs, strict=True)
        },
        "within": said,
    }
