"""What a record keeps of each example, packed."""

import numpy as np
import pytest

from lightning_modules.config import ConfigError
from lightning_modules.pretraining import _compact
from lightning_modules.tasks.scores.kept import (
    MOST_FLOATS,
    MOST_PROBABILITIES,
    PROBABILITY,
    pack,
    packed,
    packed_probabilities,
    unpack,
    unpack_probabilities,
)
from lightning_modules.tasks.scores.metrics import METRICS


@pytest.mark.parametrize(
    ("values", "kind", "near"),
    [
        (np.array([True, False, True]), "bits", 0.0),
        (np.array([0, 7, 65535]), "whole", 0.0),
        (np.array([0.0, 0.3, 1.0]), "share", 1 / 510),
        (np.array([0.5, -4.25, 6e4], dtype=np.float16), "half", 0.0),
        (np.array([0.5, -4.25, 7e4], dtype=np.float32), "single", 0.0),
    ],
)
@pytest.mark.parametrize("count", [3, 0])
def test_what_is_packed_comes_back(values, kind, near, count):
    text = pack(values[:count])
    assert text.startswith(f"{kind}:{count}:")
    assert unpack(text) == pytest.approx(values[:count], abs=near)


@pytest.mark.parametrize("values", [np.array([-1, 3]), np.array([0.0, 1.5]), np.array([70_000])])
def test_what_would_not_come_back_is_refused(values):
    with pytest.raises(ValueError, match="cannot be packed"):
        pack(values)


@pytest.mark.parametrize("text", ["", "half:2:", "bits:3:????", "odd:1:eJwDAAAAAAE=", "bits:99:eJwDAAAAAAE="])
def test_what_was_not_packed_is_refused(text):
    with pytest.raises(ConfigError, match="packed array"):
        unpack(text)


def test_the_nats_of_a_long_sequence_do_not_overflow():
    usual, long = np.array([512.3, 2048.9]), np.array([512.3, 6_500 * 10.5])
    assert unpack(pack(_compact(usual))) == pytest.approx(usual, rel=1e-3)
    assert unpack(pack(_compact(long))) == pytest.approx(long, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_come_back_where_a_record_has_room(classes):
    values = np.random.default_rng(0).dirichlet(np.ones(classes), MOST_PROBABILITIES // (classes - 1))
    (text,) = packed_probabilities(values).values()
    assert unpack_probabilities(text, classes) == pytest.approx(values, abs=classes / 65_535)
    assert len(text) < 22_000
    assert packed_probabilities(np.concatenate([values, values[:1]])) == packed_probabilities(None) == {}


def test_probabilities_of_another_number_of_classes_are_refused():
    kept = packed_probabilities(np.full((5, 2), 0.5))
    with pytest.raises(ConfigError, match="3 classes"):
        unpack_probabilities(kept[PROBABILITY], 3)


# --- what each example adds to F1 and correlations


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
