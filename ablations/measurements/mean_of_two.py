"""The mean of the probabilities of two fine-tunings, as of a classifier in each direction.

Howard and Ruder (2018, section 5) average a forward and a backward classifier. No run does so here: records keep the
probabilities of dev examples (`scores.kept`), and the mean is computed when tables are made.
"""

import numpy as np

from ablations.schema.record import Record
from lightning_modules.config import ConfigError
from lightning_modules.tasks import TASKS
from lightning_modules.tasks.scores.kept import PROBABILITY, pack, unpack, unpack_probabilities
from lightning_modules.tasks.scores.metrics import METRICS

_CLASSES = 2


def problem(task: str) -> str:
    """Why a task has no such mean, worded to follow its name; empty if it has one."""
    if task not in TASKS or TASKS[task].shape.classes != _CLASSES:
        return f"has not {_CLASSES} classes. Of {_CLASSES} alone, an answer and whether it is right give the label"
    return ""


def mean_of_two(a: Record, b: Record, task: str) -> Record:
    """A record as a fine-tuning would leave it whose probabilities are the mean of those of two.

    Its metrics are those of the task and the scores of simple methods on which both agree. A probability of a half is
    an answer of the lower class.

    Args:
        a: A finished fine-tuning.
        b: Another one, of the same seed.

    Raises:
        ConfigError: If the task has not two classes, if one of them keeps no probabilities, and if their tasks or
            examples differ.
    """
    names = f"{a.id} and {b.id}"
    tasks = [str(record.config.get("task", task)) for record in (a, b)]
    if tasks != [task, task]:
        raise ConfigError([f"{names} are fine-tuned on {' and '.join(tasks)}. Name two cells of one task."])
    if why := problem(task):
        raise ConfigError([f"{task} {why}"])
    if bare := [record.id for record in (a, b) if not {PROBABILITY, "answer", "right"} <= record.examples.keys()]:
        raise ConfigError([f"{' and '.join(bare)} kept no probabilities: older records and large tasks have none"])
    labels, others = _labels(a), _labels(b)
    if _prints(a, task) != _prints(b, task) or not np.array_equal(labels, others):
        raise ConfigError([f"{names} answer different examples of {task}. Name two cells that answer the same."])
    answers = ((_probabilities(a) + _probabilities(b)) / 2).argmax(axis=1)
    scores = {f"{task}.{name}": METRICS[name].of(labels, answers) for name in TASKS[task].metrics if name in METRICS}
    simple = {
        name: value
        for name, value in a.metrics.items()
        if name.startswith(tuple(f"{metric}." for metric in scores)) and b.metrics.get(name) == value
    }
    silent = {f"{task}.all_equal": bool(len(answers) > 1 and (answers == answers[0]).all())}
    kept = {"answer": pack(answers), "right": pack(answers == labels)}
    return a.model_copy(update={"metrics": {**scores, **simple, **silent}, "examples": kept, "curve": {}, "cost": {}})


def _probabilities(record: Record) -> np.ndarray:
    return unpack_probabilities(record.examples[PROBABILITY], _CLASSES)


def _labels(record: Record) -> np.ndarray:
    """The right class of each example: the answer, or the other one where that is wrong."""
    answers, right = unpack(record.examples["answer"]), unpack(record.examples["right"]).astype(bool)
    return np.where(right, answers, 1 - answers)


def _prints(record: Record, task: str) -> object:
    prints = record.config.get("fingerprints", {})
    return prints.get(task) if isinstance(prints, dict) else None
