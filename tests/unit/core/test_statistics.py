import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablations.core.statistics import mean_interval

numbers = st.integers(-400, 400).map(lambda k: k / 100)
samples = st.lists(numbers, min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1)


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
