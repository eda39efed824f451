"""The answer of a page in words: sentences that people wrote into the grid, with numbers from the records.

A sentence names the verdicts for which it was written, and is withdrawn when one of them changes.
"""

from collections.abc import Mapping, Sequence

from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import effect_text
from ablations.core.formatting import fixed, markdown_text, mean_text
from ablations.core.statistics import mean_interval
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import FLOOR
from ablations.schema.scale import PLACE, Conclusion, parted


def sentences(stated: Sequence[Conclusion], measured: Measurements, verdicts: Sequence[Verdict]) -> list[str]:
    """The sentences that hold, as Markdown, in their order.

    Args:
        stated: From the grid's entry for the scale.
        measured: The cells that they speak of.
        verdicts: The claims of the grid as they are judged now.
    """
    found = {verdict.claim.id: verdict for verdict in verdicts}
    return [text for one in stated if _holds(one, found) and (text := _filled(one, measured, found))]


def _holds(one: Conclusion, verdicts: Mapping[str, Verdict]) -> bool:
    return all(name in verdicts and verdicts[name].outcome == outcome for name, outcome in one.given.items())


def _filled(one: Conclusion, measured: Measurements, verdicts: Mapping[str, Verdict]) -> str:
    """The sentence with its numbers; empty if one of them is missing."""
    words, places = PLACE.split(one.say)[::2], PLACE.findall(one.say)
    numbers = [_number(place, measured, verdicts) for place in places]
    if not all(numbers):
        return ""
    return markdown_text("".join(f"{text}{number}" for text, number in zip(words, [*numbers, ""], strict=True)))


def _number(place: str, measured: Measurements, verdicts: Mapping[str, Verdict]) -> str:
    """What stands in a place: the effect of a claim, the mean of a metric in a cell, or what counting reaches there."""
    metric, label = parted(place)
    if not label:
        return effect_text(verdicts[place])
    cell = next((cell for cell in measured.cells if cell.label == label), None)
    if metric.endswith(FLOOR):
        bar = measured.bars(cell).get(metric.removesuffix(FLOOR)) if cell else None
        return fixed(bar.level, 3) if bar else ""
    values = list(measured.values(cell, metric).values()) if cell else []
    if not values:
        return ""
    interval = mean_interval(values)
    return mean_text(interval) if interval.half else fixed(interval.mean or 0.0, 3)
