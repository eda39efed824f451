"""What is read off the curve in a record."""

import math

import numpy as np
import pytest

from ablations.measurements.curves import crossing, curve, final_slope, geometric_mean, value_at
from tests.unit.synthetic import RATE, make_cell, make_record

METRIC = "heldout.loss"
(RUN,) = make_cell({RATE: 0.15}, 1).runs
TOKENS = np.arange(1, 13) * 1e6


def course(losses, tokens=TOKENS, bar=4.5):
    found = {METRIC: float(losses[-1]), "heldout.bigram_loss": bar}
    given = {"tokens": np.asarray(tokens).tolist(), METRIC: np.asarray(losses).tolist()}
    return make_record(RUN, float(losses[-1]), metrics=found, curve=given)


def falling(at, slope=0.6):
    """Losses that pass 4.5 nats at ``at`` tokens and fall by ``slope`` nats with every doubling."""
    return 4.5 - slope * np.log2(TOKENS / at)


def test_the_crossing_is_that_of_the_bigram_baseline_of_the_record():
    found = crossing(curve(course(falling(5.3e6)), METRIC))
    assert found == pytest.approx((5.3e6, 5e6, 6e6))
    lower = crossing(curve(course(falling(5.3e6), bar=4.2), METRIC))
    assert lower.at == pytest.approx(5.3e6 * math.sqrt(2))
    assert crossing(curve(course(falling(5.3e6)), METRIC, bar=4.2)) == pytest.approx(lower)


def test_a_run_that_never_passes_or_had_passed_has_one_side_alone():
    assert crossing(curve(course(falling(20e6)), METRIC)) == (None, pytest.approx(12e6), None)
    assert crossing(curve(course(falling(0.5e6)), METRIC)) == (None, None, pytest.approx(1e6))


@pytest.mark.parametrize(
    "record",
    [
        course(falling(5e6)).but(curve={}),
        course(falling(5e6)).but(metrics={METRIC: 4.0}),
        course(falling(5e6), tokens=TOKENS[::-1]),
        course(falling(5e6), tokens=TOKENS[:-1]),
        course([5.0], tokens=[1e6]),
    ],
    ids=["no curve", "no bar", "backwards", "unequal", "one point"],
)
def test_what_is_no_curve_has_no_crossing(record):
    assert curve(record, METRIC) is None


def test_points_before_any_token_are_left_out():
    record = course([9.0, *falling(5e6)], tokens=[0, *TOKENS])
    assert crossing(curve(record, METRIC)).at == pytest.approx(5e6)
    assert value_at(record, "tokens", 5e6, METRIC) == (pytest.approx(4.5), False)
    assert value_at(record, "tokens", 0.5e6, METRIC) is None


def test_the_final_slope_is_the_fall_over_the_last_doubling():
    assert final_slope(course(falling(5e6)), METRIC) == pytest.approx(0.6)
    assert final_slope(course(falling(5e6)[-4:], tokens=TOKENS[-4:]), METRIC) is None  # it begins after the half
    assert final_slope(course(falling(5e6)).but(curve={}), METRIC) is None


def test_a_mean_over_runs_of_which_one_has_no_crossing_is_none():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([2.0, None]) is None
    assert geometric_mean([]) is None
