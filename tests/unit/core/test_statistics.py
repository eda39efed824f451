import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from ablations.core.statistics import (
    holm,
    holm_levels,
    mean_interval,
    minimum_detectable_effect,
    paired,
    paired_power,
    seeds_needed,
)

numbers = st.integers(-400, 400).map(lambda k: k / 100)
samples = st.lists(numbers, min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1)
p_values = st.lists(st.floats(0, 0.1) | st.floats(0, 1), min_size=1, max_size=12)


def contrast_of(differences):
    return paired(dict(enumerate(differences)), dict.fromkeys(range(len(differences)), 0.0))


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
    assert contrast_of([0.0, 0.0, 0.0]).p == 1.0
    assert contrast_of([0.5, 0.5]).p == 0.0


@given(samples, samples)
def test_paired_p_is_scipys(a, b):
    n = min(len(a), len(b))
    if len({round(x - y, 9) for x, y in zip(a[:n], b[:n], strict=True)}) > 1:
        contrast = paired(dict(enumerate(a[:n])), dict(enumerate(b[:n])))
        assert contrast.p == pytest.approx(stats.ttest_rel(a[:n], b[:n]).pvalue, rel=1e-12, abs=1e-12)


@given(samples, st.floats(0.1, 2))
def test_two_tails_are_the_equivalence_test_of_statsmodels(values, margin):
    contrast, zeros = contrast_of(values), np.zeros(len(values))
    expected, (_, lower, _), (_, upper, _) = ttost_paired(np.asarray(values), zeros, -margin, margin)
    tails = contrast.tail(-margin), contrast.tail(margin, below=True)
    assert tails == pytest.approx((lower, upper), rel=1e-12, abs=1e-12)
    assert max(tails) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_only_common_seeds_are_paired():
    contrast = paired({0: 1.0, 1: 2.0, 5: 7.0}, {1: 1.5, 5: 6.0, 9: 3.0})
    assert contrast.seeds == (1, 5)
    assert contrast.differences == (0.5, 1.0)
    assert contrast.alone == (0, 9)
    assert paired({0: 1.0}, {1: 1.0}).n == 0


def test_a_rank_test_is_refused_below_six_pairs():
    assert contrast_of([1.0, 2.0, 3.0, 4.0, 5.0]).rank_p is None
    six = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert contrast_of(six).rank_p == pytest.approx(stats.wilcoxon(six).pvalue, abs=1e-12) == 2 / 2**6


@pytest.mark.slow
@settings(max_examples=20, deadline=None)  # statsmodels takes 70 ms a call
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


@given(st.integers(2, 40), st.floats(0.05, 2), st.sampled_from([0.05, 0.01]))
def test_power_is_that_of_statsmodels(n, effect, alpha):
    expected = TTestPower().power(effect, n, alpha)
    if np.isfinite(expected):
        assert paired_power(effect, 1.0, n, 1 - alpha) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 100])
def test_the_detectable_effect_has_the_asked_power(n):
    effect = minimum_detectable_effect(0.3, n, level=0.99)
    assert paired_power(effect, 0.3, n, 0.99) == pytest.approx(0.8, abs=1e-9)
    assert effect > minimum_detectable_effect(0.3, n, level=0.95) > minimum_detectable_effect(0.3, n + 1, level=0.95)


def test_the_detectable_effect_of_five_seeds_is_not_the_normal_one():
    assert minimum_detectable_effect(1.0, 5) == pytest.approx(
        TTestPower().solve_power(nobs=5, alpha=0.05, power=0.8), 1e-6
    )
    assert minimum_detectable_effect(1.0, 5) > 1.25 * (1.96 + 0.84) / 5**0.5


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("effect", [0.3, 0.7, 1.0, 1.682, 3.0, 40.0])
def test_seeds_needed_are_those_of_statsmodels(effect, power):
    needed = seeds_needed(effect, 1.0, 0.95, power)
    assert TTestPower().power(effect, needed, 0.05) >= power - 1e-9 or effect > 30  # NaN far out
    assert needed == 2 or TTestPower().power(effect, needed - 1, 0.05) < power
    if needed > 3:
        assert needed - 1 < TTestPower().solve_power(effect, alpha=0.05, power=power) <= needed + 1e-6


@given(st.floats(0.1, 4), st.sampled_from([0.9, 0.95, 0.99]), st.floats(0.3, 0.99))
@settings(max_examples=30, deadline=None)
def test_seeds_needed_are_the_fewest(effect, level, power):
    found = seeds_needed(effect, 1.0, level, power, most=60)
    enough = [n for n in range(2, 61) if paired_power(effect, 1.0, n, level) >= power]
    assert found == (enough[0] if enough else None)
    assert seeds_needed(-10 * effect, 10.0, level, power, most=60) == found


def test_seeds_needed_say_when_there_are_not_enough():
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(0.05, 1.0) is None  # 3,142
    assert seeds_needed(0.05, 1.0, most=4000) == 3142
    assert seeds_needed(0.1, 0.0) == 2
    with pytest.raises(ValueError, match="must be finite"):
        seeds_needed(float("nan"), 1.0)
    with pytest.raises(ValueError, match="sd >= 0"):
        seeds_needed(1.0, -1.0)


def test_seeds_needed_invert_the_detectable_effect():
    for n in (3, 5, 10, 50):
        effect = minimum_detectable_effect(0.2, n)
        assert seeds_needed(effect * 1.001, 0.2) == n
        assert seeds_needed(effect * 0.999, 0.2) == n + 1
