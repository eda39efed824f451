"""The answer of a page in words: sentences that people wrote into the grid, with numbers from the records.

A sentence names the verdicts for which it was written, and is withdrawn when one of them changes.
"""

import functools
from collections.abc import Mapping, Sequence

from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import effect_text
from ablations.core.formatting import difference_text, fixed, markdown_text, mean_text, quantity
from ablations.core.statistics import mean_interval
from ablations.measurements.curves import value_at
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import COUNTED, FLOOR
from ablations.measurements.variances import differences
from ablations.pages.held_equal import Planned
from ablations.schema.scale import PLACE, Conclusion, parted

_UNKNOWN = "not known"  # in the place of a number of a caveat without its runs


def stated(plan: Planned) -> tuple[Conclusion, ...]:
    """What a grid's entry for the scale states. It is of the grid as it is, not overridden."""
    return plan.grid.scales[plan.scale].conclusion if not plan.overrides and plan.scale in plan.grid.scales else ()


def sentences(told: Sequence[Conclusion], measured: Measurements, verdicts: Sequence[Verdict]) -> list[str]:
    """The sentences that hold, as Markdown, in their order.

    Args:
        told: From the grid's entry for the scale.
        verdicts: The claims of the grid as they are judged now.
    """
    found = {verdict.claim.id: verdict for verdict in verdicts}
    return [text for one in told if _holds(one, found) and (text := _filled(one, measured, found))]


def quoted(told: Sequence[Conclusion], measured: Measurements, verdicts: Sequence[Verdict]) -> list[str]:
    """The ids of the claims whose effects those sentences give, in their order."""
    found = {verdict.claim.id: verdict for verdict in verdicts}
    held = [one for one in told if _holds(one, found) and _filled(one, measured, found)]
    return [place for one in held for place in PLACE.findall(one.say) if place in found]


def caveat(text: str, measured: Measurements) -> str:
    """What a scale cannot show, with its numbers."""
    return PLACE.sub(lambda place: _number(place[1], measured, {}) or _UNKNOWN, text)


def _holds(one: Conclusion, verdicts: Mapping[str, Verdict]) -> bool:
    """Whether each verdict is as it was, and made of all runs that it needs."""
    judged = {name: one.outcome for name, one in verdicts.items() if one.reason.is_measured}
    return all(judged.get(name) == outcome for name, outcome in one.given.items())


def _filled(one: Conclusion, measured: Measurements, verdicts: Mapping[str, Verdict]) -> str:
    """The sentence with its numbers; empty if one of them is missing."""
    words, places = PLACE.split(one.say)[::2], PLACE.findall(one.say)
    numbers = [_number(place, measured, verdicts) for place in places]
    if not all(numbers):
        return ""
    return markdown_text("".join(f"{text}{number}" for text, number in zip(words, [*numbers, ""], strict=True)))


def _number(place: str, measured: Measurements, verdicts: Mapping[str, Verdict]) -> str:
    """What is in a place. It is empty where the records do not have it."""
    asked = parted(place)
    if not asked.cell:
        return effect_text(verdicts[place]) if place in verdicts else ""
    cells = {cell.label: cell for cell in measured.cells}
    if not {asked.cell, asked.other or asked.cell} <= cells.keys():
        return ""
    cell = cells[asked.cell]
    if asked.metric.endswith((FLOOR, COUNTED)):
        bar = measured.bars(cell).get(asked.metric.removesuffix(COUNTED).removesuffix(FLOOR))
        count = bar and quantity(bar.recipe.counted["training"].tokens)
        return "" if bar is None else str(count) if asked.metric.endswith(COUNTED) else fixed(bar.level, 3)
    at = measured if asked.steps is None else _after(asked.steps, asked.metric, measured)
    if asked.other:
        rows = functools.partial(at.of, metric=asked.metric)
        estimate = (
            differences(at, rows)(cell, cells[asked.other])[1] if rows(cell) and rows(cells[asked.other]) else None
        )
        return difference_text(estimate.interval()) if estimate else ""
    values = list(at.values(cell, asked.metric).values())
    if not values:
        return ""
    interval = mean_interval(values)
    return mean_text(interval) if interval.half else fixed(interval.mean or 0.0, 3)


def _after(steps: int, metric: str, measured: Measurements) -> Measurements:
    """The same measurements with the losses of curves after some steps."""
    runs = [run for cell in measured.cells for run in measured.finished(cell).values()]
    read = {run.id: found[0] for run in runs if (found := value_at(run, "steps", steps, metric))}
    return measured.with_values(metric, read)
