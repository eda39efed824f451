"""The shares that smaller models retain, as a table of a page."""

from typing import Any

from ablations.core.formatting import Entry, Sheet, cell_text, difference_text, fixed, range_text
from ablations.measurements.measurements import Measurements
from ablations.measurements.retained import Retained, retained

TITLE = "What smaller models retain"
NOTHING = "nothing to retain"


def sheets(measured: Measurements) -> tuple[Sheet, Sheet, dict[str, Any]] | None:
    """A row for each smaller model and task; None without any that has finished."""
    found = list(retained(measured))
    if not found:
        return None
    labels = {metric.name: metric.label or metric.name for metric in measured.grid.metrics}
    rows: list[list[Entry]] = [
        [cell_text(one.cell.values), labels.get(one.metric, one.metric), f"{one.method}: {one.level:.3f}",
         difference_text(one.gain), _share(one)]
        for one in found
    ]  # fmt: skip
    wholes = dict.fromkeys(cell_text(one.whole.values) for one in found)
    reading = Sheet(
        ["model", "score", "best simple method", "gain of the whole model", "share retained"],
        rows,
        left=3,
        notes=[
            f"The whole model: {', '.join(wholes)}. Its gain is its score minus that of the best simple method, over "
            "the seeds of both models, with the 95 % interval. The share is the gain of the smaller model divided by "
            f"that gain, with Fieller's interval. Where the gain is not clear of 0 there is {NOTHING}."
        ],
    )
    every: list[list[Entry]] = [
        [one.cell.label, one.whole.label, one.metric, one.method, one.level, one.gain.mean, one.gain.low, one.gain.high,
         *((one.share.mean, one.share.low, one.share.high) if one.share else (None, None, None)), one.gain.n]
        for one in found
    ]  # fmt: skip
    numbers = Sheet(
        ["model", "whole", "metric", "method", "level", "gain", "gain low", "gain high", "share", "share low",
         "share high", "seeds"],
        every,
    )  # fmt: skip
    trace = [{"model": one.cell.label, "metric": one.metric, "runs": list(one.runs)} for one in found]
    return reading, numbers, {"retained": trace}


def _share(one: Retained) -> str:
    if one.gain.low is None:
        return f"n/a (n = {one.gain.n})"
    if one.share is None or one.share.mean is None:
        return NOTHING
    return f"{fixed(one.share.mean, 2)} {range_text(one.share)}"
