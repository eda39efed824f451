"""Effective context lengths from the losses by token of a grid's records, seed by seed."""

from types import SimpleNamespace

import numpy as np
import pytest

from ablations.measurements.effective_contexts import LOSS, TASK, effective_contexts
from lightning_modules.config import ConfigError
from lightning_modules.measures.effective_context import effective_contexts as of_group
from lightning_modules.tasks.scores.kept import pack
from lightning_modules.zero_shot.settings import Measurement

CONTEXTS = (8, 16, 32)
REACH = {"with": 32, "without": 16}  # more context takes a share of the perplexity away, up to here


def losses(model, context):
    noise = np.random.default_rng(0).uniform(-0.2, 0.2, 64)
    return (4.0 - 0.1 * np.log2(min(context, REACH[model])) + noise).astype(np.float16)


class Table:
    """What is asked of `Measurements`."""

    def __init__(self, weight=1, seeds=(0, 1), missing=()):
        self.cells, self.records = [], {}
        for model in REACH:
            for context in CONTEXTS:
                label = f"{model}, {context}"
                settings = Measurement(sequence_length=1, context=context - 1, lead=32)
                runs = [SimpleNamespace(id=f"{model} {seed}", seed=seed) for seed in seeds]
                asked = [SimpleNamespace(id=f"{label} {s}", seed=s, task=TASK, measuring=settings) for s in seeds]
                values = {"model": model, "context": context}
                self.cells.append(SimpleNamespace(label=label, values=values, runs=runs, zero_shot=asked))
                for run in asked:
                    examples = {LOSS: pack(losses(model, context)), "weight": pack(np.full(64, weight))}
                    self.records[run.id] = SimpleNamespace(outcome="done", examples=examples)
        for id in missing:
            del self.records[id]

    def get(self, id):
        return self.records.get(id)


def test_lengths_are_those_of_the_group_of_a_seed():
    found = effective_contexts(Table(), hardest=(0.5, 1.0))
    expected = of_group({m: {c: losses(m, c).astype(float) for c in CONTEXTS} for m in REACH}, 1.0)
    assert {name: one.length for name, one in expected.items()} == REACH
    for (seed, share), rows in found.groupby(["seed", "hardest"]):
        assert dict(zip(rows["model"], rows["length"], strict=True)) == REACH, (seed, share)
        assert dict(zip(rows["model"], rows["exhausted"], strict=True)) == {"with": True, "without": False}
    assert len(found) == 2 * 2 * 2


def test_a_seed_without_all_its_measurements_has_no_group():
    assert set(effective_contexts(Table(missing=["without, 16 1"]))["seed"]) == {0}
    assert effective_contexts(Table(seeds=(0,), missing=["with, 8 0"])).empty


def test_readings_of_longer_segments_are_left_out():
    table = Table()
    for cell in table.cells:
        for run in cell.zero_shot:
            run.measuring = Measurement(sequence_length=4)
    assert effective_contexts(table).empty


def test_losses_of_several_tokens_together_are_refused():
    with pytest.raises(ConfigError, match=r"measuring\.examples"):
        effective_contexts(Table(weight=16))
