"""``ablations evaluate``: zero-shot tasks for a language model, a public checkpoint next to the models of a grid."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import (
    USUAL,
    As,
    Format,
    Results,
    Shown,
    aside,
    echo,
    known,
    listing,
    reporting_errors,
    values,
)

if TYPE_CHECKING:
    from ablations.inspection.models import Opened
    from lightning_modules.zero_shot.settings import Measurement


def command(
    model: Annotated[str, typer.Argument(help="A checkpoint's folder, or a finished pretraining's first digits.")] = "",
    task: Annotated[list[str] | None, typer.Option("--task", help="A zero-shot task, as lambada. Repeatable.")] = None,
    beside: Annotated[str, typer.Option("--beside", help="A grid: its tasks, settings and page.")] = "",
    change: Annotated[list[str] | None, typer.Option("--set", help="measuring.KNOB=VALUE. Repeatable.")] = None,
    scale: Shown = USUAL,
    results_dir: Results = None,
    form: As = Format.table,
) -> None:  # fmt: skip
    """Evaluates a left-to-right language model on zero-shot tasks. `--beside GRID` shows it on that page."""
    from ablations.inspection.models import opened
    from ablations.pages import checkpoint_table
    from ablations.study import Study

    if not model:
        raise typer.BadParameter("name a model: the first digits of a finished pretraining, or a checkpoint's folder")
    with reporting_errors():
        study = Study(beside, scale, results_dir=results_dir) if beside else None
        asked = _asked(study, task or [], values(change, "--set"))
        records = study.records if study else known(results_dir)
        with aside(form):
            name = Path(model).resolve().name if Path(model).is_dir() else model
            found = _measured(opened(model, records, scale=scale), asked, name)
        listing([{"metric": name, "value": f"{value:.4g}"} for name, value in found["metrics"].items()], form, "metric")
        if study is not None:
            kept = checkpoint_table.keep(study.folder, found)
            study.publish()
            if form is Format.table:
                echo(f"wrote {kept}")


def _asked(study: Any, tasks: list[str], changes: dict[str, Any]) -> "dict[str, Measurement]":
    """The tasks and how each is evaluated. Everything is checked before weights are read."""
    from ablations.planning.afterwards import measuring
    from ablations.schema.grid import MEASURING
    from lightning_modules.config import ConfigError, Problem
    from lightning_modules.zero_shot.table import ZERO_SHOT, zero_shot_named

    wrong = [Problem(path, f"only {MEASURING}* can be set") for path in changes if not path.startswith(MEASURING)]
    if wrong:
        raise ConfigError(wrong)
    of_grid = {run.task: run.measuring for run in study.resolve().cells[0].zero_shot} if study else {}
    names = list(dict.fromkeys(tasks)) or [name for name in of_grid if not ZERO_SHOT[name].of_run]
    if not names:
        able = ", ".join(name for name, row in ZERO_SHOT.items() if not row.of_run)
        raise ConfigError([f"there is no task: add --task, once or more, of {able}"])
    for name in names:
        if zero_shot_named(name).of_run:
            raise ConfigError([f"'{name}' is made from the text of a grid's own runs. For a model alone leave it out."])
        ZERO_SHOT[name].check()
    return {name: measuring(changes, name) if changes or name not in of_grid else of_grid[name] for name in names}


def _measured(opened: "Opened", asked: "dict[str, Measurement]", name: str) -> dict[str, Any]:
    from lightning_modules.zero_shot.measure import asked as answers

    model, metrics = opened.language_model(), {}
    for task, settings in asked.items():
        found = answers(model, task, settings, None)
        metrics |= {f"{task}.{metric}": float(value) for metric, value in found.metrics.items()}
    parameters = sum(parameter.numel() for parameter in {*model.backbone.parameters(), *model.heads.parameters()})
    return {
        "name": name,
        "parameters": parameters,
        "positions": model.max_positions,
        "metrics": metrics,
        "measuring": {task: settings.to_dict() for task, settings in asked.items()},
    }
