import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ablations.core.statistics import holm, holm_levels, mean_interval
from tests.depth import depth

numbers = st.integers(-400, 400).map(lambda k: k / 100)
samples = st.lists(numbers, min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1)
p_values = st.lists(st.floats(0, 0.1) | st.floats(0, 1), min_size=1, max_size=12)


@given(samples, st.sampled_from([0.8, 0.95, 0.99]))
def test_interval_is_scipys(values, level):
    interval = mean_interval(values, level)
    low, high = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-12, abs=1e-12)
    assert interval.n == len(values)


def test_one_value_has_a_mean_and_no_interval():
    interval = mean_interval([2.5])
    assert (interval.mean, interval.low, interval.high, interval.half, interval.n) == (2.5, None, None, None, 1)
    assert mean_interval([]).mean is None


def test_equal_values_have_an_interval_of_no_width():
    interval = mean_interval([0.1 + 0.2, 0.3, 0.3])
    assert interval.half == 0.0


@pytest.mark.slow  # statsmodels takes its time to load
@settings(max_examples=depth(10, 300))
@given(p_values)
def test_holm_is_that_of_statsmodels(p):
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1], rel=1e-12, abs=1e-15)


@given(p_values)
def test_levels_decide_exactly_as_holm_does(p):
    for value, adjusted, level in zip(p, holm(p), holm_levels(p), strict=True):
        assert level >= 0.95 - 1e-12
        if abs(adjusted - 0.05) > 1e-9:
            assert (value < 1 - level) == (adjusted < 0.05)


def test_levels_step_down_until_the_first_failure():
    assert holm_levels([0.012, 0.04, 0.001, 0.03]) == pytest.approx([1 - 0.05 / 3, 0.975, 1 - 0.05 / 4, 0.975])
    assert holm_levels([0.001, 0.002]) == pytest.approx([0.975, 0.95])
