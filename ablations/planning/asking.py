"""How pretrained models are asked without training: the tasks of a scale, and the settings of each."""

from collections.abc import Mapping, Sequence
from typing import Any

from ablations.schema.grid import MEASURING, Grid
from lightning_modules.config import ConfigError, Problem
from lightning_modules.generation.language_model import check_predicts_next
from lightning_modules.system import System
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT


def measured_at(grid: Grid, scale: str) -> tuple[str, ...]:
    """The zero-shot tasks of a scale."""
    own = grid.scales[scale].measure
    return grid.measure if own is None else own


def examples_of(task: str) -> str:
    """The fingerprint of the examples of a zero-shot task and of how they are asked."""
    return ZERO_SHOT[task].fingerprint()


def measuring(knobs: Mapping[str, Any], task: str) -> Measurement:
    """How a model is asked a zero-shot task; knobs for this task win over those for all.

    Args:
        knobs: Paths that start with ``measuring.``, and their values.
        task: The task; empty for the settings common to all tasks.

    Raises:
        ConfigError: Naming each bad knob, and a setting given for a task that it cannot act on.
    """
    own = {path.removeprefix(MEASURING): v for path, v in knobs.items()}
    mine = {path.removeprefix(f"{task}."): v for path, v in own.items() if path.startswith(f"{task}.")}
    everyones = {path: v for path, v in own.items() if path.partition(".")[0] not in ZERO_SHOT}
    try:
        settings = Measurement().but(**{**everyones, **mine})
    except ConfigError as error:
        prefix = dict.fromkeys(mine, f"{MEASURING}{task}.")
        raise ConfigError(Problem(prefix.get(p.path, MEASURING) + p.path, p.message) for p in error.problems) from None
    idle = set(ZERO_SHOT[task].idle(settings)) & mine.keys() if task else ()
    if idle:
        reads = ", ".join(sorted(ZERO_SHOT[task].reads))
        text = f"does not act on {task}, which reads {reads}; leave it out for this task"
        raise ConfigError(Problem(f"{MEASURING}{task}.{name}", text) for name in sorted(idle))
    return ZERO_SHOT[task].settled(settings) if task else settings


def check_askable(system: System, tasks: Sequence[str]) -> None:
    """Refuses tasks for a system that predicts no next token.

    Raises:
        ConfigError: Naming the tasks, and what the system would need.
    """
    if not tasks:
        return
    try:
        check_predicts_next(system, "the model")
    except ConfigError as error:
        text = "; ".join(problem.message for problem in error.problems)
        raise ConfigError([Problem("measure", f"{', '.join(tasks)} cannot be asked: {text}")]) from None
