"""The table of all tasks: ours module by module in alphabetical order, those of plugins, and rows of a study's data."""

import pkgutil
from collections.abc import Iterable

from lightning_modules import plugins
from lightning_modules.config import ConfigError
from lightning_modules.places import study
from lightning_modules.problems import entry_of
from lightning_modules.tasks import datasets, rows
from lightning_modules.tasks.task import Task


def gathered(modules: Iterable[str], further: Iterable[tuple[str, dict[str, Task]]] = ()) -> dict[str, Task]:
    """The tasks of some modules, which list them as ``ROWS``, and further ones, by name.

    Args:
        modules: Names of modules. One without ``ROWS`` has no tasks.
        further: Where tasks are from, and the tasks by name.

    Raises:
        ConfigError: With every module that cannot be imported or has other ``ROWS``, and every name given twice.
    """
    tasks: dict[str, Task] = {}
    homes: dict[str, str] = {}
    wrong, found = [], []
    for module in modules:
        try:
            listed = getattr(plugins.imported(module), "ROWS", ())
        except ConfigError as error:
            wrong += error.problems
            continue
        if isinstance(listed, tuple) and all(isinstance(row, Task) for row in listed):
            found += [(module.rpartition(".")[2], task) for task in listed]
        else:
            wrong.append(f"{module}: ROWS must be a tuple of tasks: ROWS = (Task(...), ...)")
    found += [(home, task) for home, of_home in further for task in of_home.values()]
    for home, task in found:
        if task.name in tasks:
            wrong.append(f"the task '{task.name}' has a row in {homes[task.name]} and in {home}: rename one.")
        tasks[task.name], homes[task.name] = task, home
    if wrong:
        raise ConfigError(wrong)
    return tasks


_OURS = sorted(info.name for info in pkgutil.iter_modules(datasets.__path__))
TASKS: dict[str, Task] = gathered(
    [*(f"{datasets.__name__}.{name}" for name in _OURS), *plugins.listing("ROWS")],
    [("the study's data", rows.read([inside / "data"]))] if (inside := study()) else (),
)


def task_named(name: str) -> Task:
    """The task of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    return entry_of(TASKS, name, "task")
