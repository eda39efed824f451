"""Tasks that a tiny model learns: texts, pairs, numbers, and those of each further shape."""

import pytest

from lightning_modules.tasks import TASKS, pins
from tests.toy import toy_task
from tests.toy_shapes import TOYS, reading_task


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    texts = toy_task("toy"), toy_task("toy_pairs", "pair"), toy_task("toy_numbers", labels=())
    for task in (*texts, *TOYS.values(), reading_task()):
        monkeypatch.setitem(TASKS, task.name, task)
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
