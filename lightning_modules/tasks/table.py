"""The table of all tasks: the rows of every module in ``datasets``, module by module in alphabetical order."""

import pkgutil
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from lightning_modules.config import ConfigError, did_you_mean
from lightning_modules.tasks import datasets
from lightning_modules.tasks.task import Task


def walked(path: Iterable[str], package: str) -> dict[str, Task]:
    """The tasks of the modules in some folders, by name.

    Args:
        path: The folders of a package, its ``__path__``.
        package: Its name.

    Raises:
        ConfigError: With every module that cannot be imported or has no ``ROWS`` of tasks, and every name given twice.
    """
    tasks: dict[str, Task] = {}
    homes: dict[str, str] = {}
    wrong = []
    for module in sorted(info.name for info in pkgutil.iter_modules(path)):
        try:
            rows = _rows(f"{package}.{module}")
        except _Broken as reason:
            wrong.append(f"the module of tasks {package}.{module} {str(reason).rstrip('.')}.")
            continue
        for task in rows:
            if task.name in tasks:
                wrong.append(f"the task '{task.name}' has a row in {homes[task.name]} and in {module}: rename one.")
            tasks[task.name], homes[task.name] = task, module
    if wrong:
        raise ConfigError(wrong)
    return tasks


class _Broken(Exception):
    """What is wrong with a module, worded to follow its name."""


def _rows(name: str) -> tuple[Task, ...]:
    try:
        rows = getattr(import_module(name), "ROWS", None)
    except Exception as error:  # whatever the file does when it is imported
        raise _Broken(f"cannot be imported: {_place(name, error)}: {type(error).__name__}: {error}") from error
    if not isinstance(rows, tuple) or not rows or not all(isinstance(row, Task) for row in rows):
        raise _Broken("has no ROWS: it must define ROWS = (Task(...), ...), a tuple of tasks")
    return rows


def _place(name: str, error: Exception) -> str:
    """File and line of an error: the last line of the module itself that it passed through."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    spec = find_spec(name)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if spec and frame.filename == spec.origin]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "for a reason outside it"


TASKS: dict[str, Task] = walked(datasets.__path__, datasets.__name__)


def task_named(name: str) -> Task:
    """The task of that name.

    Raises:
        ConfigError: For an unknown name, with the nearest valid one.
    """
    if name not in TASKS:
        raise ConfigError([f"there is no task '{name}'.{did_you_mean(name, TASKS)}"])
    return TASKS[name]
