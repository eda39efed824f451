"""Checks of what a grid asks without training: tasks and settings exist, act, and fit the systems."""

import itertools

from ablations.core.strict_yaml import Document, Path_
from ablations.planning.afterwards import check_askable, measured_at
from ablations.planning.cells import Layout, Values, Workshop
from ablations.schema.grid import MEASURING, Grid
from lightning_modules.config import ConfigError, paths
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT


def known_metrics() -> dict[str, str]:
    """The metrics of zero-shot tasks, with their descriptions."""
    return {
        f"{name}.{metric}": f"{text} on {task.title}"
        for name, task in ZERO_SHOT.items()
        for metric, text in task.metrics.items()
    }


def known_knobs() -> dict[str, object]:
    """The knobs of a measurement, for all tasks or for one."""
    infos = paths(Measurement)
    prefixes = (MEASURING, *(f"{MEASURING}{name}." for name in ZERO_SHOT))
    return {prefix + path: info for prefix in prefixes for path, info in infos.items()}


def names(grid: Grid, document: Document) -> None:
    """Adds the problems with names of zero-shot tasks."""
    places: list[tuple[Path_, tuple[str, ...]]] = [(("measure",), grid.measure)]
    places += [(("scales", name, "measure"), scale.measure or ()) for name, scale in grid.scales.items()]
    for where, tasks in places:
        for n, task in enumerate(tasks):
            if task not in ZERO_SHOT:
                document.slip((*where, n), f"there is no zero-shot task '{task}'.", ZERO_SHOT, task)
            elif task in tasks[:n]:
                document.complain((*where, n), f"'{task}' is listed twice")


def idle(grid: Grid, scale: str, plan: Layout, document: Document) -> None:
    """Adds axes over settings that act on none of a scale's zero-shot tasks."""
    tasks, variants = measured_at(grid, scale), grid.variants
    bundles = [variants[axis][value] for axis, values in plan.axes.items() if axis in variants for value in values]
    for path in sorted({*plan.axes, *itertools.chain(*bundles)}):
        name = path.removeprefix(MEASURING)
        if path.startswith(MEASURING) and name in Measurement.model_fields:
            able = [task for task, row in ZERO_SHOT.items() if name in row.reads]
            if not any(task in able for task in tasks):
                text = f"{path} acts on none of its zero-shot tasks. Add one that it acts on: {', '.join(able)}."
                document.complain(("scales", scale), text)


def build(grid: Grid, scale: str, workshop: Workshop, values: Values) -> None:
    """Makes the settings of a combination.

    Raises:
        ConfigError: Naming each bad knob, and tasks that its system cannot be evaluated on.
    """
    tasks = measured_at(grid, scale)
    system = workshop.system(values)
    check_askable(system, tasks)
    settings = {task: workshop.measuring(values, task) for task in tasks or ("",)}
    if problems := [one for task in tasks for one in ZERO_SHOT[task].problems(system, settings[task])]:
        raise ConfigError(problems)
