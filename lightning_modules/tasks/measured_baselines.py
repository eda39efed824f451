"""What a task gives without any pretraining: the commonest answer, and a linear model of word counts."""

import json

from filelock import FileLock

from lightning_modules.config import identity
from lightning_modules.files import write_atomically
from lightning_modules.places import cache
from lightning_modules.tasks.pins import checked, fingerprint
from lightning_modules.tasks.table import task_named

_RECIPE = 1  # bumped when the same examples would give other scores


def baselines(name: str) -> dict[str, dict[str, float]]:
    """The metrics of a task on its dev examples for answerers without a network, computed once and cached.

    ``majority`` answers with the commonest answer of the training examples, in regression with their mean; ``tfidf``
    is a linear model of words, for shapes that have one.
    """
    path = cache() / "task-baselines" / f"{identity([fingerprint(name), _RECIPE])[:24]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            task, train, dev = task_named(name), checked(name, "train"), checked(name, "dev")
            answers = task.shape.baselines(train, dev)
            found = {who: task.score(given, dev).metrics for who, given in answers.items()}
            write_atomically(path, lambda file: file.write(json.dumps(found).encode()))
    return json.loads(path.read_text(encoding="utf-8"))
