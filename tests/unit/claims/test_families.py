"""Post hoc claims have a family of their own: none moves a number of a planned one, and none is easier to show."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablations.claims import judging
from ablations.claims.power import prospects
from ablations.claims.scoreboard import answers
from ablations.core.looks import Looks, decided, decided_in_families
from ablations.measurements.measurements import Measurements
from tests.depth import depth
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_grid

RATES = (0.05, 0.15, 0.3, 0.4, 0.8)
PAIRS = [(a, b) for n, a in enumerate(RATES) for b in RATES[:n]]
P = st.floats(0, 1)
TESTS = st.lists(st.lists(P, min_size=1, max_size=2), max_size=8)


def asked(pair, *, post_hoc=False, **changes):
    name = f"c{RATES.index(pair[0])}_{RATES.index(pair[1])}" + "_later" * post_hoc
    return make_claim(id=name, a={RATE: pair[0]}, b={RATE: pair[1]}, post_hoc=post_hoc, **changes)


def study(claims, seed, looks=(4, 8)):
    """A grid with these claims whose runs differ a little, or not, by chance."""
    rng, cells, records = np.random.default_rng(seed), [], {}
    for rate in RATES:
        cell = make_cell({RATE: rate}, seeds=8).but(looks=list(looks))
        cells.append(cell)
        records |= losses(cell, list(4 + rng.normal(0, 0.03) + rng.normal(0, 0.02, 8)))
    return Measurements(make_grid(axes={RATE: list(RATES)}, claims=claims, seeds=4, looks=looks), cells, records)


@pytest.mark.slow
@settings(max_examples=depth(100, 2_000))
@given(planned=TESTS, later=TESTS, two=st.booleans())
def test_post_hoc_tests_move_no_planned_decision_and_pay_for_all(planned, later, two):
    looks = Looks((4, 8) if two else (4,))
    p = {("planned", n): values[: len(looks.n)] for n, values in enumerate(planned)}
    more = p | {("later", n): values[: len(looks.n)] for n, values in enumerate(later)}
    found, every = decided_in_families(more, p, looks), decided(list(more.values()), looks)
    assert {key: found[key] for key in p} == dict(zip(p, decided(list(p.values()), looks), strict=True))
    assert [found[key] for key in more if key not in p] == every[len(p) :]


@pytest.mark.slow
@settings(max_examples=depth(8, 200), deadline=None)
@given(
    planned=st.lists(st.sampled_from(PAIRS), min_size=1, max_size=4, unique=True),
    later=st.lists(st.sampled_from(PAIRS), min_size=1, max_size=4, unique=True),
    seed=st.integers(0, 1_000),
    first=st.booleans(),
)
def test_a_claim_added_post_hoc_moves_no_number_of_a_planned_one(planned, later, seed, first):
    stated, added = [asked(pair) for pair in planned], [asked(pair, post_hoc=True) for pair in later]
    alone = judging.verdicts(study(stated, seed))
    both = judging.verdicts(study([*added, *stated] if first else [*stated, *added], seed))
    assert [verdict for verdict in both if not verdict.claim.post_hoc] == alone


def test_a_withdrawn_post_hoc_claim_counts_for_post_hoc_ones_alone():
    threat = {"kind": "other subject", "because": "other text", "withdrawn": True}
    later = [asked(PAIRS[1], post_hoc=True), asked(PAIRS[2], post_hoc=True, threat=threat)]
    found = judging.verdicts(study([asked(PAIRS[0]), *later], 1))
    assert [verdict.family for verdict in found] == [1, 3, 3]
    assert [verdict.test for verdict in found] == [0, 1, 2]


def test_a_withdrawn_planned_claim_is_not_revived_by_a_post_hoc_one():
    threat = {"kind": "other subject", "because": "other text", "withdrawn": True}
    records = study([asked((0.4, 0.15), threat=threat)], 3)
    again = study([asked((0.4, 0.15), threat=threat), asked((0.4, 0.15), post_hoc=True)], 3)
    assert judging.verdicts(again)[0] == judging.verdicts(records)[0]


def test_a_plan_shows_what_planned_claims_can_see_whatever_is_added():
    stated = [asked(PAIRS[0]), asked(PAIRS[1])]
    shown = []
    for more in ([], [asked(PAIRS[4], post_hoc=True)]):
        measured = study([*stated, *more], 5)
        told = prospects(measured.grid, "laptop", {"laptop": measured})
        shown.append([(one.claim.id, one.look, one.visible) for one in told if not one.claim.post_hoc])
    assert shown[0] == shown[1]


def test_the_board_corrects_planned_claims_for_planned_ones():
    def page(later):
        p = [0.01, 0.02, *[0.5] * later]
        rows = [
            {"claim": "mask15.r.40_gt_15_mnli", "asked": f"c{n}", "outcome": "as claimed", "p": x, "test": n, "n": 4,
             "post_hoc": n > 1, "sentence": "", "metric": "m", "effect": 1.0, "runs": ["r"],
             }
            for n, x in enumerate(p)
        ]  # fmt: skip
        return "g", "laptop", {"claims": rows}

    assert [a.survives for a in answers([page(0)], {"r"})] == [True, True]
    assert [a.survives for a in answers([page(20)], {"r"})] == [True, True, *[False] * 20]


def test_a_grid_of_post_hoc_claims_alone_corrects_for_these():
    found = judging.verdicts(study([asked(pair, post_hoc=True) for pair in PAIRS[:3]], 2))
    assert {verdict.family for verdict in found} == {3}
