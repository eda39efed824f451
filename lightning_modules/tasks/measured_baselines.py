"""Scores of a task without a network: majority class, TF-IDF + logistic regression and the like, cached."""

import json

from filelock import FileLock

from lightning_modules.config import identity
from lightning_modules.files import write_atomically
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            task, train, dev = task_named(name), checked(name, "train"), checked(name, "dev")
            answers = task.shape.baselines(train, dev)
            metrics = {name: task.score(values, dev).metrics for name, values in answers.items()}
            write_atomically(path, lambda file: file.write(json.dumps(metrics).encode()))
    return json.loads(path.read_text(encoding="utf-8"))
