"""Relative effective context lengths of a grid's models, from measurements of `heldout_stream` at several contexts.

The length of a model depends on the group it is in (`measures.effective_context`), so no run has it by itself, and no
claim is about it: it is read off the losses by token that records of measurements keep. A group is the models of a
seed; cells of one training are one model at several contexts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablations.measurements.measurements import STREAM, Measurements
from ablations.schema.cell import Cell
from ablations.schema.run import Run
from lightning_modules.config import ConfigError
from lightning_modules.measures.effective_context import effective_contexts as of_group
from lightning_modules.tasks.scores.kept import unpack

TASK, LOSS = STREAM, f"{STREAM}.loss"
SHARES = (0.1, 0.5, 1.0)  # of the tokens, the hardest ones, as in Table 8


def effective_contexts(
    measured: Measurements, hardest: Sequence[float] = SHARES, threshold: float = 0.01
) -> pd.DataFrame:
    """The relative effective context length of each model, one row for each seed, share of tokens and model.

    Args:
        measured: Measurements whose cells read models at exact contexts: a segment of one position, a context, and a
            lead as long as the longest. Cells that do not are left out.
        hardest: Shares of the tokens that count.
        threshold: The smallest gain that counts.

    Returns:
        Columns ``seed``, ``hardest``, ``model`` (what its cells have in common), ``length`` in tokens, and
        ``exhausted``: whether it is the longest context of the grid, so that it may be longer. Empty as long as a seed
        lacks a measurement.

    Raises:
        ConfigError: For measurements that kept no losses by token: too many tokens were measured.
    """
    seeds: dict[int, dict[str, dict[int, np.ndarray]]] = {}
    wanted: set[tuple[str, int]] = set()
    for name, cell, run in _exact(measured.cells):
        assert run.measuring is not None
        context = (run.measuring.context or 0) + 1  # the token that predicts is part of it
        wanted.add((name, context))
        record = measured.get(run.id)
        if record is not None and record.outcome == "done":
            nats = unpack(record.examples[LOSS]).astype(float)
            if "weight" in record.examples and unpack(record.examples["weight"]).max() > 1:
                raise ConfigError([f"{cell.label} keeps losses of several tokens together: lower measuring.examples"])
            seeds.setdefault(run.seed, {}).setdefault(name, {})[context] = nats
    rows = []
    for seed, group in sorted(seeds.items()):
        if {(name, context) for name, losses in group.items() for context in losses} != wanted:
            continue
        for share in hardest:
            for name, found in of_group(group, share, threshold).items():
                rows.append((seed, share, name, found.length, found.exhausted))
    return pd.DataFrame(rows, columns=["seed", "hardest", "model", "length", "exhausted"])


def _exact(cells: Sequence[Cell]) -> Iterator[tuple[str, Cell, Run]]:
    """The measurements of exact contexts, and what their models are called: by what all cells of a training have."""
    exact = [(cell, [run for run in cell.zero_shot if _is_exact(run)]) for cell in cells]
    shared: dict[tuple[str, ...], dict[str, Any]] = {}
    for cell, runs in exact:
        if runs:
            common = shared.setdefault(_trainings(cell), dict(cell.values))
            for knob in [knob for knob, value in common.items() if cell.values.get(knob) != value]:
                del common[knob]
    for cell, runs in exact:
        for run in runs:
            yield ", ".join(map(str, shared[_trainings(cell)].values())) or cell.label, cell, run


def _is_exact(run: Run) -> bool:
    return run.task == TASK and run.measuring is not None and run.measuring.sequence_length == 1


def _trainings(cell: Cell) -> tuple[str, ...]:
    return tuple(run.id for run in cell.runs)
