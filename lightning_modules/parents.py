"""Parents: the trainings whose weights another one reads, each in a role that its settings describe.

A *description* is a mapping from knobs to the values in which a parent differs from its child, all else being as
there. ``seed`` names another seed than the child's. So whatever holds a child can derive its parents, without a lookup.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from lightning_modules.config import Settings

Role = Literal["start", "teacher", "mask", "task_model"]
ROLES: dict[Role, str] = {
    "start": "the weights that it starts from",
    "teacher": "the weights of its teacher",
    "mask": "the weights that its mask is made from",
    "task_model": "the weights of a model of its task",
}
SEED = "seed"
OF_TASK = "finetuning."  # prefix of a description's knobs of `FineTuning`
# what a pretraining has that continues none and has no teacher
ALONE: dict[str, Any] = {
    "training.start": {},
    "training.start_layers": [],
    "training.start_parts": None,
    "training.vocabulary": "same",
    "training.stop_after": 0,
    "objectives.distillation": None,
}


class Parent(NamedTuple):
    """A described training: its system, and its seed if that is another one than the child's."""

    system: Any
    seed: int | None


def knobs(description: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of a description, without its seed."""
    return {path: value for path, value in description.items() if path != SEED}


def wrong_seed(description: Mapping[str, Any]) -> str:
    """What is wrong with the seed of a description; empty if nothing is."""
    seed = description.get(SEED)
    if seed is None or (type(seed) is int and seed >= 0):
        return ""
    return f"must be a whole number from 0, not {seed!r}. Left out it is that of the run"


class Parts(NamedTuple):
    """The parts of a description.

    Attributes:
        system: Its knobs of the system.
        finetuning: Those of the fine-tuning, without their prefix.
        task: The task that it names, empty for the pretraining; None if it names none.
    """

    system: dict[str, Any]
    finetuning: dict[str, Any]
    task: str | None


def parts(description: Mapping[str, Any]) -> Parts:
    """Divides a description of the parent of a fine-tuning."""
    system = knobs(description)
    task = system.pop("task", None)
    tuned = {path.removeprefix(OF_TASK): system.pop(path) for path in list(system) if path.startswith(OF_TASK)}
    return Parts(system, tuned, task)


def replaced(settings: Settings, path: str, value: Any) -> Any:
    """A copy of settings with another value at a dotted path, unchecked."""
    name, _, below = path.partition(".")
    inner = replaced(getattr(settings, name), below, value) if below else value
    return settings.model_copy(update={name: inner})
