"""Accuracy and AUC of two-way answers, against other computations, and their standard errors against simulation."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from lightning_modules.data.baselines.two_way import Answers


@pytest.mark.parametrize("ties", [False, True])
def test_the_auc_is_that_of_the_library(ties):
    draw = np.random.default_rng(0)
    labels = draw.random(300) < 0.3
    scores = draw.normal(labels * 0.8, 1)
    scores = scores.round() if ties else scores
    found = Answers(scores, labels.astype(int))
    assert found.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert found.accuracy == pytest.approx(((scores > 0) == labels).mean())


def test_one_label_has_no_auc():
    for label in (0, 1):
        found = Answers(np.array([-1.0, 2.0, 0.0]), np.full(3, label))
        assert (found.auc, found.auc_error) == (0.5, 0.0)


def test_standard_errors_are_those_of_repeated_samples():
    """Clusters of four that answer alike: three quarters of the items bring nothing new."""
    draw = np.random.default_rng(1)
    found, said, independent = [], [], []
    clusters = np.repeat(np.arange(60), 4)
    for _ in range(400):
        labels = np.tile([0, 1, 0, 1], 60)
        right = np.repeat(draw.random(60) < 0.7, 4)
        scores = np.where(right, 1, -1) * (2 * labels - 1) * draw.random(240)
        answers = Answers(scores, labels, clusters)
        found.append((answers.accuracy, answers.auc))
        said.append((answers.accuracy_error, answers.auc_error))
        independent.append(Answers(scores, labels).accuracy_error)
    spread, mean = np.std(found, axis=0), np.mean(said, axis=0)
    assert mean == pytest.approx(spread, rel=0.12)
    assert np.mean(independent) == pytest.approx(spread[0] / 2, rel=0.12)
