"""The answer of a grid in one line."""

import pytest

from ablations.claims import judging
from ablations.claims.headline import headline
from ablations.claims.outcomes import AS_CLAIMED
from ablations.claims.verdict_text import effect_text
from ablations.measurements.measurements import Measurements
from tests.unit.synthetic import RATE, Kept, losses, make_cell, make_claim, make_grid, make_study

RATES = (0.15, 0.4)


def study(better=0.4, by=0.3):
    """Two rates of four seeds, one of which is better."""
    grid = make_grid(axes={RATE: list(RATES)}, published=[])
    cells = [make_cell({RATE: rate}, 4) for rate in RATES]
    records = {}
    for cell in cells:
        base = 4.0 if cell.values[RATE] == better else 4.0 + by
        records |= losses(cell, [base, base + 0.01, base + 0.02, base + 0.015])
    return grid, cells, records


def told(measured):
    verdicts = judging.verdicts(measured)
    return headline(measured, verdicts), verdicts[0]


@pytest.mark.parametrize(("better", "sides"), [(0.4, ("40 %", "15 %")), (0.15, ("15 %", "40 %"))])
def test_a_title_says_who_is_better_by_the_effect_of_the_verdict(better, sides, tmp_path):
    grid, cells, records = study(better)
    title, verdict = told(Measurements(grid, cells, Kept(records, tmp_path, cells, 5.0)))
    assert title.startswith(f"{sides[0]} beats {sides[1]} by {effect_text(verdict)}")
    assert f"{abs(verdict.effect):.1f}" in title


@pytest.mark.parametrize(
    ("bar", "says"),
    [(3.0, "neither is shown to be better than counts of neighbours"),
     (4.2, "15 % is not shown to be better than counts of neighbours")],
    ids=["both", "one"],
)  # fmt: skip
def test_at_the_floor_nobody_beats_anybody(bar, says, tmp_path):
    grid, cells, records = study()
    title, verdict = told(Measurements(grid, cells, Kept(records, tmp_path, cells, bar)))
    assert title == f"40 % leads 15 % by {effect_text(verdict)}; {says}"


def test_what_is_open_is_not_told_apart(tmp_path):
    grid, cells, records = study(by=0.001)
    title, verdict = told(Measurements(grid, cells, Kept(records, tmp_path, cells, 5.0)))
    assert title == f"40 % and 15 % are not distinguished: they differ by {effect_text(verdict)}"


def test_what_is_equal_within_the_margin_is_said_to_be_equal(tmp_path):
    """Also where the small difference is clear of zero."""
    _, cells, records = study(by=0.05)
    claim = make_claim(relation="~", margin=0.5)
    grid = make_grid(axes={RATE: list(RATES)}, published=[], claims=[claim])
    title, verdict = told(Measurements(grid, cells, Kept(records, tmp_path, cells, 5.0)))
    assert verdict.outcome == AS_CLAIMED
    assert title.startswith("40 % and 15 % are equal within 0.5")


def test_the_claim_about_the_best_cell_is_quoted():
    claims = [make_claim(id="mask15.80_gt_15", a={RATE: 0.8}), make_claim()]
    grid, cells, records = make_study(claims=claims)
    title, _ = told(Measurements(grid, cells, records))
    assert "15 %" in title
    claims = [make_claim(id="mask15.80_gt_40", a={RATE: 0.8}, b={RATE: 0.4}), make_claim()]
    title, first = told(Measurements(make_grid(claims=claims), cells, records))
    assert first.claim.id == "mask15.80_gt_40"
    assert title.startswith("15 % beats 40 %"), "15 % is the best cell; the first claim is not about it"


def test_without_a_judged_claim_there_is_no_answer():
    grid, cells, records = make_study(claims=[])
    assert told_nothing(grid, cells, records)
    grid, cells, _ = make_study()
    assert told_nothing(grid, cells, {})


def told_nothing(grid, cells, records):
    measured = Measurements(grid, cells, records)
    return headline(measured, judging.verdicts(measured)) == ""
