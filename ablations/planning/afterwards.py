"""What is done with pretrained models: fine-tuning on tasks, and asking them without training."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from ablations.schema.grid import FINETUNING, MEASURING, Grid
from lightning_modules.config import ConfigError, Problem, Settings, did_you_mean
from lightning_modules.generation.language_model import check_predicts_next
from lightning_modules.system import System
from lightning_modules.tasks import TASKS, FineTuning
from lightning_modules.tasks.protocols import PROTOCOLS
from lightning_modules.tasks.settings import OF_SOME_SHAPES
from lightning_modules.zero_shot.settings import Measurement
from lightning_modules.zero_shot.table import ZERO_SHOT

PROTOCOL = "protocol"  # after FINETUNING: the name of a paper's fine-tuning settings
Given = dict[str, Any]
_Settings = TypeVar("_Settings", bound=Settings)


def tasks_at(grid: Grid, scale: str) -> tuple[str, ...]:
    """The downstream tasks of a scale."""
    own = grid.scales[scale].tasks
    return grid.tasks if own is None else own


def measured_at(grid: Grid, scale: str) -> tuple[str, ...]:
    """The zero-shot tasks of a scale."""
    own = grid.scales[scale].measure
    return grid.measure if own is None else own


def examples_of(task: str, kind: str) -> str:
    """The fingerprint of the examples of a zero-shot task and of how they are presented under a kind of tokenizer."""
    return ZERO_SHOT[task].fingerprint_under(kind)


def finetuning(knobs: Mapping[str, Any], task: str) -> FineTuning:
    """How a model is fine-tuned on a task.

    Later settings win: the task's own, the protocol's, knobs for all tasks, knobs for this task.

    Args:
        knobs: Paths that start with ``finetuning.``, and their values.
        task: The task; empty for the settings common to all tasks.

    Raises:
        ConfigError: Naming each bad knob, and a setting given for a task that it cannot act on.
    """
    everyones, mine = _divided(knobs, FINETUNING, task, TASKS)
    if idle := idle_for(task, mine):
        raise ConfigError(Problem(f"{FINETUNING}{task}.{name}", reason) for name, reason in idle.items())
    protocol = everyones.pop(PROTOCOL, None)
    if protocol is not None and protocol not in PROTOCOLS:
        hint = did_you_mean(str(protocol), PROTOCOLS)
        raise ConfigError([Problem(FINETUNING + PROTOCOL, f"there is no protocol {protocol!r}.{hint}")])
    published = PROTOCOLS[protocol].settings(task) if protocol else {}
    own = {**(TASKS[task].settings if task else {}), **published, **everyones, **mine}
    first = own.get("first")
    if first is not None and first not in TASKS:
        raise ConfigError(
            [Problem(f"{FINETUNING}first", f"there is no task {first!r}.{did_you_mean(str(first), TASKS)}")]
        )
    own |= {"first": None} if first == task else {}  # a task is not its own first task
    return _made(FineTuning(), own, FINETUNING, task, mine)


def idle_for(task: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Which of the settings given for a task cannot act on it, and why; given for all tasks they leave it alone."""
    reasons = TASKS[task].shape.idle if task else {}
    given = [name for name in reasons if settings.get(name, OF_SOME_SHAPES[name]) != OF_SOME_SHAPES[name]]
    return {name: f"{task} {reasons[name]}. Leave it out for this task." for name in given}


def measuring(knobs: Mapping[str, Any], task: str) -> Measurement:
    """How a model is evaluated on a zero-shot task. Knobs for this task win over those for all.

    Args:
        knobs: Paths that start with ``measuring.``, and their values.
        task: The task; empty for the settings common to all tasks.

    Raises:
        ConfigError: Naming each bad knob, and a setting given for a task that it cannot act on.
    """
    everyones, mine = _divided(knobs, MEASURING, task, ZERO_SHOT)
    settings = _made(Measurement(), {**everyones, **mine}, MEASURING, task, mine)
    idle = set(ZERO_SHOT[task].idle(settings)) & mine.keys() if task else ()
    if idle:
        reads = ", ".join(sorted(ZERO_SHOT[task].reads))
        text = f"does not act on {task}, which reads {reads}. Leave it out for this task."
        raise ConfigError(Problem(f"{MEASURING}{task}.{name}", text) for name in sorted(idle))
    return ZERO_SHOT[task].settled(settings) if task else settings


def _divided(knobs: Mapping[str, Any], prefix: str, task: str, tasks: Collection[str]) -> tuple[Given, Given]:
    """Of the knobs below a prefix those for all tasks, and those for one task; other tasks' are left out."""
    own = {path.removeprefix(prefix): value for path, value in knobs.items()}
    everyones = {path: value for path, value in own.items() if path.partition(".")[0] not in tasks}
    return everyones, {path.removeprefix(f"{task}."): v for path, v in own.items() if path.startswith(f"{task}.")}


def _made(settings: _Settings, given: Given, prefix: str, task: str, mine: Collection[str]) -> _Settings:
    """Settings with the given knobs; what is wrong is named as the grid writes it."""
    try:
        return settings.but(**given)
    except ConfigError as error:
        own = dict.fromkeys(mine, f"{prefix}{task}.")
        raise ConfigError(Problem(own.get(p.path, prefix) + p.path, p.message) for p in error.problems) from None


def check_askable(system: System, tasks: Sequence[str]) -> None:
    """Refuses tasks for a system that predicts no next token.

    Raises:
        ConfigError: Naming the tasks, and what the system would need.
    """
    if not tasks:
        return
    if system.checkpoint:
        text = f"{', '.join(tasks)} cannot be measured: a released checkpoint is fine-tuned. Leave them out"
        raise ConfigError([Problem("measure", text)])
    try:
        check_predicts_next(system, "the model")
    except ConfigError as error:
        text = "; ".join(problem.message for problem in error.problems)
        raise ConfigError([Problem("measure", f"{', '.join(tasks)} cannot be measured: {text}")]) from None
