"""Downstream tasks: data sets, how they are read and scored, and fine-tuning settings.

A data set of a known shape is one row of ``TASKS`` and a pin from ``python -m lightning_modules.pin task NAME``.

>>> from lightning_modules.tasks import TASKS
>>> TASKS["cola"].main
'matthews'

``loader`` (Lightning's data module) and ``measured_baselines`` are imported by name.
"""

from lightning_modules.tasks.pins import fingerprint
from lightning_modules.tasks.settings import Features, FineTuning
from lightning_modules.tasks.shapes.shape import Shape
from lightning_modules.tasks.table import TASKS, task_named
from lightning_modules.tasks.task import Task
from lightning_modules.tasks.work import expected_work

__all__ = ["TASKS", "Features", "FineTuning", "Shape", "Task", "expected_work", "fingerprint", "task_named"]
