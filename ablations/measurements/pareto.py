"""Which models of a grid are worth their cost: scores from records over costs that were measured next to them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ablations.core.statistics import Interval, mean_interval
from ablations.measurements.measurements import Measurements

PARAMETERS, FLOPS, FILE = "parameters", "FLOPs per sequence", "MB of the file"


@dataclass(frozen=True)
class Cost:
    """One cost of the models of a grid.

    Attributes:
        name: What it is called.
        of: Label of a cell -> its cost.
        spread: Label of a cell -> the quartiles of a time; empty for what does not vary.
    """

    name: str
    of: Mapping[str, float]
    spread: Mapping[str, tuple[float, float]]


def costs(measured: Sequence[Mapping[str, Any]], batches: Iterable[int]) -> list[Cost]:
    """Parameters, FLOPs and file size of the encoders, then the time of a pass by device, threads and batch.

    Args:
        measured: Measurements of `running.inference`.
        batches: Sequences of a pass.
    """
    sizes = {PARAMETERS: "parameters", FLOPS: "flops", FILE: "file_mb"}
    found = [Cost(text, {label: row[name] for label, row in measured[0]["cells"].items()}, {})
             for text, name in sizes.items()]  # fmt: skip
    for one in measured:
        for batch in batches:
            rows = {label: row[str(batch)] for label, row in one["cells"].items()}
            name = f"ms, batch of {batch}, {machine(one, measured)}"
            times = {label: row["ms"] for label, row in rows.items()}
            found.append(Cost(name, times, {label: (row["low"], row["high"]) for label, row in rows.items()}))
    return found


def machine(one: Mapping[str, Any], among: Sequence[Mapping[str, Any]]) -> str:
    """The shortest name that distinguishes a device from the others: threads, with its name where names differ."""
    threads = "" if one["threads"] is None else f"{one['threads']} thread{'s' * (one['threads'] > 1)}"
    named = [one["device"]] * (len({row["device"] for row in among}) > 1 or not threads)
    return ", ".join(filter(None, [*named, threads]))


def scores(known: Measurements, metric: str) -> dict[str, Interval]:
    """Label of a cell -> the mean of a metric over its finished runs; cells without one are left out."""
    found = {cell.label: mean_interval(list(known.values(cell, metric).values())) for cell in known.cells}
    return {label: interval for label, interval in found.items() if interval.mean is not None}


def front(cost: Mapping[str, float], score: Mapping[str, Interval], better: Literal["lower", "higher"]) -> list[str]:
    """The labels on the Pareto front, the cheapest first: no other costs no more and scores as well or better.

    Means decide. Of two with the same cost and the same mean both are on it.
    """
    sign = 1 if better == "higher" else -1
    points = [(cost[label], sign * _mean(score[label]), label) for label in score if label in cost]
    on = [
        (mine, label)
        for mine, own, label in points
        if not any(theirs <= mine and other >= own and (theirs, other) != (mine, own) for theirs, other, _ in points)
    ]
    return [label for _, label in sorted(on, key=lambda point: point[0])]


def _mean(interval: Interval) -> float:
    assert interval.mean is not None, "cells without a mean have no score"
    return interval.mean
