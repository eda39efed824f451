import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ablations.core.looks import Looks, decided, nominal_alpha, overall_alpha
from tests.depth import depth

ONE, TWO = Looks((5,)), Looks((4, 8))
p_value = st.floats(0, 0.1) | st.floats(0, 1)
families = st.lists(st.lists(p_value, min_size=0, max_size=2), min_size=1, max_size=9)


def test_two_equal_steps_have_pococks_constants():
    """Pocock 1977, table 1: 2.178 for 5 % and 2.772 for 1 %."""
    for alpha, bound in ((0.05, 2.178), (0.01, 2.772)):
        assert stats.norm.isf(nominal_alpha(alpha, TWO) / 2) == pytest.approx(bound, abs=5e-4)


def test_both_looks_together_err_as_asked():
    draws = np.random.default_rng(0)
    first, second = draws.normal(size=(2, 2_000_000))
    later = (first * np.sqrt(3) + second * np.sqrt(7)) / np.sqrt(10)
    bound = stats.norm.isf(nominal_alpha(0.05, Looks((3, 10))) / 2)
    assert np.mean(np.maximum(np.abs(first), np.abs(later)) > bound) == pytest.approx(0.05, abs=6e-4)


@given(st.floats(1e-6, 0.9), st.tuples(st.integers(2, 6), st.integers(7, 20)))
def test_nominal_and_overall_are_inverse(alpha, n):
    looks = Looks(n)
    nominal = nominal_alpha(alpha, looks)
    assert alpha / 2 <= nominal <= alpha
    assert overall_alpha(nominal, looks) == pytest.approx(alpha, rel=1e-9)


@given(st.lists(p_value, min_size=1, max_size=4))
@example([0.0625, 0.0625, 0.0625, 0.0125])
def test_one_look_is_holm(p):
    found, (rejected, adjusted, *_) = decided([[value] for value in p], ONE), multipletests(p, method="holm")
    assert [decision.p for decision in found] == pytest.approx(adjusted, rel=1e-12, abs=1e-15)
    for value, decided_by_holm, decision in zip(p, rejected, found, strict=True):
        assert decision.level >= 0.95 - 1e-12
        if abs(decision.p - 0.05) > 1e-9:
            assert decision.rejected == decided_by_holm
        if abs(value - (1 - decision.level)) > 1e-9:  # 1 - level is rounded
            assert decision.rejected == (value < 1 - decision.level)


@given(families)
def test_intervals_and_adjusted_p_say_what_the_procedure_says(family):
    for p, decision in zip(family, decided(family, TWO), strict=True):
        assert decision.look <= len(p)
        assert decision.level >= 0.95 - 1e-12
        shown = p[decision.look - 1] if decision.look else 1.0
        if abs(shown - (1 - decision.level)) > 1e-9:
            assert decision.rejected == (shown < 1 - decision.level)
        if abs(decision.p - 0.05) > 1e-9:
            assert decision.rejected == (decision.p < 0.05)


@given(families)
def test_what_the_first_look_decides_is_final(family):
    at_first = decided([p[:1] for p in family], TWO)
    for before, after in zip(at_first, decided(family, TWO), strict=True):
        if before.rejected:
            assert after == before


def test_a_claim_decided_at_the_first_look_leaves_its_share():
    assert not decided([[0.2, 0.02], [0.3, 0.4]], TWO)[0].rejected
    first, second, third = decided([[0.2, 0.02], [0.001, 0.9], [0.01]], TWO)
    assert (second.look, second.rejected) == (1, True)
    assert (third.look, third.rejected) == (1, True)
    assert (first.look, first.rejected) == (2, True)
    assert first.level == pytest.approx(1 - nominal_alpha(0.05, TWO))


def test_a_claim_that_was_not_measured_counts_and_is_not_decided():
    measured, absent = decided([[0.02], []], TWO)
    assert not measured.rejected
    assert (absent.look, absent.rejected, absent.p) == (0, False, 1.0)
    assert decided([[0.02]], TWO)[0].rejected


@pytest.mark.parametrize("size", [1, 5, 9])
def test_a_family_errs_as_rarely_as_asked(size):
    draws, families = np.random.default_rng(size), depth(1_000, 4_000)
    first = draws.normal(size=(families, size))
    both = np.stack([first, (first + draws.normal(size=first.shape)) / np.sqrt(2)], axis=-1)
    p = 2 * stats.norm.sf(np.abs(both))
    wrong = np.mean([any(decision.rejected for decision in decided(family, TWO)) for family in p.tolist()])
    chance = 3.5 * (0.05 * 0.95 / families) ** 0.5
    assert 0.042 - chance < wrong < 0.05 + chance


@pytest.mark.parametrize("n", [(), (8, 4), (4, 4), (2, 4, 8), (0, 4)])
def test_looks_that_are_none_are_refused(n):
    with pytest.raises(ValueError, match="growing"):
        Looks(n)
