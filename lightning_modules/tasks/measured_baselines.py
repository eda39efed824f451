"""Scores of a task without a network: majority class, TF-IDF + logistic regression and the like, cached."""

from typing import BinaryIO

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.places import cache
from lightning_modules.tasks.pins import fingerprint
from lightning_modules.tasks.table import task_named
from lightning_modules.tasks.validation import RECIPE as DIVISION
from lightning_modules.tasks.validation import examples

_RECIPE = 1  # raise when the same examples would give different scores


def baselines(name: str, share: float | None = None) -> dict[str, dict[str, float]]:
    """The metrics of a task's baselines on its dev examples, computed once and cached.

    ``majority`` predicts the majority class of the training examples (for real labels their mean); the others are
    those of the shape, see `Shape.baselines`.

    Args:
        name: The task.
        share: That of the training examples that is scored in place of the dev examples; the baselines learn from the
            rest.
    """
    part = [] if share is None else [share, DIVISION]
    path = cache() / "task-baselines" / f"{identity([fingerprint(name), _RECIPE, *part])[:24]}.json"

    def measure(file: BinaryIO) -> None:
        task, train, dev = task_named(name), examples(name, "train", share), examples(name, "dev", share)
        answers = task.shape.baselines(train, dev)
        cached.put_json(file, {name: task.score(values, dev).metrics for name, values in answers.items()})

    return cached.kept(path, measure, cached.get_json)
