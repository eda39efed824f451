"""Metrics that a task got after its fine-tunings were recorded, from the answers that their records keep."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from ablations.schema.record import Record
from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS, Task
from lightning_modules.tasks.measured_baselines import references
from lightning_modules.tasks.scores.kept import unpack
from lightning_modules.tasks.validation import examples

_ANSWER = "answer"


def completed(records: Mapping[str, Record]) -> tuple[dict[str, Record], Counter[str]]:
    """Adds the metrics of its task that a record lacks and its answers give.

    Reads the dev examples, and only where a metric is missing. A record stays as it is where they are not available,
    or where they and its answers do not give what it says of right and wrong.

    Args:
        records: Records by run.

    Returns:
        All records, and how many got each metric.
    """
    dev: dict[tuple[str, float | None], Any] = {}
    found, counts = dict(records), Counter[str]()
    for id, record in records.items():
        task = TASKS.get(str(record.config.get("task"))) if record.kind == "finetune" else None
        if task is None or _ANSWER not in record.examples or _is_complete(record, task):
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
            continue
        metrics = {**simple, **added, **record.metrics}  # what was recorded stays
        counts.update(metrics.keys() - record.metrics.keys())
        found[id] = record.model_copy(update={"metrics": metrics})
    return found, counts


def _is_complete(record: Record, task: Task) -> bool:
    """Whether a record has every metric of its task, and the majority class by the main one."""
    names = [f"{task.name}.{metric}" for metric in (*task.metrics, f"{task.main}.majority")]
    return record.metrics.keys() >= set(names)


def _computed(record: Record, task: Task, dev: Any) -> dict[str, float]:
    """The metrics of a record; none where the examples are not those that it answers."""
    answers = unpack(record.examples[_ANSWER])
    if dev is None or len(answers) != len(dev):
        return {}
    scored = task.score(np.asarray(answers), dev)
    if any(scored.kept.get(name) != packed for name, packed in record.examples.items()):
        return {}
    return {f"{task.name}.{metric}": value for metric, value in scored.metrics.items()}
