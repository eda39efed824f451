"""Cells of the same runs, such as one layer of its own and one that is shared, are one sample."""

import pytest

from ablations.claims import judging
from ablations.claims.outcomes import OPEN, Reason
from ablations.core.estimates import linear
from ablations.core.moderation import moderated
from ablations.measurements import variances
from ablations.measurements.measurements import Measurements
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_grid

LOSSES = ([4.40, 4.43, 4.41], [4.51, 4.53, 4.58], [4.71, 4.73, 4.70])


def study(**changes):
    """Three cells, and one more that has the runs of the first."""
    cells = [make_cell({RATE: rate}, len(LOSSES[0])) for rate in (0.15, 0.4, 0.8)]
    records = {}
    for cell, side in zip(cells, LOSSES, strict=True):
        records |= losses(cell, side)
    twin = cells[0].model_copy(update={"label": "twin", "values": {RATE: 0.2}})
    return Measurements(make_grid(**changes), [*cells, twin], records)


def test_the_runs_of_two_cells_count_once_among_the_variances():
    measured = study()
    first, second, _, twin = measured.cells

    def rows(cell):
        return measured.of(cell, "heldout.loss")

    (groups,) = variances.samples(measured, measured.cells, rows).values()
    assert groups == {cell.label: values for cell, values in zip(measured.cells, LOSSES, strict=False)}

    difference = variances.differences(measured, rows)
    samples = {"a": LOSSES[0], "b": LOSSES[1], "c": LOSSES[2]}
    by_hand = linear([("a", 1.0), ("b", -1.0)], samples, moderated(samples).variances)
    for cell in (first, twin):
        estimate = difference(cell, second)[1]
        assert estimate is not None
        assert estimate.value == pytest.approx(by_hand.value)
        assert (estimate.error, estimate.df) == pytest.approx((by_hand.error, by_hand.df))
    assert difference(first, twin)[1] is None
    assert "all 3 cells" in variances.about(measured.grid, measured.cells)


@pytest.mark.parametrize("relation", [">", "~"])
def test_a_claim_about_two_cells_of_the_same_runs_is_not_tested(relation):
    claim = make_claim(a={RATE: 0.2}, b={RATE: 0.15}, relation=relation)
    (found,) = judging.verdicts(study(claims=[claim]))
    assert (found.outcome, found.reason, found.effect) == (OPEN, Reason.UNTESTABLE, None)
    assert "same runs" in found.sentence


def test_averages_over_tasks_of_the_same_pretrainings_are_samples_of_their_own():
    """Two ways to fine-tune share their pretrainings, whose runs an average names, and not their values."""
    measured = study()
    first, *_, twin = measured.cells

    def rows(cell):
        lower = 0.1 if cell is twin else 0.0
        return {seed: row._replace(value=row.value - lower) for seed, row in measured.of(cell, "heldout.loss").items()}

    assert len({*variances.names(measured.cells, rows).values()}) == 4
    estimate = variances.differences(measured, rows)(first, twin)[1]
    assert estimate is not None
    assert estimate.value == pytest.approx(0.1)
