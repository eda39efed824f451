"""The table of what grids cost and see agrees with their plans, and says what is not available."""

import time

import pytest
from pytorch_lightning import Callback, Trainer

from ablations.claims.power import prospects
from ablations.core.store import Records
from ablations.measurements.measurements import Measurements
from ablations.pages import cost_table
from ablations.planning import grids
from ablations.planning.cost import RUN_START, costs, speed
from ablations.planning.plan import plan
from lightning_modules.places import results
from tests.contract.test_cell_identities import cells_of

pytestmark = pytest.mark.slow

NAMES = ("copy_distance", "masking_ratio", "sentence_objective", "batch_size")


@pytest.fixture(scope="module")
def snapshot():
    return Records(results()).snapshot()


@pytest.fixture(scope="module")
def found(snapshot):
    with pytest.MonkeyPatch.context() as patch:
        known = grids.available()
        patch.setattr(grids, "available", lambda: {name: known[name] for name in NAMES})
        return {(row.grid, row.scale): row for row in cost_table.rows(snapshot)}


def test_every_grid_has_a_row_at_each_scale(found):
    assert list(found) == [(name, scale) for name in NAMES for scale in ("laptop", "gpu")]
    assert len(cost_table.sheet(list(found.values())).rows) == len(found)


def test_runs_and_what_is_seen_are_those_of_the_plan(found, snapshot):
    row, made = found["masking_ratio", "laptop"], plan(grids.read("masking_ratio"), "laptop", records=snapshot, look=1)
    assert (row.runs, row.done, row.searches) == (len(made.runs), len(made.runs), 0)
    assert row.flops == sum(made.costs[run.id].flops for run in made.runs)
    measured = Measurements(made.grid, made.cells, snapshot)
    told = prospects(made.grid, "laptop", {"laptop": measured})
    seen = {one.claim.id: one.visible for one in told if one.look == 1 and one.claim.metric == "heldout.loss"}
    smallest = min(seen, key=lambda claim: seen[claim] or 0.0)
    assert any(smallest in text and "noise" not in text for text in row.sees)


def test_searches_and_trunks_are_charged(found):
    assert found["batch_size", "laptop"].searches == 6
    assert found["batch_size", "laptop"].runs == 6 + 12
    trunked, larger = (found["sentence_objective", scale] for scale in ("laptop", "gpu"))
    assert trunked.trunk_hours > 0
    assert larger.hours > 10 * trunked.hours
    assert any("noise of laptop" in text for text in larger.sees)


def test_a_trunk_is_charged_once(found, snapshot):
    """Also where the plan makes it, as a run of no cell."""
    row, made = (
        found["sentence_objective", "laptop"],
        plan(grids.read("sentence_objective"), "laptop", records=snapshot),
    )
    assert {trunk.id for trunk in made.trunks} <= made.costs.keys()
    assert row.flops == pytest.approx(sum(cost.flops for cost in made.costs.values()))


def test_a_grid_without_the_scale_and_claims_without_a_test_say_so(found):
    lacking = found["copy_distance", "gpu"]
    assert lacking.runs is None
    assert "mechanism" in lacking.missing
    sheet = cost_table.sheet(list(found.values()))
    assert any(row[:2] == ["copy_distance", "gpu"] and "mechanism" in str(row[-1]) for row in sheet.rows)
    assert all(row.missing for row in found.values() if row.closed)


def test_a_smoke_plan_is_short_in_every_grid():
    """At what was measured: 5 ms of a core a step with 48 thousand parameters, 15 GFLOP a second with 100 thousand."""
    long = []
    for name in grids.available():
        if "smoke" in grids.read(name).scales:
            runs = {run.id: run for cell in cells_of(name)["smoke"] for run in (*cell.work, *cell.awaited)}
            every = {one.id: one for run in runs.values() for one in run.lineage}
            charged = costs(list(every.values())).values()
            tokens = sum(cost.tokens for cost in charged)
            seconds = sum(RUN_START + max(5e-3 * cost.steps, cost.flops / 15e9) for cost in charged)
            long += [(name, tokens, seconds)] if tokens > 4e6 or seconds > 120 else []
    assert not long


class Clock(Callback):
    """Seconds of a core until the end of each step."""

    def __init__(self):
        self.ends = []

    def on_train_batch_end(self, *_):
        self.ends.append(time.process_time())


def test_no_speed_is_assumed_that_is_a_hundred_times_the_real_one(tiny):
    clock = Clock()
    trainer = Trainer(
        max_steps=30, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[clock],
    )  # fmt: skip
    small = tiny.but(**{"training.steps": 30, "training.batch_size": 2})
    trainer.fit(small.build(seed=0), small.data_module(seed=0))
    step = (clock.ends[-1] - clock.ends[9]) / 20
    assert speed({}, [small], "cpu")[0] < 100 * small.flops_per_step() / step
