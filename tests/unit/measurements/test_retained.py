"""What smaller models retain of the gain of the whole one: which cells are compared, and the interval of a ratio."""

import numpy as np
import pytest

from ablations.measurements.measurements import Measurements
from ablations.measurements.summaries import summarise
from ablations.pages import retained_table
from ablations.pages.retained_table import is_smaller, ratio, retained, whole_of
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.schema.record import Record
from lightning_modules.finetuning.weight_pruning import matrices, removed


@pytest.mark.parametrize(
    ("grid", "whole", "without"),
    [
        ("head_pruning", "share=0.0, order=importance", []),
        ("lottery_tickets", "share=0.0, task mask", ["share=0.0, pretraining mask, twice as long"]),
        ("small_models", "BERT", ["ALBERT"]),
        ("distillation", "teacher", []),
        ("pretraining_gain", None, ["fine-tuned", "from scratch"]),
    ],
)
def test_a_smaller_model_is_compared_with_the_one_that_it_was_made_from(grid, whole, without):
    cells = plan(grids.read(grid), "laptop").cells
    smaller = [cell for cell in cells if is_smaller(cell)]
    assert {cell.label for cell in cells} - {cell.label for cell in smaller} == {whole, *without} - {None}
    for cell in smaller:  # of those that are trained twice as long, the one that is too
        longer = [label for label in without if label.endswith("twice as long") and "twice as long" in cell.label]
        assert [whole_of(cells, cell).label] == (longer or [whole])


def scored(cells, scores, simple=0.5):
    records = {}
    for cell in cells:
        for run in cell.work:
            metrics = {"heldout.loss": 3.0}
            if run.task:
                metrics = {"bigram_shift.accuracy": scores[cell.label] + 0.01 * (run.seed % 2)}
                metrics |= {"bigram_shift.accuracy.tfidf": simple, "bigram_shift.accuracy.majority": 0.4}
            cost = {"parameters": 20_000.0, "tokens": 1.0, "flops": 1.0, "seconds": 1.0}
            records[run.id] = Record(
                id=run.id, kind=run.kind, config=run.to_dict(), outcome="done", metrics=metrics, cost=cost
            )
    return records


@pytest.mark.parametrize(("simple", "share"), [(0.5, 0.5), (0.75, None)])
def test_shares_are_of_a_gain_that_is_clear_of_nothing(simple, share):
    planned = plan(grids.read("lottery_tickets"), "smoke", seeds=4)
    scores = {cell.label: 0.6 for cell in planned.cells} | {planned.cells[0].label: 0.7}
    known = Measurements(planned.grid, planned.cells, scored(planned.cells, scores, simple))
    rows = list(retained(known))
    assert len(rows) == len([cell for cell in planned.cells if is_smaller(cell)])
    assert all(row.method != "majority class" and row.level == simple for row in rows)
    if share is None:
        assert all(row.share is None for row in rows)
    else:
        assert rows[0].share.mean == pytest.approx(0.105 / 0.205)
        assert rows[0].share.low < rows[0].share.mean < rows[0].share.high
    told = [row[-1] for row in retained_table.sheets(known)[0].rows]
    assert (set(told) == {retained_table.NOTHING}) == (share is None)


def test_of_one_seed_nothing_is_said():
    planned = plan(grids.read("lottery_tickets"), "smoke", seeds=1)
    known = Measurements(planned.grid, planned.cells, scored(planned.cells, {c.label: 0.6 for c in planned.cells}))
    assert {row[-1] for row in retained_table.sheets(known)[0].rows} == {"n/a (n = 1)"}


def test_no_run_no_table():
    planned = plan(grids.read("lottery_tickets"), "smoke")
    assert retained_table.sheets(Measurements(planned.grid, planned.cells, {})) is None


def test_the_interval_of_a_ratio_holds_it_as_often_as_it_says():
    draw, hits = np.random.default_rng(0), 0
    for _ in range(2000):
        shared = draw.normal(0, 0.1, 4)
        b, a = 1.0 + shared + draw.normal(0, 0.1, 4), 0.6 + shared + draw.normal(0, 0.1, 4)
        found = ratio(a, b)
        hits += found.low <= 0.6 <= found.high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)
    same = ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    assert (same.low, same.mean, same.high) == pytest.approx((0.5, 0.5, 0.5))


def test_pages_show_the_parameters_that_are_left():
    for grid in ("head_pruning", "lottery_tickets"):
        planned = plan(grids.read(grid), "smoke")
        known = Measurements(planned.grid, planned.cells, scored(planned.cells, {c.label: 0.6 for c in planned.cells}))
        for item in summarise(known):
            tuning = item.cell.finetunings[0].finetuning
            gone = removed(item.cell.system, tuning)
            assert item.costs["parameters"] == 20_000 - gone
            share = item.cell.values[f"finetuning.{'head' if grid == 'head_pruning' else 'weight'}_pruning.share"]
            assert (gone > 0) == (share > 0)
            if grid == "lottery_tickets":
                model = item.cell.system.model.build(item.cell.system.data.tokenizer.vocab_size)
                assert gone == round(share * sum(w.numel() for w in matrices(model).values()))
