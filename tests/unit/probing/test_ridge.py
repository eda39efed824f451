"""Ridge regression in closed form against scikit-learn's, and the choice of its penalty."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from lightning_modules.probing.ridge import PENALTIES, Features, Path, Sums, fitted, tried

NOISE = np.random.default_rng(0)


def mixed(n, d):
    """Features of different scales and means, correlated, one of them constant."""
    x = NOISE.normal(size=(n, d)) @ NOISE.normal(size=(d, d)) * np.geomspace(0.01, 100, d) + np.arange(d)
    x[:, 0] = 3.0
    return x


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("columns", [1, 3])
def test_weights_and_answers_are_those_of_scikit_learn(penalty, columns):
    x, y, others = mixed(200, 12), NOISE.normal(size=(200, columns)) + 5, mixed(30, 12)
    scaled = StandardScaler().fit(x)
    theirs = Ridge(alpha=penalty * 200).fit(scaled.transform(x), y)
    features = Features.of(x)
    weights, intercept = Path(Sums.of(features.x, y)).weights(penalty)
    assert pytest.approx(np.reshape(theirs.coef_, (columns, 12)), rel=1e-8, abs=1e-10) == weights.T
    assert features.applied(others) @ weights + intercept == pytest.approx(
        theirs.predict(scaled.transform(others)).reshape(30, columns), rel=1e-8
    )


def test_errors_of_penalties_are_those_of_fits_without_the_fold():
    x, y = mixed(90, 6), NOISE.normal(size=(90, 2))
    fold, features = NOISE.integers(0, 4, 90), Features.of(x)
    errors, _ = tried(features, y, fold, (0.001, 0.5))
    for penalty, error in zip((0.001, 0.5), errors, strict=True):
        expected = 0.0
        for number in range(4):
            inner = fold != number
            model = Ridge(alpha=penalty * inner.sum()).fit(features.x[inner], y[inner])
            expected += ((model.predict(features.x[~inner]) - y[~inner]) ** 2).sum()
        assert error == pytest.approx(expected, rel=1e-9)


def test_a_weak_signal_among_many_features_gets_a_large_penalty_and_an_exact_one_a_small_penalty():
    x, fold = NOISE.normal(size=(120, 80)), np.arange(120) % 5
    features = Features.of(x)
    penalties = {}
    for name, noise in (("exact", 0.0), ("weak", 20.0)):
        y = x[:, :1] + noise * NOISE.normal(size=(120, 1))
        errors, sums = tried(features, y, fold)
        penalties[name] = fitted(features, sums, errors).penalty
    assert penalties["exact"] == PENALTIES[0]
    assert penalties["weak"] >= 1.0
