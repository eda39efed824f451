"""Trainings that take no time."""

import pytest

from lightning_modules import cached
from lightning_modules import pretraining as fitting
from lightning_modules.finetuning import run as tuning
from lightning_modules.tasks import TASKS, pins
from lightning_modules.training.callbacks import CHECKPOINT, Fitted, Progress
from lightning_modules.training.weights import WEIGHTS
from tests.toy import toy_task
from tests.unit.run_graphs import RATE


@pytest.fixture
def trainings(monkeypatch):
    """Trainings that take no time: a list of what was made, and a function that may raise in its place."""
    made, obstacle = [], {"": lambda run: None}

    def fit(system, seed, folder, *, start=None, on_progress, **_):
        on_progress(Progress(step=4, steps=4, loss=4.0, tokens_per_second=100.0))  # no later one is left out
        run = ("pretrain", system.model.num_layers, system.get(RATE), seed)
        made.append(run)
        obstacle[""](run)
        assert (start is None) == (system.ancestor() is None)
        before = start.read_text() if start else ""
        made_of = f"{before}{system.model.num_layers} layers, ".encode()
        cached.write(folder / WEIGHTS, lambda file: file.write(made_of))
        (folder / CHECKPOINT).touch()
        loss = 4.0 + system.get(RATE) + seed / 10
        return Fitted(metrics={"heldout.loss": loss}, cost={"flops": 1.0, "seconds": 1.0})

    def tune(what, folder, **_):
        run = ("finetune", what.task, what.system.get(RATE), what.seed)
        made.append(run)
        obstacle[""](run)
        return Fitted(metrics={"toy.accuracy": float(len(what.weights.read_text()))})

    monkeypatch.setattr(fitting, "fit", fit)
    monkeypatch.setattr(tuning, "finetune", tune)
    monkeypatch.setitem(TASKS, "toy", toy_task("toy"))
    monkeypatch.setattr(pins.Pins, "pinned", lambda _: {})
    return made, obstacle
