"""Metrics made from those of several fine-tunings of one pretraining: averages over tasks, seed by seed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from ablations.schema.cell import Trial
from ablations.schema.record import Record
from lightning_modules.config import canonical
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.scores.averages import BERT, GLUE, bert_average, glue_average, mean

Scores = Mapping[str, float]


class Lookup(Protocol):
    """Where records come from."""

    def get(self, id: str, /) -> Record | None:
        """The record of a run, None where there is none."""


@dataclass(frozen=True)
class Derived:
    """One metric that no run has by itself.

    Attributes:
        of: The value from the scores of a pretraining's fine-tunings and the tasks that it was to be fine-tuned on;
            None where a score is missing.
        tasks: The tasks that it needs; none where it takes whichever there are.
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
    wanted, found = DERIVED[metric].tasks, set(tasks)
    return bool(found) and wanted <= found


def missing(metric: str, tasks: Iterable[str]) -> str:
    """What is said of a derived metric that these tasks cannot give."""
    absent = ", ".join(sorted(DERIVED[metric].tasks - set(tasks))) or "any task"
    return f"no scale fine-tunes on all that it needs; absent from 'tasks': {absent}"


def gathered(cell: Trial, records: Lookup, metric: str) -> dict[int, Record]:
    """By seed, what stands for a record of a derived metric; seeds that lack a part are left out.

    It has the id of the pretraining, the metric alone, and the device of the fine-tunings: a word of its own where they
    were made on several.
    """
    found = {}
    for run in cell.runs:
        tuned = [child for child in cell.tuned if child.seed == run.seed]
        made = [record for child in tuned if (record := records.get(child.id)) and record.outcome == "done"]
        scores = {name: float(value) for record in made for name, value in record.metrics.items()}
        value = DERIVED[metric].of(scores, [child.task for child in tuned])
        if value is not None:
            devices = sorted({canonical(record.provenance.get("device", "")) for record in made})
            where = made[0].provenance if len(devices) == 1 else {"device": " and ".join(devices)}
            changes = {"id": run.id, "metrics": {metric: value}, "curve": {}, "cost": {}, "provenance": where}
            found[run.seed] = made[0].model_copy(update=changes)
    return found
