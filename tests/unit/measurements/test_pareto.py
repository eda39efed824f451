"""Which models are worth their cost."""

from ablations.core.statistics import mean_interval
from ablations.measurements.pareto import front


def scored(**means):
    return {label: mean_interval([mean - 0.1, mean + 0.1]) for label, mean in means.items()}


def test_a_front_has_what_no_other_beats():
    cost = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0, "e": 9.0}
    score = scored(a=0.5, b=0.4, c=0.7, d=0.6, e=0.7)
    assert front(cost, score, "higher") == ["a", "c"]
    assert front(cost, score, "lower") == ["a", "b"]
    assert front({"a": 1.0, "b": 1.0}, scored(a=0.5, b=0.5), "higher") == ["a", "b"]  # neither beats the other
    assert front(cost | {"unscored": 0.0}, scored(a=0.5), "higher") == ["a"]
    assert front(cost, {}, "higher") == []
