"""Claims beyond "better" and "equal": hand-made seeds, references, null simulations, and records taken away."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ablations.claims import judging
from ablations.claims.families import families
from ablations.claims.margins import margin
from ablations.claims.outcomes import AGAINST, AS_CLAIMED, OPEN, SETTLED, WITHIN, Reason, Size
from ablations.claims.relations import RELATIONS
from ablations.claims.sample import Sample
from ablations.core.estimates import linear
from ablations.core.moderation import moderated
from ablations.measurements.measurements import Measurements
from tests.every import every
from tests.messages import names
from tests.unit.synthetic import RATE, losses, make_cell, make_claim, make_failure, make_grid

RATES = (0.15, 0.3, 0.4, 0.8)
CELLS = [make_cell({RATE: rate}, seeds=12) for rate in RATES]
IDS = {">": "better", "~": "equal"}
NOISE = np.random.default_rng(3).normal(0, 0.01, (4, 12))
SIDES = [{RATE: rate} for rate in RATES]


def asked(relation, count=4, **changes):
    """A claim of a relation about the first cells, losses; the published values go by letters."""
    two = RELATIONS[relation].sides[1] == 2
    which = {"a": SIDES[0], "b": SIDES[1]} if two else {"a": {}, "b": {}, "sides": SIDES[:count]}
    bounds = {"~": {"margin": 0.05}, "ratio": {"ratio": 1.01}}.get(relation, {})
    named = {"relation": relation, "id": IDS.get(relation, relation), "published": {}}
    return make_claim(**(named | which | bounds | changes))


def measured(means, spread=1.0, seeds=12):
    """Losses of the four cells: a mean each, and noise."""
    scale = spread if isinstance(spread, (tuple, list)) else (spread,) * 4
    return [
        [m + k * (NOISE[n, s] - NOISE[n, :seeds].mean()) for s in range(seeds)]
        for n, (m, k) in enumerate(zip(means, scale, strict=True))
    ]


def records_of(values):
    return {id: record for cell, row in zip(CELLS, values, strict=False) for id, record in losses(cell, row).items()}


def verdict(claim, values, *others, change=None):
    records = records_of(values) | (change or {})
    return judging.verdicts(Measurements(make_grid(axes={RATE: list(RATES)}, claims=[claim, *others]), CELLS, records))[
        0
    ]


# --- the numbers of a seed, and how they are read


@every(
    "relation, means, outcome",
    [
        ("ratio", (4.0, 4.2, 4.0, 4.0), AS_CLAIMED),  # 1.05 times as good
        ("ratio", (4.0, 4.01, 4.0, 4.0), AGAINST),  # better, and not by 1 %
        ("ratio", (4.0, 4.0404, 4.0, 4.0), OPEN),
        ("ordering", (4.0, 4.1, 4.2, 4.3), AS_CLAIMED),
        ("ordering", (4.0, 4.1, 4.1, 4.3), OPEN),
        ("ordering", (4.0, 4.2, 4.1, 4.3), AGAINST),  # one step of three, and tau is 2/3
        ("trend", (4.0, 4.1, 4.2, 4.3), AS_CLAIMED),
        ("trend", (4.3, 4.2, 4.1, 4.0), AGAINST),
        ("trend", (4.0, 4.5, 4.3, 4.4), OPEN),  # the slope is there, and so is a step back
        ("trend", (4.0, 4.0, 4.0, 4.0), OPEN),
        ("interaction", (4.0, 4.3, 4.0, 4.1), AS_CLAIMED),
        ("interaction", (4.0, 4.1, 4.0, 4.3), AGAINST),
        ("interaction", (4.0, 4.2, 4.4, 4.6), WITHIN),
    ],
)
def test_each_relation_has_three_outcomes(relation, means, outcome):
    found = verdict(asked(relation), measured(means))
    assert found.outcome == outcome
    assert found.sentence.startswith(outcome)
    assert ("smallest step is -" in found.sentence) is (relation == "ordering" and found.effect < 0)
    assert found.n == 12


@every("spreads, outcome", [((1, 20), AS_CLAIMED), ((20, 1), AGAINST), ((3, 3), OPEN)])
def test_spread_asks_which_side_depends_less_on_the_seed(spreads, outcome):
    values = [[4 + k * x for x in row] for k, row in zip(spreads, NOISE, strict=False)]
    found = verdict(asked("spread"), values)
    assert found.outcome == outcome
    far = [np.mean(np.abs(row - np.median(row))) for row in np.array(values)]
    assert found.effect == pytest.approx(far[1] - far[0])


def test_spread_is_the_test_of_brown_and_forsythe_with_unequal_variances():
    values = [4 + NOISE[0], 4 + 3 * NOISE[1]]
    found = verdict(asked("spread"), values)
    far = [np.abs(row - np.median(row)) for row in values]
    assert found.p == pytest.approx(stats.ttest_ind(*far, equal_var=False).pvalue, rel=0.01)  # half a degree less


def test_where_higher_is_better_orders_turn():
    values = measured((4.0, 4.1, 4.2, 4.3))
    for relation in ("ordering", "trend"):
        higher = asked(relation, metric="heldout.accuracy")  # exp(-loss / 3): the same order
        assert verdict(higher, values).outcome == AS_CLAIMED
        assert verdict(higher, values[::-1]).outcome == AGAINST


def test_an_interaction_is_the_difference_of_two_differences():
    values = np.array([mean + NOISE[0] for mean in (4.0, 4.3, 4.0, 4.1)])
    found = verdict(asked("interaction"), values)
    means = values.mean(axis=1)
    assert found.effect == pytest.approx((means[1] - means[0]) - (means[3] - means[2]))
    samples = dict(enumerate(values.tolist()))
    by_hand = linear(zip(range(4), (-1.0, 1.0, 1.0, -1.0), strict=True), samples, moderated(samples).variances)
    assert (found.seed_error, found.p) == (pytest.approx(by_hand.error), pytest.approx(by_hand.p))
    assert names(found.sentence, "masking rate 15 %", "30 %", "40 %", "80 %", "held-out loss")


def test_a_trend_is_the_slope_of_the_means():
    values = np.array(measured((4.0, 4.1, 4.2, 4.3)))
    found = verdict(asked("trend"), values)
    assert found.effect == pytest.approx(stats.linregress([1, 2, 3, 4], values.mean(axis=1)).slope)


def test_a_ratio_is_a_geometric_mean():
    values = np.array(measured((4.0, 4.2, 4.0, 4.0)))
    found = verdict(asked("ratio"), values)
    assert found.effect == pytest.approx(np.exp((np.log(values[1]) - np.log(values[0])).mean()))
    assert found.raw.low < found.effect < found.raw.high


def test_an_ordering_needs_every_step():
    values = np.array(measured((4.0, 4.1, 4.11, 4.3)))
    found = verdict(asked("ordering"), values)
    smallest = verdict(asked(">", a=SIDES[1], b=SIDES[2]), values)
    assert (found.p, found.effect) == (pytest.approx(smallest.p), pytest.approx(smallest.effect))


def test_an_order_of_four_with_two_equal_is_not_called_an_order():
    """What a tau with the right estimates would say half the time."""
    draws, wrong = np.random.default_rng(7), 0
    for _ in range(200):
        values = [draws.normal(mean, 0.05, 8) for mean in (4.0, 4.2, 4.2, 4.4)]
        wrong += judged(asked("ordering"), values)[0] < 0.05
    assert wrong <= 20  # 5 % of 200, and room for chance


def judged(claim, values, level=0.95):
    """The p value, the interval and the outcome of a claim about values of cells of one group."""
    rows = {f"cell {n}": tuple(map(float, row)) for n, row in enumerate(values)}
    relation = RELATIONS[claim.relation]
    estimates = relation.estimates(claim, Sample(tuple(rows), tuple(rows.values()), {0: rows}))
    ways, interval = relation.ways(claim, margin(claim), estimates), relation.interval(estimates, level)
    return relation.p(estimates, ways), interval, relation.decide(claim, interval, ways, margin(claim))


@pytest.mark.parametrize("relation", RELATIONS)
@given(data=st.data())
def test_the_interval_excludes_exactly_when_p_is_small(relation, data):
    claim = asked(relation)
    count = 4 if not claim.a else 2
    numbers = st.lists(st.integers(1, 60).map(lambda k: 4 + k / 10), min_size=6, max_size=6)
    rows = [data.draw(numbers) for _ in range(count)]
    level = data.draw(st.sampled_from([0.8, 0.95, 0.99]))
    p, interval, outcome = judged(claim, rows, level)
    if interval.low is None or math.isclose(p, 1 - level, rel_tol=1e-9):
        return
    assert interval.low <= interval.mean <= interval.high
    assert (outcome in SETTLED) == (p < 1 - level)


@pytest.mark.nightly
@every("n", [5, 10, 20])
@every("kind", ["normal", "failed runs"])
def test_equal_spreads_are_seldom_called_unequal(n, kind):
    draws, rejected, trials = np.random.default_rng(n), 0, 600
    for _ in range(trials):
        rows = draws.normal(0, 1, (2, n))
        if kind == "failed runs":
            rows -= 4 * (draws.random((2, n)) < 0.15)
        rejected += judged(asked("spread"), rows)[0] < 0.05
    assert rejected / trials < 0.075  # 5 % and three standard errors


# --- missing data


@pytest.mark.parametrize("relation", RELATIONS)
@given(gone=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 11))), failed=st.booleans())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_records_that_are_missing_never_replicate(relation, gone, failed):
    """Whatever is taken away: a verdict rests on runs that have all ended, and on enough of them, or is none."""
    claim, means = asked(relation), (4.0, 4.2, 4.3, 4.6) if relation != "~" else (4.0, 4.0, 4.0, 4.0)
    if relation == "interaction":
        means = (4.0, 4.4, 4.0, 4.1)
    records = records_of(measured(means, (1, 20, 20, 20) if relation == "spread" else 1.0))
    for cell, seed in gone:
        run = CELLS[cell].runs[seed]
        records.pop(run.id)
        if failed:
            records[run.id] = make_failure(run)
    count = max(2, len(claim.sides))
    left = [12 - sum(cell == n for cell, _ in gone) for n in range(count)]
    (found,) = judging.verdicts(Measurements(make_grid(axes={RATE: list(RATES)}, claims=[claim]), CELLS, records))
    assert found.n == min(left)
    assert list(map(len, found.runs)) == left
    assert found.computing.runs == sum(left)
    fewest, touched = RELATIONS[relation].fewest, any(cell < count for cell, _ in gone)
    if touched and (not failed or relation == "spread"):
        assert found.outcome == OPEN
        assert found.reason in (Reason.UNFINISHED, Reason.NO_RUN, Reason.LOST)
    elif min(left) < fewest:
        assert found.outcome == OPEN
    elif found.outcome == AS_CLAIMED:
        assert found.adjusted_p < 0.05
    assert "as claimed" not in found.sentence or found.outcome == AS_CLAIMED


@every(
    "size, means, outcome, found_size",
    [
        ("inside", (4.0, 4.03, 4, 4), AS_CLAIMED, Size.INSIDE),
        ("inside", (4.0, 4.10, 4, 4), AGAINST, Size.BEYOND),
        ("inside", (4.03, 4.00, 4, 4), AGAINST, Size.INSIDE),  # a little, and the other way
        ("inside", (4.0, 4.05, 4, 4), OPEN, Size.ASTRIDE),
        ("beyond", (4.0, 4.10, 4, 4), AS_CLAIMED, Size.BEYOND),
        ("beyond", (4.0, 4.03, 4, 4), AGAINST, Size.INSIDE),
        ("at_most", (4.0, 4.03, 4, 4), AS_CLAIMED, Size.INSIDE),
        ("at_most", (4.10, 4.0, 4, 4), AS_CLAIMED, Size.BEYOND),  # the other way
        ("at_most", (4.0, 4.10, 4, 4), AGAINST, Size.BEYOND),
        ("", (4.0, 4.03, 4, 4), AS_CLAIMED, Size.INSIDE),
    ],
)
def test_a_little_and_much_are_statements_about_size(size, means, outcome, found_size):
    found = verdict(asked(">", size=size, margin=0.05), measured(means))
    assert (found.outcome, found.size) == (outcome, found_size)


def test_what_diverged_is_spread_that_no_number_stands_for():
    lost = {CELLS[0].runs[11].id: make_failure(CELLS[0].runs[11])}
    found = verdict(asked("spread"), measured((4.0, 4.0, 4, 4), (1, 20, 1, 1)), change=lost)
    assert found.outcome == OPEN
    assert found.reason is Reason.LOST
    assert found.remarks.startswith("1 run diverged")


# --- families, costs, texts


def test_all_relations_are_one_family():
    every = [asked(relation) for relation in RELATIONS]
    found = judging.verdicts(
        Measurements(
            make_grid(axes={RATE: list(RATES)}, claims=every), CELLS, records_of(measured((4.0, 4.2, 4.3, 4.6)))
        )
    )
    assert {verdict.family for verdict in found} == {7}
    assert [v.adjusted_p for v in found] == pytest.approx(multipletests([v.p for v in found], method="holm")[1])


def test_mirrored_sides_are_one_test_and_ordered_ones_are_not():
    turned = asked("spread", id="other", a=SIDES[1], b=SIDES[0])
    assert family(asked("spread"), turned) == 1
    assert family(asked("ordering"), asked("ordering", sides=SIDES[::-1])) == 2
    assert family(asked("ratio"), asked("ratio", ratio=1.1)) == 2
    assert family(asked(">"), asked("~"), asked("~", margin=0.1), asked(">", size="inside")) == 4


def family(*claims):
    grid = make_grid(axes={RATE: list(RATES)}, claims=[claim.but(id=f"c{n}") for n, claim in enumerate(claims)])
    return len(families(grid.claims, grid, CELLS).tests)


@pytest.mark.slow
def test_what_has_no_noise_is_compared_as_it_is_and_is_no_test():
    fewer = {
        run.id: record.but(cost=record.cost | {"parameters": 1e6, "seconds": 60.0 + run.seed})
        for run, record in zip(CELLS[0].runs, losses(CELLS[0], [4.0] * 12).values(), strict=True)
    }
    fifth = asked("ratio", ratio=5.0, metric="cost.parameters")
    tenth = asked("ratio", ratio=10.0, metric="cost.parameters", id="ten")
    speed = asked("ratio", ratio=1.5, metric="cost.seconds", id="speed")
    grid = make_grid(axes={RATE: list(RATES)}, claims=[fifth, tenth, speed])
    found = judging.verdicts(Measurements(grid, CELLS, records_of(measured((4, 4.1, 4, 4))) | fewer))
    assert [v.outcome for v in found] == [AS_CLAIMED, AGAINST, AS_CLAIMED]
    assert found[0].effect == pytest.approx(5.123456)
    assert found[0].p is None
    assert {v.family for v in found} == {1}


def test_a_ratio_needs_positive_values():
    zero = {run.id: r.but(metrics={"heldout.loss": 0.0}) for run, r in zip(
        CELLS[0].runs, losses(CELLS[0], [4.0] * 12).values(), strict=True)}  # fmt: skip
    found = verdict(asked("ratio"), measured((4, 4.1, 4, 4)), change=zero)
    assert found.outcome == OPEN
    assert "a ratio needs values above 0, not 0" in found.remarks


def test_a_verdict_says_what_its_runs_took():
    found = verdict(asked("trend"), measured((4.0, 4.1, 4.2, 4.3)))
    assert (found.computing.runs, found.computing.seconds) == (48, pytest.approx(48 * 118.0))
    assert found.computing.flops == pytest.approx(48 * 3.1e14)
    again = verdict(asked("interaction", sides=[SIDES[0], SIDES[1], SIDES[1], SIDES[2]]), measured((4, 4.1, 4.2, 4)))
    assert again.computing.runs == 36  # a side that is there twice was trained once
