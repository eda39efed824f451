import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestIndPower

from ablations.core.power import detectable, equality_power, power


@given(st.integers(2, 40), st.floats(0.05, 2), st.sampled_from([0.05, 0.003]))
def test_power_is_that_of_statsmodels(n, effect, alpha):
    expected = TTestIndPower().power(effect, n, alpha)
    if np.isfinite(expected):
        found = power(effect, math.sqrt(2 / n), 2 * n - 2, 1 - alpha)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("df", [1.0, 2.0, 5.5, 70.0, math.inf])
@pytest.mark.parametrize("level", [0.95, 0.997, 0.9999])
def test_the_detectable_effect_has_the_asked_power(df, level):
    effect = detectable(0.3, df, level)
    assert power(effect, 0.3, df, level) == pytest.approx(0.8, abs=1e-9)
    assert effect > detectable(0.3, df, 0.9)


@pytest.mark.parametrize(
    ("margin", "error", "df", "level"), [(0.02, 0.0045, 14, 0.997), (0.02, 0.01, 6, 0.9), (1, 0.3, math.inf, 0.95)]
)
def test_equality_is_shown_as_often_as_said(margin, error, df, level):
    draws, count = np.random.default_rng(0), 400_000
    errors = error * (1.0 if math.isinf(df) else np.sqrt(draws.chisquare(df, count) / df))
    half = stats.t.ppf((1 + level) / 2, df) * errors
    shown = np.mean(np.abs(draws.normal(0, error, count)) + half < margin)
    assert equality_power(margin, error, df, level) == pytest.approx(shown, abs=0.003)


def test_equality_within_the_reach_of_the_noise_is_never_shown():
    assert equality_power(0.02, 0.02, math.inf) == 0.0
    assert equality_power(0.02, 0.0, 5) == 1.0
