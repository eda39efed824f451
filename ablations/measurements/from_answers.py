"""Metrics that a task got after its fine-tunings were recorded, from the answers that their records keep."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from ablations.schema.record import Record
from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS, Task
from lightning_modules.tasks.measured_baselines import references
from lightning_modules.tasks.scores.kept import PROBABILITY, unpack
from lightning_modules.tasks.validation import examples

_ANSWER = "answer"


class Completed(NamedTuple):
    """Records with the metrics that their answers give.

    Attributes:
        records: All records by run.
        computed: Metric -> how many records got it.
        absent: Metric -> how many records lack it because the dev examples are not available, or are others.
    """

    records: dict[str, Record]
    computed: Counter[str]
    absent: Counter[str]


def completed(records: Mapping[str, Record]) -> Completed:
    """Adds the metrics of its task that a record lacks and its answers give.

    Reads the dev examples, and only where a metric is missing. A record stays as it is where they are not available,
    or where they and its answers do not give what it says of right and wrong.
    """
    dev: dict[tuple[str, float | None], Any] = {}
    found, counts, absent = dict(records), Counter[str](), Counter[str]()
    for id, record in records.items():
        task = TASKS.get(str(record.config.get("task"))) if record.kind == "finetune" else None
        if task is None or _ANSWER not in record.examples or record.metrics.keys() >= set(_names(task)):
            continue
        try:
            run = record.run()
            assert run.finetuning is not None
            tuning = run.finetuning
            key = (task.name, tuning.validation_share)
            if key not in dev:
                dev[key] = None  # unless they can be read
                dev[key] = examples(task.name, "dev", tuning.validation_share)
            added = _computed(record, task, dev[key])
            simple = references(*key, tuning.train_examples, run.seed) if added else {}
        except ConfigError:
            added, simple = {}, {}
        metrics = {**simple, **added, **record.metrics}  # what was recorded stays
        absent.update(set(_names(task)) - metrics.keys())
        counts.update(metrics.keys() - record.metrics.keys())
        found[id] = record.model_copy(update={"metrics": metrics})
    return Completed(found, counts, absent)


def _names(task: Task) -> list[str]:
    """The metrics that a record of a task has: its own, and that of the majority class."""
    return [f"{task.name}.{metric}" for metric in (*task.metrics, f"{task.main}.majority")]


def _computed(record: Record, task: Task, dev: Any) -> dict[str, float]:
    """The metrics of a record; none where the examples are not those that it answers."""
    answers = unpack(record.examples[_ANSWER])
    if dev is None or len(answers) != len(dev):
        return {}
    scored = task.shape.score(answers, dev, task.metrics)
    if any(scored.kept.get(name) != packed for name, packed in record.examples.items() if name != PROBABILITY):
        return {}
    return {f"{task.name}.{metric}": value for metric, value in scored.metrics.items()}
