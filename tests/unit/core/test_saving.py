"""The saving in labels, read off a curve."""

import numpy as np
import pytest

from ablations.pages.saving_table import saving

LABELS = [100, 1_000, 10_000]


def curves(*means, seeds=4, noise=0.0):
    return np.array(means) + noise * np.random.default_rng(0).normal(size=(seeds, len(means)))


def test_a_score_between_two_numbers_is_read_on_a_line_over_the_logarithm():
    found = saving(LABELS, curves(0.6, 0.7, 0.9), 100, np.full(4, 0.8))
    assert found.times == pytest.approx(10**1.5)
    assert found.low == found.high == pytest.approx(found.times), "seeds that agree leave no doubt"


def test_a_score_at_a_measured_number_is_exact_and_a_dip_behind_it_changes_nothing():
    assert saving(LABELS, curves(0.6, 0.7, 0.65), 100, np.full(2, 0.7)[:1]).times == pytest.approx(10)
    assert saving(LABELS, curves(0.6, 0.7, 0.9), 100, np.full(4, 0.6)).times == pytest.approx(1)


def test_beyond_the_ends_of_the_curve_it_is_censored():
    more = saving(LABELS, curves(0.6, 0.7, 0.9), 100, np.full(4, 0.95))
    less = saving(LABELS, curves(0.6, 0.7, 0.9), 1_000, np.full(4, 0.5))
    assert (more.text(), less.text()) == (
        "more than 100 [more than 100, more than 100]",
        "less than 0.1 [less than 0.1, less than 0.1]",
    )


def test_an_interval_may_end_beyond_the_curve():
    reference = np.array([0.83, 0.89, 0.88, 0.95])
    found = saving(LABELS, curves(0.6, 0.7, 0.9), 100, reference)
    assert 10 < found.low < found.times < 100
    assert found.text().endswith(", more than 100]")


def test_the_interval_is_of_seeds_drawn_with_all_their_scores():
    """What a seed adds to all of its cells alike moves no saving."""
    shared = np.random.default_rng(1).normal(0, 0.05, (6, 1))
    reference = np.full(6, 0.75)
    alike = saving(LABELS, curves(0.6, 0.7, 0.9, seeds=6) + shared, 100, reference + shared[:, 0])
    apart = saving(LABELS, curves(0.6, 0.7, 0.9, seeds=6), 100, reference + shared[:, 0])
    assert alike.high - alike.low == pytest.approx(0, abs=1e-6)
    assert apart.high - apart.low > 1
    assert alike.times == pytest.approx(10**1.25)


def test_one_seed_has_no_interval():
    found = saving(LABELS, curves(0.6, 0.7, 0.9, seeds=1), 100, np.array([0.7]))
    assert (found.low, found.text()) == (None, "10 (n = 1)")
