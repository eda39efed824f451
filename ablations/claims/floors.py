"""The floor of a metric: a model there does what something simpler does as well.

For held-out losses it is what counting reaches on the same words (`core.disk.bars`); where no such bar is kept, the
plateau: no better than the bigram baseline. For tasks and questions about pairs it is the best method without a network
that the page has. A side whose interval reaches down to it is at the floor.

A positive control is a cell that must be above the best constant answer, or above a simple method that the claim names.
Sometimes even the model trained on a question has not learned it, or has learned no more than the surface shows. Then a
difference between models says nothing of what they were trained on.
"""

from collections.abc import Iterable, Sequence

from ablations.claims.contrasts import Sides
from ablations.core.formatting import cell_text
from ablations.core.statistics import LEVEL, mean_interval
from ablations.measurements.dictionary import unit
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import BIGRAM, references, strongest
from ablations.measurements.selection import side_of
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.grid import Metric
from ablations.schema.metrics import HELDOUT
from lightning_modules.tasks import TASKS

_OF_SPEED = ("tokens/s", "times")  # units of what does not depend on what was learned


def floors(table: Measurements, claim: Claim, sides: Sides) -> tuple[str, ...]:
    """For each side the simple method that it is not shown to be better than; empty where it is better than all.

    A claim against a simple method compares with a floor or more, and has none. Its positive control replaces it.
    """
    if claim.against or unit(claim.metric) in _OF_SPEED:
        return ("",) * len(sides.cells)
    asked = Metric(name=claim.metric)
    found = []
    for place, (cell, flat) in enumerate(zip(sides.cells, sides.floor, strict=True)):
        counted = table.bars(cell)
        if own := counted.get(claim.metric):
            bar: tuple[float, str] | None = own.level, own.floor
        else:
            bar = None if claim.metric in HELDOUT else strongest(table, asked, cell)
        if bar is None or bar[1] == BIGRAM:
            names = [*(one.floor for one in counted.values()), BIGRAM]
            is_floor = flat and not claim.metric.startswith(tuple(f"{task}." for task in TASKS))
            found.append(names[0] if is_floor else "")
        else:
            found.append(bar[1] if sides.sample.values[place] and not _is_above(claim, sides, place, bar[0]) else "")
    return tuple(found)


def _is_above(claim: Claim, sides: Sides, place: int, bar: float) -> bool:
    """Whether the 95 % interval of a side is better than a simple method."""
    found = sides.sample.linear([float(n == place) for n in range(len(sides.cells))]).interval(LEVEL)
    ends = [end for end in (found.low, found.high, found.mean) if end is not None]
    return max(ends) < bar if claim.better == "lower" else min(ends) > bar


def named(found: Sequence[str]) -> list[str]:
    """What the sides at a floor are not better than, each once: ``1 of 2 sides not shown to be better than ...``."""
    names = [name for name in found if name]
    return [
        f"{names.count(name)} of {len(found)} sides not shown to be better than {listed([name])}"
        for name in dict.fromkeys(names)
    ]


def listed(methods: Iterable[str]) -> str:
    """``the product of counts of the two neighbours``. A name is used as it is."""
    return " and ".join(method if method[:1].isupper() else f"the {method}" for method in methods)


def constant_answer(metric: str) -> str:
    """The metric of the best constant answer to the same question; empty if there is none."""
    return next((name for name in references(metric).values() if name.endswith("majority")), "")


def unlearned(table: Measurements, claim: Claim) -> str:
    """What the positive control of a claim has not learned, in words; empty if it has, or there is none."""
    control = claim.positive_control
    if control is None:
        return ""
    cells, metric = side_of(table.grid, table.cells, control.at), control.metric or claim.metric
    name = f"the positive control, {cell_text(cells[0].values if cells else control.at)},"
    labels = {metric.name: metric.label for metric in table.grid.metrics}
    constant = control.above or constant_answer(metric)
    counted = next((table.bars(cell).get(metric) for cell in cells), None) if not constant else None
    known = [_leads(table, cell, metric, constant, counted and counted.level) for cell in cells]
    if not known or not known[0]:
        return f"{name} has no result"
    low = mean_interval(known[0]).low
    methods = {name: text for text, name in references(metric).items()}
    usual = listed([counted.floor]) if counted else "the best constant answer" if constant else "the bigram baseline"
    bar = methods[control.above] if control.above else usual
    compared = f"better than {bar} in {labels.get(metric) or metric}"
    if low is None:
        return f"{name} has too few runs to say whether it is {compared}"
    return "" if low > 0 else f"{name} is no {compared}"


def _leads(table: Measurements, cell: Cell, metric: str, constant: str, level: float | None = None) -> list[float]:
    """By how much each run of a cell is above a simple method's score, or below its loss, or below a known one."""
    if level is not None:
        return [level - row.value for row in table.of(cell, metric).values()]
    bigram = references(metric).get(BIGRAM, "")
    bars, sign = table.of(cell, constant or bigram), -1.0 if bigram else 1.0
    return [sign * (row.value - bars[seed].value) for seed, row in table.of(cell, metric).items() if seed in bars]
