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


class Parent(NamedTuple):
    """A described training: its system, and its seed if that is another one than the child's."""

    system: Any
    seed: int | None


def knobs(description: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of a description, without its seed."""
    return {path: value for path, value in description.items() if path != SEED}


def replaced(settings: Settings, path: str, value: Any) -> Any:
    """A copy of settings with another value at a dotted path, unchecked."""
    name, _, below = path.partition(".")
    inner = replaced(getattr(settings, name), below, value) if below else value
    return settings.model_copy(update={name: inner})
