"""The table of all tasks, joined from the rows of the modules of data sets."""

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.tasks.datasets import arct, columns, copa, gap, glue, qnli, race, sentences, squad, swag
from lightning_modules.tasks.task import Task

_ROWS: tuple[Task, ...] = (
    *glue.ROWS,
    *sentences.ROWS,
    *qnli.ROWS,
    *squad.ROWS,
    *columns.ROWS,
    *race.ROWS,
    *swag.ROWS,
    *copa.ROWS,
    *arct.ROWS,
    *gap.ROWS,
)

TASKS: dict[str, Task] = {row.name: row for row in _ROWS}


def task_named(name: str) -> Task:
    """The task of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    if name not in TASKS:
        raise ConfigError([f"there is no task '{name}'.{did_you_mean(name, TASKS)}"])
    return TASKS[name]
