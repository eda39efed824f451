"""The answer of a grid in one line, from a verdict: the title of its figures.

It says *beats* only where nothing else explains the difference, by its regime. Otherwise the better side *leads*.
"""

import re
from collections.abc import Sequence

from ablations.claims.floors import listed
from ablations.claims.outcomes import AS_CLAIMED, OPEN, Direction, Reason, Regime
from ablations.claims.verdict import Verdict
from ablations.claims.verdict_text import effect_text, finding
from ablations.core.formatting import axis_text, is_share, value_text
from ablations.literature.published_values import same
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import in_plain_words
from ablations.measurements.selection import side_of
from ablations.schema.cell import Cell
from ablations.schema.grid import Metric

_PAIRS = (">", "~")  # relations of two sides whose effect is their difference
_EMBEDDINGS, _FULL = "model.embedding_size", "full width"  # words as wide as the layers have no projection
_GENERIC = ("model", "training", "variation")  # axes whose variants have names
_SHORT = 5  # letters of a variant's name, such as "with" or "all"
_SPEED = {Regime.SPEED: "a matter of speed", Regime.SPEED_OR_QUALITY: "speed or quality is open"}


def headline(measured: Measurements, verdicts: Sequence[Verdict], quoted: Sequence[str] = ()) -> str:
    """``40 % leads 15 % by 0.222 nats [0.135, 0.310]; neither is better than counts of neighbours (floor)``.

    The interval is the one that decides.

    Args:
        measured: The cells, and the figure whose first metric says which is best.
        verdicts: The verdicts on the grid's claims, in its order.
        quoted: The ids of the claims that the answer in words quotes.

    Returns:
        Nothing if no claim is judged.
    """
    chosen, metric = quotes(measured, verdicts, quoted), _first_metric(measured)
    if chosen is None:
        return ""
    if chosen.claim.relation not in _PAIRS:
        found, names = finding(chosen), list(chosen.sides)
    else:
        names, shared = _names(measured, chosen)
        found = _compared(chosen, names, metric) + shared
    text = "; ".join(
        filter(None, [found, _elsewhere(measured, chosen, verdicts, names), _limits(measured, chosen, names)])
    )
    return f"{text[0].upper()}{text[1:]}"


def quotes(measured: Measurements, verdicts: Sequence[Verdict], quoted: Sequence[str] = ()) -> Verdict | None:
    """The judged claim that the headline quotes, None without any; the arguments are those of `headline`.

    It is the first that the answer in words quotes, of those about two sides on a metric of the figure; else the first
    that compares the best cell of its first metric; else the first of all.
    """
    judged = [verdict for verdict in verdicts if verdict.is_measured and effect_text(verdict)]
    metric = _first_metric(measured)
    best = _best(measured, metric)
    drawn = [
        verdict for verdict in judged if verdict.claim.relation in _PAIRS and verdict.claim.metric in _shown(measured)
    ]
    in_answer = [verdict for id in quoted for verdict in drawn if verdict.claim.id == id]
    about_best = [one for one in drawn if one.claim.metric == metric and _compares(measured, one, best)]
    return next(iter([*in_answer, *about_best, *judged]), None)


def _shown(measured: Measurements) -> tuple[str, ...]:
    return measured.grid.figure.metrics if measured.grid.figure else ()


def _first_metric(measured: Measurements) -> str:
    return next(iter(_shown(measured)), "")


def _elsewhere(measured: Measurements, chosen: Verdict, verdicts: Sequence[Verdict], names: Sequence[str]) -> str:
    """What other panels of the figure show of the same two sides: ``also in GAP F1, not shown in SST-2 accuracy``."""
    same_sides = [
        one for one in verdicts
        if one.is_measured and one.claim.relation in _PAIRS and one.claim.asked == chosen.claim.asked
        and not one.claim.against and one.claim.metric in _shown(measured) and one.claim.metric != chosen.claim.metric
    ]  # fmt: skip
    by_direction: dict[Direction, dict[str, None]] = {}
    for one in same_sides:
        by_direction.setdefault(one.direction, {})[one.metric] = None
    said = []
    for direction, metrics in sorted(by_direction.items(), key=lambda item: item[0] is Direction.OPEN):
        if direction is Direction.OPEN:
            word = "nor" if chosen.direction is Direction.OPEN else "not shown"
        elif chosen.direction is Direction.OPEN:
            word = f"{names[direction is Direction.NEGATIVE]} leads"
        else:
            word = "also" if direction is chosen.direction else "the other way"
        said.append(f"{word} in {', '.join(metrics)}")
    return ", ".join(said)


def _best(measured: Measurements, metric: str) -> Cell | None:
    known: dict[str, Metric] = {one.name: one for one in measured.grid.metrics}
    means = [(sum(values) / len(values), cell) for cell in measured.cells
             if (values := list(measured.values(cell, metric).values()))]  # fmt: skip
    if metric not in known or not means:
        return None
    return (min if known[metric].better == "lower" else max)(means, key=lambda pair: pair[0])[1]


