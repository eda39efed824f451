"""Metrics from the layer statistics of a record: summaries of one number per layer.

Lan et al. (2019, section 4.5) conclude two things from their Figure 1: ALBERT's layers move their inputs less than
BERT's, and the transitions from layer to layer are smoother. The paper has no numbers. Here "less" is a mean over
layers, or apart at the first layer and as a mean over those after it, which one mean would mix; and "smoother" is the
mean absolute change from one layer to the next.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise


def mean(values: Sequence[float]) -> float | None:
    """The mean over layers; None without layers."""
    return sum(values) / len(values) if values else None


def change(values: Sequence[float]) -> float | None:
    """The mean absolute difference between neighbouring layers; None below two layers.

    >>> change([10.0, 4.0, 5.0])
    3.5
    """
    return mean([abs(after - before) for before, after in pairwise(values)])


def first(values: Sequence[float]) -> float | None:
    """The value of the first layer; None without layers."""
    return values[0] if values else None


def later(values: Sequence[float]) -> float | None:
    """The mean over all layers but the first; None without them.

    >>> later([10.0, 4.0, 5.0])
    4.5
    """
    return mean(values[1:])


def last(values: Sequence[float]) -> float | None:
    """The value of the last layer; None without layers."""
    return values[-1] if values else None


LAYER_METRICS: dict[str, tuple[str, Callable[[Sequence[float]], float | None]]] = {  # name -> statistic, its summary
    "layers.angle": ("angle", mean),
    "layers.distance": ("distance", mean),
    "layers.angle_change": ("angle", change),
    "layers.distance_change": ("distance", change),
    "layers.first_angle": ("angle", first),
    "layers.first_distance": ("distance", first),
    "layers.later_angle": ("angle", later),
    "layers.later_distance": ("distance", later),
    "layers.last_angle": ("angle", last),
    "layers.last_distance": ("distance", last),
}
