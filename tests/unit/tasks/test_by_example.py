"""What each example adds to F1 and correlations: the metric on average, and its spread over new examples."""

import numpy as np
import pytest

from lightning_modules.tasks.scores.kept import MOST_FLOATS, packed
from lightning_modules.tasks.scores.metrics import METRICS


def drawn(name, count=500):
    """Labels and answers that fit the metric; numbers with many ties."""
    draws = np.random.default_rng(list(name.encode()))
    if name in ("spearman", "pearson"):
        labels = np.round(2 * draws.normal(size=count)) / 2
        return labels, labels + draws.normal(size=count)
    labels = (draws.random(count) < 0.7).astype(int)
    return labels, np.where(draws.random(count) < 0.8, labels, 1 - labels)


@pytest.mark.parametrize("name", METRICS)
def test_the_mean_is_the_metric(name):
    labels, answers = drawn(name)
    metric = METRICS[name]
    assert metric.by_example(labels, answers).mean() == pytest.approx(metric.of(labels, answers))
    assert metric.by_example(labels, np.zeros_like(answers)).mean() == pytest.approx(
        metric.of(labels, np.zeros_like(answers))
    )


@pytest.mark.parametrize("name", METRICS)
def test_an_example_adds_what_is_lost_without_it(name):
    """The jackknife, up to terms that vanish with the number of examples."""
    labels, answers = drawn(name)
    metric, count = METRICS[name], len(labels)
    values, whole = metric.by_example(labels, answers), metric.of(labels, answers)
    for n in range(0, count, 50):
        without = metric.of(np.delete(labels, n), np.delete(answers, n))
        assert count * whole - (count - 1) * without == pytest.approx(values[n], abs=0.08)


def test_a_record_keeps_floating_point_numbers_of_so_many_examples_alone():
    few, many = (np.zeros(MOST_FLOATS + more, np.float16) for more in (0, 1))
    assert list(packed({"few": few, "many": many, "bits": many > 0})) == ["few", "bits"]