def _compares(measured: Measurements, verdict: Verdict, best: Cell | None) -> bool:
    return best is not None and best.label in [cell.label for cell in _cells(measured, verdict)]


def _cells(measured: Measurements, verdict: Verdict) -> list[Cell]:
    """The cell of each side; one side that is a simple method has none."""
    return [cell for side in verdict.claim.asked for cell in side_of(measured.grid, measured.cells, side)[:1]]


def _names(measured: Measurements, verdict: Verdict) -> tuple[list[str], str]:
    """The sides by what differs between them, and in brackets what both have of what the grid varies."""
    cells = _cells(measured, verdict)
    if len(cells) < 2:
        return list(verdict.sides), ""
    a, b = cells[0].values, cells[1].values
    apart = [path for path in a if path in b and not same(a[path], b[path])]
    both = [_FULL if _is_full(path, cells[0]) else _value(path, value, is_named=not _speaks(path, value))
            for path, value in a.items() if path not in apart]  # fmt: skip
    named = {path for path in apart if not all(_speaks(path, side[path]) for side in (a, b))}
    names = [", ".join(_side(path, cell, is_named=path in named) for path in apart) for cell in cells[:2]]
    return names, f" ({', '.join(both)})" if both else ""


def _side(path: str, cell: Cell, *, is_named: bool) -> str:
    """The value of a side: ``48 (standing for 128)`` for a published value, ``full width (128)`` of words."""
    value = cell.values[path]
    if _is_full(path, cell):
        return f"{_FULL} ({value})"
    printed = cell.printed.get(path, value)
    theirs = "" if same(printed, value) else f" (standing for {value_text(path, printed)})"
    return _value(path, value, is_named=is_named) + theirs


def _is_full(path: str, cell: Cell) -> bool:
    return path == _EMBEDDINGS and cell.values[path] == cell.system.model.hidden_size


def _speaks(path: str, value: object) -> bool:
    """Whether a value is clear without the name of its knob: shares, and the names of variants unless short."""
    return is_share(path) if "." in path else len(str(value)) > _SHORT


def _value(path: str, value: object, *, is_named: bool) -> str:
    """A value in words: ``no sharing``, ``4 layers``, ``37.5 % of heads removed``, ``recurrence`` for *with*."""
    text, axis = value_text(path, value) if "." in path else str(value), axis_text(path)
    first = text.partition(",")[0]
    if axis in _GENERIC:
        return f"{axis} {text}" if first in ("with", "without") else text
    if axis in text:
        return text
    if first in ("none", "with", "without"):
        return ("" if first == "with" else "no ") + axis + text.removeprefix(first)
    if axis.startswith("number of "):
        return f"{text} {axis.removeprefix('number of ').removesuffix('s' * (text == '1'))}"
    if axis.endswith(" removed"):
        return f"{text} of {axis}"
    return f"{axis} {text}" if is_named else text


def _compared(verdict: Verdict, names: Sequence[str], metric: str) -> str:
    a, b = names
    by = effect_text(verdict) + (f" in {verdict.metric}" if not verdict.unit or verdict.claim.metric != metric else "")
    if verdict.claim.relation == "~" and verdict.outcome == AS_CLAIMED:
        return f"{a} and {b} are equal within {verdict.margin:.3g} {verdict.unit}".strip() + f": they differ by {by}"
    if verdict.direction is Direction.OPEN:
        return f"{a} and {b} are not distinguished: they differ by {by}"
    ahead, behind = (a, b) if verdict.direction is Direction.POSITIVE else (b, a)
    is_plain = verdict.regime in (Regime.QUALITY, Regime.AS_PUBLISHED) and not any(verdict.floors)
    verb = "beats" if is_plain else "leads"
    is_plural = re.match(r"(?!1 )\d+ [a-z]+s\b", ahead)
    return f"{ahead} {verb.removesuffix('s') if is_plural else verb} {behind} by {by}"


def _limits(measured: Measurements, verdict: Verdict, names: Sequence[str]) -> str:
    """What else has to be said of the lead, in a few words; the page's verdict says it in full."""
    if verdict.unlearned:
        return "its positive control has not learned"
    counted = [bar.floor for cell in _cells(measured, verdict) for bar in measured.bars(cell).values()]
    marked = [(name, in_plain_words(floor) if floor in counted else listed([floor]))
              for name, floor in zip(names, verdict.floors, strict=False) if floor]  # fmt: skip
    if len(marked) == len(names):
        return f"{'neither' if len(names) == 2 else 'none'} is shown to be better than {marked[0][1]}"
    if marked:
        return " and ".join(
            f"{name.partition(' (standing for ')[0]} is not shown to be better than {bar}" for name, bar in marked
        )
    if verdict.direction is not Direction.OPEN and verdict.regime in _SPEED:
        return _SPEED[verdict.regime]
    is_said = verdict.reason is Reason.POWER and verdict.claim.relation in _PAIRS  # "not distinguished"
    return "" if is_said or verdict.outcome != OPEN else f"open: {verdict.reason}"
