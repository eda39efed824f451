"""What each example adds to F1 and correlations: the metric on average, and its spread over new examples."""

import numpy as np
import pytest

from lightning_modules.tasks.scores.kept import MOST_FLOATS, packed
from lightning_modules.tasks.scores.metrics import METRICS
from tests.depth import depth


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
def test_the_order_of_examples_does_not_matter(name):
    labels, answers = drawn(name)
    order = np.random.default_rng(0).permutation(len(labels))
    of = METRICS[name].by_example
    assert of(labels[order], answers[order]) == pytest.approx(of(labels, answers)[order])


@pytest.mark.parametrize("name", METRICS)
def test_an_example_adds_what_is_lost_without_it(name):
    """The jackknife, up to terms that vanish with the number of examples."""
    labels, answers = drawn(name)
    metric, count = METRICS[name], len(labels)
    values, whole = metric.by_example(labels, answers), metric.of(labels, answers)
    for n in range(0, count, 50):
        without = metric.of(np.delete(labels, n), np.delete(answers, n))
        assert count * whole - (count - 1) * without == pytest.approx(values[n], abs=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
def test_the_spread_of_a_difference_is_that_of_a_bootstrap_of_examples(name):
    """Two answerers of the same examples, drawn again together."""
    labels, first = drawn(name)
    second = np.where(np.random.default_rng(1).random(len(labels)) < 0.9, first, drawn(name)[1][::-1])
    metric, draws = METRICS[name], np.random.default_rng(2)
    again = []
    for _ in range(depth(400, 800)):  # the spread's own standard error is 3.5 or 2.5 %
        chosen = draws.integers(0, len(labels), len(labels))
        again.append(metric.of(labels[chosen], first[chosen]) - metric.of(labels[chosen], second[chosen]))
    both = metric.by_example(labels, first) - metric.by_example(labels, second)
    assert both.std(ddof=1) / len(labels) ** 0.5 == pytest.approx(np.std(again), rel=0.1)


def test_a_record_keeps_floating_point_numbers_of_so_many_examples_alone():
    few, many = (np.zeros(MOST_FLOATS + more, np.float16) for more in (0, 1))
    assert list(packed({"few": few, "many": many, "bits": many > 0})) == ["few", "bits"]
