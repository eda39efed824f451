"""Metrics derived from several fine-tunings of one pretraining: averages over tasks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from lightning_modules.tasks import TASKS
from lightning_modules.tasks.scores.averages import BERT, GLUE, bert_average, glue_average, mean

Scores = Mapping[str, float]


@dataclass(frozen=True)
class Derived:
    """A metric that no run has by itself.

    Attributes:
        of: The value from the scores of a pretraining's fine-tunings and their planned tasks; None if a score is
            missing.
        tasks: The tasks that it needs; empty if any will do.
    """

    of: Callable[[Scores, Iterable[str]], float | None]
    tasks: frozenset[str] = frozenset()


def _tasks(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in names)


def _mean_of_mains(scores: Scores, tasks: Iterable[str]) -> float | None:
    names = sorted(set(tasks))
    return mean(scores, [f"{name}.{TASKS[name].main}" for name in names]) if TASKS.keys() >= set(names) else None


DERIVED: dict[str, Derived] = {
    "glue.bert_average": Derived(lambda scores, tasks: bert_average(scores), _tasks(BERT)),
    "glue.average": Derived(lambda scores, tasks: glue_average(scores), _tasks(chain.from_iterable(GLUE))),
    "tasks.mean": Derived(_mean_of_mains),
}


def possible(metric: str, tasks: Iterable[str]) -> bool:
    """Whether fine-tunings on these tasks give a derived metric."""
    names = set(tasks)
    return bool(names) and DERIVED[metric].tasks <= names


def missing(metric: str, tasks: Iterable[str]) -> str:
    """The message about a derived metric that these tasks cannot give."""
    absent = ", ".join(sorted(DERIVED[metric].tasks - set(tasks))) or "any task"
    return f"no scale fine-tunes on all tasks that it needs. Absent from 'tasks': {absent}."
