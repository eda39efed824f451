"""How a verdict moves with the trials of searches: by each setting, as chosen, and never where trials tell nothing."""

import pytest

from ablations.claims import judging
from ablations.claims.contrasts import collect
from ablations.claims.outcomes import Direction
from ablations.claims.rates import moves
from ablations.measurements.measurements import Measurements
from ablations.pages import rate_table
from tests.unit.claims.test_reasons import searched
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_grid

LR = "optimizer.peak_lr"
LOW, HIGH = [4.40, 4.42, 4.41, 4.43, 4.405], [4.51, 4.53, 4.52, 4.505, 4.525]


def study(by_rate, *, plateau=False, **claim):
    """Two cells, 40 % ahead; their trials ended at these losses: of 40 %, of 15 %."""
    cells = [make_cell({RATE: rate}) for rate in (0.4, 0.15)]
    records = losses(cells[0], LOW) | losses(cells[1], HIGH)
    chosen = [min(of_cell, key=of_cell.get) for of_cell in by_rate]
    cells = [searched(cell, one, rates, records) for cell, one, rates in zip(cells, chosen, by_rate, strict=True)]
    if plateau:
        for cell in cells:
            for run in cell.search[0].runs:
                records[run.id] = records[run.id].but(metrics=records[run.id].metrics | {"heldout.plateau": True})
    search = {"axes": {LR: [1e-3, 3e-3]}, "metric": "heldout.loss"}
    return Measurements(make_grid(claims=[make_claim(**claim)], search=search), cells, records)


def moved(measured):
    claim = measured.grid.claims[0]
    return moves(claim, collect(measured, claim), measured)


def test_each_setting_and_the_choice_of_each_side_have_an_effect():
    measured = study([{1e-3: 4.6, 3e-3: 4.2}, {1e-3: 4.4, 3e-3: 4.5}])
    found = [(dict(one.setting), round(one.interval.mean or 0, 6), one.direction) for one in moved(measured)]
    assert found == [
        ({}, 0.2, Direction.POSITIVE),
        ({LR: 1e-3}, -0.2, Direction.NEGATIVE),
        ({LR: 3e-3}, 0.3, Direction.POSITIVE),
    ]
    assert all(one.interval.half for one in moved(measured))


def test_what_one_side_alone_tried_is_compared_by_choice_only():
    measured = study([{1e-3: 4.6, 3e-3: 4.5, 9e-3: 4.2}, {1e-3: 4.7, 3e-3: 4.6}])
    assert [dict(one.setting) for one in moved(measured)] == [{}, {LR: 1e-3}, {LR: 3e-3}]


@pytest.mark.parametrize(
    "claim", [{"relation": "spread"}, {"against": "heldout.bigram_loss", "b": {}}, {"metric": "probes.agreement"}]
)
def test_trials_that_tell_nothing_of_a_claim_have_no_row(claim):
    measured = study([{1e-3: 4.6, 3e-3: 4.2}, {1e-3: 4.7, 3e-3: 4.5}], **claim)
    assert not moved(measured)
    assert rate_table.sheets(measured, judging.verdicts(measured)) is None


@pytest.mark.parametrize(
    ("of_15", "said"),
    [
        ({1e-3: 4.8, 3e-3: 4.7}, "the same direction in all"),
        ({1e-3: 4.1, 3e-3: 4.7}, "the opposite: each side as it chose; peak_lr 0.001"),
        ({1e-3: 4.595, 3e-3: 4.7}, "the same direction in some, the opposite within noise in others"),
    ],
)
def test_the_table_says_whether_trials_agree_with_the_verdict(of_15, said):
    measured = study([{1e-3: 4.6, 3e-3: 4.2}, of_15])
    verdicts = judging.verdicts(measured)
    reading, everything, trace = rate_table.sheets(measured, verdicts)
    assert reading.rows[0][-1] == everything.rows[0][-1] == said
    assert everything.rows[0][1] == verdicts[0].effect
    assert len(trace["trials"][0]["sides"]) == 2
