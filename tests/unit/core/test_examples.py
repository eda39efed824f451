import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from ablations.core.examples import example_variance


def test_one_example_a_document_is_the_variance_of_a_mean():
    values = np.random.default_rng(0).normal(size=30)
    found = example_variance(values, np.arange(30))
    assert found.value == pytest.approx(values.var(ddof=1) / 30)
    assert found.df == 29


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
@settings(max_examples=25, deadline=None)
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


def test_documents_that_are_alike_within_count_once_each():
    spread = example_variance([1, 1, 1, 1, 0, 0, 0, 0], list("aaaabbbb"))
    assert spread.value == pytest.approx(example_variance([1, 0], ["a", "b"]).value)
    assert spread.value > example_variance([1, 1, 1, 1, 0, 0, 0, 0], range(8)).value


def test_one_document_says_nothing_of_others():
    with pytest.raises(ValueError, match="at least two"):
        example_variance([1.0, 2.0], ["a", "a"])
