import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablations.core.examples import example_variance, run_variance


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_it_is_the_cluster_robust_variance_of_statsmodels(entropy, documents):
    draws = np.random.default_rng(entropy)
    place = np.concatenate([np.arange(documents), draws.integers(0, documents, 40)])
    values, weights = (
        draws.normal(size=len(place)) + draws.normal(size=documents)[place],
        draws.uniform(0.5, 3, len(place)),
    )
    fit = sm.WLS(values, np.ones(len(place)), weights).fit(cov_type="cluster", cov_kwds={"groups": place})
    found = example_variance(values, [f"document {n}" for n in place], weights)
    assert found.value == pytest.approx(fit.bse[0] ** 2, rel=1e-9)
    assert found.df == documents - 1


def test_one_document_says_nothing_of_others():
    with pytest.raises(ValueError, match="at least two"):
        example_variance([1.0, 2.0], ["a", "a"])


def test_runs_that_agree_contribute_nothing():
    scores = np.random.default_rng(1).normal(size=50)
    alike = np.stack([scores, scores + 0.3])
    assert run_variance(alike, np.arange(50)) == pytest.approx(0.0, abs=1e-12)
    assert run_variance(scores[None], np.arange(50)) == 0.0


def test_examples_on_which_only_runs_differ_have_no_variance_of_their_own():
    """Each run is right at random: a mean over four runs varies over examples only because the runs do."""
    draws, documents, found = np.random.default_rng(2), np.repeat(np.arange(100), 3), []
    for _ in range(300):
        sides = draws.normal(size=(2, 4, 300))
        difference = sides[0].mean(axis=0) - sides[1].mean(axis=0)
        runs = sum(run_variance(side, documents) for side in sides)
        both = example_variance(difference, documents).value
        found.append((both - runs, both))
    assert np.mean(found, axis=0) == pytest.approx([0.0, 2 / 4 / 300], abs=3e-5)


def test_intervals_over_new_runs_and_new_examples_cover():
    """Answers to 300 questions; counted twice, the runs' share widens the intervals to 98 %."""
    draws, covered = np.random.default_rng(3), np.zeros(2)
    for _ in range(1_200):
        difficulty = draws.normal(0.4, 1.5, 300)
        logits = difficulty + draws.normal(0, 0.5, (2, 1, 300)) + draws.normal(0, 0.1, (2, 8, 1))
        right = (draws.random((2, 8, 300)) < 1 / (1 + np.exp(-logits))).astype(float)
        means = right.mean(axis=2)
        seeds = means.var(axis=1, ddof=1).sum() / 8
        difference = right[0].mean(axis=0) - right[1].mean(axis=0)
        runs = sum(run_variance(side, np.arange(300)) for side in right)
        for place, known in enumerate((runs, 0.0)):
            total = seeds + example_variance(difference, np.arange(300), runs=known).value
            covered[place] += abs(means[0].mean() - means[1].mean()) <= stats.t.isf(0.025, 14) * total**0.5
    assert 0.93 < covered[0] / 1_200 < 0.97
    assert covered[1] > covered[0]
