"""Scores of a task without a network: majority class, TF-IDF + logistic regression and the like, cached."""

from typing import BinaryIO

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.places import cache
from lightning_modules.tasks.pins import checked, fingerprint
from lightning_modules.tasks.table import task_named

_RECIPE = 1  # raise when the same examples would give different scores


def baselines(name: str) -> dict[str, dict[str, float]]:
    """The metrics of a task's baselines on its dev examples, computed once and cached.

    ``majority`` predicts the majority class of the training examples (for real labels their mean); the others are
    those of the shape, see `Shape.baselines`.
    """
    path = cache() / "task-baselines" / f"{identity([fingerprint(name), _RECIPE])[:24]}.json"

    def measure(file: BinaryIO) -> None:
        task, train, dev = task_named(name), checked(name, "train"), checked(name, "dev")
        answers = task.shape.baselines(train, dev)
        cached.put_json(file, {name: task.score(values, dev).metrics for name, values in answers.items()})

    return cached.kept(path, measure, cached.get_json)
