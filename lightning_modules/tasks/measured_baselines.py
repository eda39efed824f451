"""Scores of a task without a network: majority class, TF-IDF + logistic regression and the like, cached."""

from collections.abc import Callable
from typing import Any

from lightning_modules import cached
from lightning_modules.config import identity
from lightning_modules.places import cache
from lightning_modules.tasks.pins import fingerprint
from lightning_modules.tasks.table import task_named
from lightning_modules.tasks.validation import RECIPE as DIVISION
from lightning_modules.tasks.validation import drawn, examples

SAME_LABELS = "_same_labels"  # ends the name of a method that learned from no more labels than the fine-tuning
_RECIPE = 2  # raise when the same examples would give different scores


def baselines(name: str, share: float | None = None) -> dict[str, dict[str, float]]:
    """The metrics of a task's baselines on its dev examples, computed once and cached.

    ``majority`` predicts the majority class of the training examples (for real labels their mean); the others are
    those of the shape, see `Shape.baselines`.

    Args:
        share: That of the training examples that is scored in place of the dev examples; the baselines learn from the
            rest.
    """
    return _scored(name, share, lambda: examples(name, "train", share))


def with_same_labels(name: str, share: float | None, count: int | None, seed: int) -> dict[str, dict[str, float]]:
    """The metrics of the same methods, majority class aside, after no more labels than a fine-tuning has.

    Compared with 1,000 labels, the score of a method that learned from all 67,349 says little.

    Args:
        count: The number of labels; None for all.
        seed: That of the fine-tuning, so that both learn from the same examples.

    Returns:
        Nothing where the fine-tuning sees all training examples: then `baselines` has these scores.
    """
    train = drawn(name, share, count, seed)
    if len(train) == len(examples(name, "train", share)):
        return {}
    few = _scored(name, share, lambda: train, "labels", count, seed)
    return {method: metrics for method, metrics in few.items() if method != "majority"}


def references(name: str, share: float | None, count: int | None, seed: int) -> dict[str, float]:
    """The scores of all these methods by the task's main metric: ``<task>.<metric>.<method>`` -> score.

    The arguments are those of `with_same_labels`.
    """
    main, few = task_named(name).main, with_same_labels(name, share, count, seed)
    scores = baselines(name, share) | {f"{method}{SAME_LABELS}": metrics for method, metrics in few.items()}
    return {f"{name}.{main}.{method}": metrics[main] for method, metrics in scores.items()}


def names(name: str, is_few: bool) -> set[str]:
    """The metrics of `references`, of all training examples or of few."""
    main, methods = task_named(name).main, task_named(name).shape.methods
    few = {f"{method}{SAME_LABELS}" for method in methods if method != "majority"} if is_few else set()
    return {f"{name}.{main}.{method}" for method in (*methods, *few)}


def described(name: str, examples: str, share: float | None, count: int | None, seed: int) -> list[Any]:
    """All that determines `references`: of examples with a fingerprint, by this version of the methods.

    Of all training examples, no seed draws any.
    """
    task, part = task_named(name), [] if share is None else [share, DIVISION]
    return [
        name,
        examples,
        task.main,
        _RECIPE,
        task.shape.methods_version,
        *part,
        *([] if count is None else [count, seed]),
    ]


def _scored(
    name: str, share: float | None, train: Callable[[], Any], *few: str | int | None
) -> dict[str, dict[str, float]]:
    """The metrics of all methods, from the cache or measured now; rows may get metrics later."""
    task, part = task_named(name), [] if share is None else [share, DIVISION]
    version = [task.shape.methods_version] if task.shape.methods_version else []
    key = [fingerprint(name), sorted(task.metrics), _RECIPE, *version, *part, *few]

    def measure() -> dict[str, dict[str, float]]:
        dev = examples(name, "dev", share)
        answers = task.shape.baselines(train(), dev)
        return {method: task.score(values, dev).metrics for method, values in answers.items()}

    return cached.kept_json(cache() / "task-baselines" / f"{identity(key)[:24]}.json", measure)
