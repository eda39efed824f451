"""Crossings and aligned losses of curves whose form is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablations.core.crossing import aligned, crossings, is_quality, is_speed, left_by_offset, nearest, values_at

TOKENS = np.arange(1, 13) * 1e6
X = np.log(TOKENS)
BAR = 4.5


def straight(crossing, slope=0.6, x=X):
    """A curve that falls by as much with every e-fold of tokens, as the interpolation has it."""
    return BAR - slope * (x - np.log(crossing))


def bent(crossing, x=X, steep=0.75, bend=0.4):
    return BAR - steep / bend * (1 - np.exp(-bend * (x - np.log(crossing))))


@given(st.floats(1.01e6, 11.9e6), st.floats(0.05, 3))
def test_the_crossing_of_a_straight_curve_is_exact_and_lies_between_its_neighbours(crossing, slope):
    found = crossings(X, straight(crossing, slope), BAR)
    assert np.exp(found.at) == pytest.approx(crossing)
    low, high = np.exp(found.low), np.exp(found.high)
    assert low <= crossing * (1 + 1e-9)
    assert crossing <= high * (1 + 1e-9)
    assert high - low == pytest.approx(1e6)


def test_the_first_passage_counts_and_a_point_on_the_bar_is_the_crossing():
    losses = np.array([6.0, 4.5, 4.7, 4.2])
    found = crossings(X[:4], losses, BAR)
    assert (found.at, found.low, found.high) == (X[1], X[0], X[1])


def test_a_curve_that_never_passes_or_had_passed_before_is_censored():
    at, low, high = crossings(X, np.stack([straight(20e6), straight(0.5e6), straight(5e6)]), BAR)
    assert np.isnan(at).tolist() == [True, True, False]
    assert (low[0], high[0]) == (X[-1], np.inf)
    assert (low[1], high[1]) == (-np.inf, X[0])
    assert np.isnan(aligned(X, np.stack([straight(20e6), straight(5e6)]), BAR)).all()


def test_values_lie_on_the_lines_between_points_and_nowhere_else():
    losses = np.stack([straight(3e6), straight(5e6)])
    places = np.log(np.array([2.5e6, 12e6]))
    assert values_at(X, losses, places) == pytest.approx([straight(3e6, x=places)[0], straight(5e6, x=places)[1]])
    assert np.isnan(values_at(X, losses, np.log(np.array([0.99e6, 12.01e6])))).all()
    assert np.isnan(values_at(X, losses, np.full(2, np.nan))).all()


@given(st.floats(1e-6, 1e6), st.floats(2e6, 4e6), st.floats(4e6, 8e6))
def test_another_unit_of_tokens_changes_no_aligned_value(unit, fast, slow):
    curves, moved = np.stack([bent(fast), bent(slow)]), X + np.log(unit)
    assert aligned(moved, curves, BAR) == pytest.approx(aligned(X, curves, BAR))
    assert crossings(moved, curves, BAR).at == pytest.approx(crossings(X, curves, BAR).at + np.log(unit))


@given(st.floats(1.3e6, 10e6), st.floats(1.0, 4.0))
def test_a_stretch_of_time_alone_leaves_nothing_but_the_error_of_interpolation(crossing, stretch):
    slow = min(crossing * stretch, 11e6)
    fast, behind = aligned(X, np.stack([bent(crossing), bent(slow)]), BAR)
    first = int(np.searchsorted(TOKENS, crossing)) - 1  # the widest gap between points that is used
    gap, curvature = X[first + 1] - X[first], 0.75 * 0.4 * np.exp(-0.4 * (X[first] - np.log(slow)))
    assert abs(behind - fast) <= 4 * gap**2 / 8 * curvature  # of two crossings and two values
    assert bent(slow)[-1] - bent(crossing)[-1] >= -1e-12


def test_an_offset_is_a_stretch_where_the_curve_is_straight_and_is_not_where_it_bends():
    offsets, weights = np.array([0.0, 0.2]), np.array([-1.0, 1.0])
    assert left_by_offset(X, straight(3e6)[None], offsets, weights, BAR) == pytest.approx(0.0, abs=1e-12)
    left = left_by_offset(X, bent(3e6)[None], offsets, weights, BAR)
    fast, slow = aligned(X, np.stack([bent(3e6), bent(3e6) + 0.2]), BAR)
    assert left == pytest.approx(slow - fast)
    assert 0.03 < left < 0.2
    assert np.isnan(left_by_offset(X, bent(3e6)[None], np.array([0.0, 2.0]), weights, BAR))


def test_the_least_that_forms_leave_is_taken_in_the_direction_of_the_effect():
    assert nearest(np.array([0.03, 0.05]), 0.2) == 0.03
    assert nearest(np.array([-0.03, -0.05]), -0.2) == -0.03
    assert nearest(np.array([0.03, -0.01]), 0.2) == -0.01  # nothing is left that speed could be told from
    assert nearest(np.array([np.nan, 0.05]), 0.2) == 0.05


@pytest.mark.parametrize(
    ("low", "high", "effect", "left", "quality", "speed"),
    [
        (0.01, 0.045, 0.2, 0.06, True, True),  # the caller asks for quality first
        (-0.03, 0.03, 0.2, 0.06, False, True),
        (-0.03, 0.03, 0.2, 0.02, False, False),  # an offset would leave as little
        (-0.03, 0.03, 0.2, np.nan, False, False),
        (-0.03, 0.06, 0.2, 0.08, False, False),  # more than a quarter
        (-0.015, 0.015, 0.04, 0.018, False, True),  # the margin is wider than a quarter
        (-0.06, -0.01, 0.2, 0.05, False, False),  # on the other side
        (-0.04, -0.01, 0.2, 0.05, False, True),
    ],
)
def test_classes_follow_from_the_interval_whichever_side_is_better(low, high, effect, left, quality, speed):
    assert (is_quality(low, high, effect), is_speed(low, high, effect, left, 0.02)) == (quality, speed)
    turned = (-high, -low, -effect, -left)
    assert (is_quality(*turned[:3]), is_speed(*turned, 0.02)) == (quality, speed)
