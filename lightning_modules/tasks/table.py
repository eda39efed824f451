"""The table of all tasks: ours module by module in alphabetical order, those of plugins, and rows of a study's data."""

import pkgutil
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from lightning_modules.config import ConfigError
from lightning_modules.places import plugins, study
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
            found += [(module.rpartition(".")[2], task) for task in _rows(module)]
        except _Broken as reason:
            wrong.append(f"the module of tasks {module} {str(reason).rstrip('.')}.")
    found += [(home, task) for home, of_home in further for task in of_home.values()]
    for home, task in found:
        if task.name in tasks:
            wrong.append(f"the task '{task.name}' has a row in {homes[task.name]} and in {home}: rename one.")
        tasks[task.name], homes[task.name] = task, home
    if wrong:
        raise ConfigError(wrong)
    return tasks


class _Broken(Exception):
    """What is wrong with a module, worded to follow its name."""


def _rows(name: str) -> tuple[Task, ...]:
    try:
        rows = getattr(import_module(name), "ROWS", ())
    except Exception as error:  # whatever the file does when it is imported
        raise _Broken(f"cannot be imported: {_place(name, error)}: {type(error).__name__}: {error}") from error
    if not isinstance(rows, tuple) or not all(isinstance(row, Task) for row in rows):
        raise _Broken("has other ROWS than a tuple of tasks: ROWS = (Task(...), ...)")
    return rows


def _place(name: str, error: Exception) -> str:
    """File and line of an error: the last line of the module itself that it passed through."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    spec = find_spec(name)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if spec and frame.filename == spec.origin]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "for a reason outside it"


_OURS = sorted(info.name for info in pkgutil.iter_modules(datasets.__path__))
TASKS: dict[str, Task] = gathered(
    [*(f"{datasets.__name__}.{name}" for name in _OURS), *plugins()],
    [("the study's data", rows.read([inside / "data"]))] if (inside := study()) else (),
)


def task_named(name: str) -> Task:
    """The task of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    return entry_of(TASKS, name, "task")
