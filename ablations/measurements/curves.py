"""The curves in records: what a run had used at each point, its loss at any amount, its crossing, its final slope.

The *crossing* of a run is the number of its own tokens at which its held-out loss passes the bigram baseline. The
baseline is scored on all sequences of the final measurement, the curve on the first of them alone
(``evaluation.sequences`` of ``evaluation.final_sequences``). Those are easier or harder by what the run's own loss
differs at its end, so the baseline is moved by that. A crossing is read off the curve, linear in the logarithm of
tokens between two points, so it is known no better than the distance of these points. A run that starts from the
weights of another has none.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ablations.core.crossing import crossings
from ablations.measurements.references import BIGRAM, references
from ablations.schema.metrics import HELDOUT
from ablations.schema.record import Record

_SAME = 1e-9  # relative difference of two amounts that are equal up to rounding


class Curve(NamedTuple):
    """Held-out losses over training tokens.

    Attributes:
        x: Logarithms of tokens ``[points]``, which ascend.
        losses: Nats ``[points]``.
        bar: The loss of the bigram baseline on the curve's sequences.
    """

    x: np.ndarray
    losses: np.ndarray
    bar: float


class Crossing(NamedTuple):
    """Where a run passes the bigram baseline, in tokens.

    Attributes:
        at: None where it is not known.
        low, high: The measured points on either side. None for ``low``: it passed before its first point; None for
            ``high``: it had not passed by its last, which is ``low``.
    """

    at: float | None
    low: float | None
    high: float | None


def amounts(record: Record, unit: str) -> list[float]:
    """The amount of a unit that a run had used at each point of its curve; empty if the record lacks it.

    Args:
        unit: ``steps``, ``tokens``, ``flops`` or ``seconds``; the last two grow in proportion to tokens.
    """
    tokens, total = record.curve.get("tokens", []), record.cost.get("tokens")
    if unit == "steps":
        return record.curve.get("step", [])
    if unit == "tokens":
        return tokens
    cost = record.cost.get(unit)
    return [count * cost / total for count in tokens] if cost and total else []


def value_at(record: Record, unit: str, amount: float, metric: str = HELDOUT[0]) -> tuple[float, bool] | None:
    """A measurement of a run at an amount, and whether it is interpolated.

    Interpolates linearly in the logarithm of the amount; never extrapolates.

    Returns:
        None before the first point of the curve, after the last, or without a curve.
    """
    used, values = amounts(record, unit), record.curve.get(metric, [])
    if len(used) != len(values):
        return None
    points = [(at, value) for at, value in zip(used, values, strict=True) if at > 0]
    for at, value in points:
        if abs(at - amount) <= _SAME * amount:
            return value, False
    if not points or not points[0][0] < amount < points[-1][0]:
        return None
    x, y = zip(*points, strict=True)
    return float(np.interp(np.log(amount), np.log(x), y)), True


def curve(record: Record, metric: str, bar: float | None = None) -> Curve | None:
    """The curve of a held-out loss, by default with the bigram baseline as its bar.

    Returns:
        None if the record lacks one of them, or has fewer than two points, or points that are no curve.
    """
    tokens, losses = (np.asarray(record.curve.get(name, ()), dtype=float) for name in ("tokens", metric))
    known = record.metrics.get(references(metric).get(BIGRAM, ""))
    if bar is None and known is not None and len(losses):
        is_averaged = record.config.get("system", {}).get("training", {}).get("averaged_checkpoints", 1) > 1
        bar = known + (0.0 if is_averaged else losses[-1] - record.metrics.get(metric, losses[-1]))
    if bar is None or len(tokens) != len(losses):
        return None
    tokens, losses = tokens[tokens > 0], losses[tokens > 0]
    if len(tokens) < 2 or (np.diff(tokens) <= 0).any():
        return None
    return Curve(np.log(tokens), losses, float(bar))


def crossing(of: Curve) -> Crossing:
    """Where a curve passes its bar."""
    at, low, high = (float(value) for value in crossings(of.x, of.losses, of.bar))
    return Crossing(*(math.exp(value) if math.isfinite(value) else None for value in (at, low, high)))


def geometric_mean(crossed: Sequence[float | None]) -> float | None:
    """The mean crossing of several runs; None if one of them has none, as a mean over the others would flatter."""
    known = [math.log(at) for at in crossed if at is not None]
    return math.exp(math.fsum(known) / len(known)) if known and len(known) == len(crossed) else None


def final_slope(record: Record, metric: str) -> float | None:
    """By how many nats a loss fell over the last doubling of a run's tokens; None if its curve is shorter."""
    tokens = amounts(record, "tokens")
    half, end = ((value_at(record, "tokens", part * tokens[-1], metric) if tokens else None) for part in (0.5, 1.0))
    return half[0] - end[0] if half and end else None
