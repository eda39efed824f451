"""``ablations pick``: the model of a grid that scores best within a file size and a time, from records."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import USUAL, As, Format, Results, Shown, echo, listing, reporting_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ablations.core.statistics import Interval
    from ablations.measurements.measurements import Measurements
    from ablations.measurements.pareto import Choice, Cost, Limits
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
    """Names the model that scores best within a file size and a time. Trains and measures nothing.

    Exits with 1 if no model that has a score fits.
    """
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
        alone = [one for one in measured if 1 in one.get("batches", ()) and one["threads"] is not None]
        of_threads = [one for one in alone if one["threads"] == threads]
        if not of_threads:
            todo = f"ablations benchmark inference {grid} --scale {scale} --batches 1 --threads {threads}"
            text = f"nobody has measured {grid} at {scale} with {threads} thread{'s' * (threads > 1)}. Run `{todo}`."
            others = ", ".join(sorted({f"--threads {one['threads']}" for one in alone}))
            raise ConfigError([Problem("--threads" if alone else grid, text + f" Measured: {others}." * bool(alone))])
        machine = of_threads[-1]
        every = {cost.name: cost for cost in pareto.costs([machine], [1])}
        file, time = every[pareto.FILE], list(every.values())[-1]
        limits = [(cost, most) for cost, most in ((file, mb), (time, ms)) if most is not None]
        score = pareto.scores(known, asked.name)
        choice = pareto.choose(known.cells, score, asked.better, limits)
        rows = [_row(cell, choice, score, (file, time), limits, asked) for cell in choice.ordered]
        if form is Format.table:
            for line in _answer(choice, score, (file, time), limits, asked, f"ablations run {grid} --scale {scale}"):
                echo(line)
        fitting = [row for cell, row in zip(choice.ordered, rows, strict=True) if cell in choice.fits]
        listing(fitting if form is Format.names else rows, form, "model")
        if form is Format.table:
            for line in _without_a_network(known, asked):
                echo(line)
            echo(
                f"One sequence of {machine['length']} positions without padding, {pareto.machine(machine, [machine])} "
                f"of {machine['device']}, {machine['measured'][:10]}. A shorter one takes less, and another machine "
                f"another time. Scores are means with their 95 % intervals over seeds of {grid} at {scale}."
            )
        if not choice.fits:
            raise typer.Exit(1)


def _answer(
    choice: "Choice",
    score: "Mapping[str, Interval]",
    costs: "tuple[Cost, Cost]",
    limits: "Limits",
    asked: "Metric",
    command: str,
) -> list[str]:
    """The choice in words; if none fits the nearest one, and those that only lack a score."""
    from ablations.core.formatting import cell_text, mean_text

    within = " and ".join(f"{most:g} {_unit(cost)}" for cost, most in limits)
    within = f" within {within}" if within else ""
    if choice.fits:
        best = choice.fits[0]
        file, time = (cost.of[best.label] for cost in costs)
        scored = f"{asked.label or asked.name} {mean_text(score[best.label])}"
        lines = [f"Best{within}: {cell_text(best.values)} ({scored}, {file:.2f} MB, {time:.2f} ms)."]
    else:
        near, lines = choice.nearest, [f"No model that has a score fits{within}."]
        lines += [f"Nearest: {cell_text(near.values)}, {_beyond(near, limits)}."] if near else []
    if choice.unscored:
        names = ", ".join(cell_text(cell.values) for cell in choice.unscored)
        lines.append(f"{'Within it, w' if limits else 'W'}ithout a score yet: {names}. `{command}` trains them.")
    return lines


def _without_a_network(known: "Measurements", asked: "Metric") -> list[str]:
    """The best simple method of each task that a score is of."""
    from ablations.measurements.references import strongest

    tasks = [metric for metric in known.grid.metrics if metric.name.partition(".")[0] in known.grid.tasks]
    of = [metric for metric in tasks if asked.name in (metric.name, "tasks.mean")]
    found = {metric: best for metric in of if (best := strongest(known, metric, known.cells[0]))}
    said = [f"{metric.label or metric.name} {score:.3f} ({method})" for metric, (score, method) in found.items()]
    return [f"Without a network: {'; '.join(said)}."] if said else []


def _unit(cost: "Cost") -> str:
    return cost.name.partition(" ")[0].rstrip(",")


def _beyond(cell: "Cell", limits: "Limits") -> str:
    """By how much a model exceeds each limit that it exceeds."""
    over = {_unit(cost): cost.of.get(cell.label, 0.0) - most for cost, most in limits}
    said = " and ".join(f"{much:.2g} {unit}" for unit, much in over.items() if much > 0)
    return said and f"{said} too many"


def _row(
    cell: "Cell",
    choice: "Choice",
    score: "Mapping[str, Interval]",
    costs: "tuple[Cost, Cost]",
    limits: "Limits",
    asked: "Metric",
) -> dict[str, Any]:
    from ablations.core.formatting import cell_text, mean_text

    if cell in choice.fits:
        best, own = score[choice.fits[0].label], score[cell.label]
        overlaps = own.low is not None and own.high is not None and own.low <= (best.mean or 0.0) <= own.high
        said = "best" if cell is choice.fits[0] else "as good within its interval" if overlaps else "fits"
    elif cell in choice.unscored:
        said = "fits, no score yet"
    else:
        said = _beyond(cell, limits) or "never measured"
    return {
        "model": cell_text(cell.values),
        asked.label or asked.name: mean_text(score[cell.label]) if cell.label in score else "no record",
        **{
            unit: f"{cost.of[cell.label]:.2f}" if cell.label in cost.of else ""
            for unit, cost in zip(("MB", "ms"), costs, strict=True)
        },
        "within": said,
    }
