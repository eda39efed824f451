"""Every task. A data set of a known shape is a row in a module of its kind; the rows of all modules are joined here."""

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
        ConfigError: For an unknown name, with the nearest one.
    """
    if name not in TASKS:
        raise ConfigError([f"there is no task '{name}'.{did_you_mean(name, TASKS)}"])
    return TASKS[name]
