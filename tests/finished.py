"""Results of grids that were never trained: a record of every run, with made-up numbers, and the pages from them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

import numpy as np

from ablations.core.store import Records
from ablations.pages.publishing import republish
from ablations.planning import grids
from ablations.planning.plan import Plan, Request, plan
from ablations.schema.run import Run
from lightning_modules.tasks import TASKS
from lightning_modules.zero_shot.table import ZERO_SHOT
from tests.unit.synthetic import make_record

SHARED = ("masking_ratio", "transfer", "embedding_size", "model_depth")  # of the fixture `finished_results`


def records(folder: Path, *names: str, scale: str = "laptop", **request: Unpack[Request]) -> Records:
    """Writes the records of grids at a scale, searches included; losses between 4 and 5 nats.

    ``request`` is what `plan` takes.
    """
    kept, draws = Records(folder), np.random.default_rng(0)
    for grid in map(grids.read, names):
        while trials := _open_trials(plan(grid, scale, records=kept, **request), kept):  # a search may go on
            _put(kept, trials, draws)
        for cell in plan(grid, scale, records=kept, **request).cells:
            _put(kept, cell.work, draws)
    return kept


def results(folder: Path, *names: str, scale: str = "laptop") -> Path:
    """The folder with the records and pages of grids."""
    records(folder, *names, scale=scale)
    republish(folder)
    return folder


def _open_trials(planned: Plan, kept: Records) -> list[Run]:
    trials = (run for cell in planned.cells for trial in cell.search for run in trial.work)
    return [run for run in trials if kept.get(run.id) is None]


def _put(kept: Records, runs: Iterable[Run], draws: np.random.Generator) -> None:
    loss = draws.uniform(4, 5)
    for run in runs:
        noise = draws.normal(0, 0.02)
        given = {"kind": run.kind, "config": run.to_dict()}
        if run.kind == "pretrain":
            depth = run.system.model.num_layers
            given["layers"] = {"distance": [3.0] * depth, "angle": [30.0] * depth}
            if run.system.evaluation.pairs:
                told = {f"heldout.{pairs}_accuracy": 0.6 + noise for pairs in ("nsp", "sop")}
                given["metrics"] = make_record(run, loss + noise).metrics | told
        else:
            main = (TASKS.get(run.task) or ZERO_SHOT[run.task]).main
            given |= {"metrics": {f"{run.task}.{main}": 0.6 + noise}, "curve": {}}
        kept.put(make_record(run, loss + noise, **given))
