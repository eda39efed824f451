"""The floor of a metric: a model there has learnt nothing that the metric could show.

For held-out losses it is what counting reaches on the same words (`core.disk.bars`); where no such bar is kept, the
plateau: no better than the bigram baseline. For tasks and questions about pairs it is the best constant answer, the
majority class or the mean label: a side whose interval reaches down to it is at the floor.

A positive control is a cell that must be above it, or above a simple method that the claim names. Sometimes even the
model trained on a question has not learned it, or has learned no more than the surface shows. Then a difference between
models says nothing of what they were trained on.
"""

from collections.abc import Iterable, Sequence

from ablations.claims.contrasts import Sides
from ablations.claims.outcomes import Reason
from ablations.claims.relations import Floored
from ablations.core.formatting import cell_text
from ablations.core.statistics import LEVEL, mean_interval
from ablations.measurements.dictionary import unit
from ablations.measurements.measurements import Measurements
from ablations.measurements.references import BIGRAM, references
from ablations.measurements.selection import side_of
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from lightning_modules.tasks import TASKS

_OF_SPEED = ("tokens/s", "times")  # units of what does not depend on what was learned


def floors(table: Measurements, claim: Claim, sides: Sides) -> tuple[Reason, ...]:
    """For each side `Reason.FLOOR`, `Reason.PLATEAU` where no bar is kept, or `Reason.NONE` where it is above.

    A claim against a simple method compares with a floor or more, and has none. Its positive control replaces it.
    """
    if claim.against or not sides.cells:
        return (Reason.NONE,) * len(sides.cells)
    constant = constant_answer(claim.metric)
    if constant:
        return tuple(_of_scores(table, constant, sides, n) for n in range(len(sides.cells)))
    if claim.metric.partition(".")[0] in TASKS or unit(claim.metric) in _OF_SPEED:
        return (Reason.NONE,) * len(sides.cells)
    kinds = (Reason.FLOOR if table.bars(cell) else Reason.PLATEAU for cell in sides.cells)
    return tuple(kind if flat else Reason.NONE for kind, flat in zip(kinds, sides.floor, strict=True))


def named(table: Measurements, claim: Claim, sides: Sides, found: Sequence[Reason]) -> list[str]:
    """What the sides at a floor are no better than, each once: ``1 of 2 sides at the floor, ...``."""
    constant, names = constant_answer(claim.metric), list[str]()
    for cell, reason in zip(sides.cells, found, strict=False):
        if reason is Reason.PLATEAU:
            names.append("no better than the bigram baseline")
        elif reason:
            counted = dict.fromkeys(bar.floor for bar in table.bars(cell).values())
            bar = "not distinguished from the best constant answer" if constant else f"no better than {listed(counted)}"
            names.append(bar)
    return [f"{names.count(name)} of {len(found)} sides at the floor, {name}" for name in dict.fromkeys(names)]


def listed(methods: Iterable[str]) -> str:
    """``the product of counts of the two neighbours``. A name is used as it is."""
    return " and ".join(method if method[:1].isupper() else f"the {method}" for method in methods)


def constant_answer(metric: str) -> str:
    """The metric of the best constant answer to the same question; empty if there is none."""
    return next((name for name in references(metric).values() if name.endswith("majority")), "")


def _of_scores(table: Measurements, constant: str, sides: Sides, place: int) -> Reason:
    bars = [row.value for row in table.of(sides.cells[place], constant).values()]
    if not bars or not sides.sample.values[place]:
        return Reason.NONE
    interval = sides.sample.linear([float(n == place) for n in range(len(sides.cells))]).interval(LEVEL)
    low = interval.mean if interval.low is None else interval.low
    return Reason.FLOOR if low is None or low <= max(bars) else Reason.NONE


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


def floored(found: Sequence[Reason], pairs: Sequence[tuple[int, int]]) -> Floored:
    """How many sides of the pair that fares worst are at the floor."""
    counts = [bool(found[a]) + bool(found[b]) for a, b in pairs if max(a, b) < len(found)]
    worst = max(counts, default=0)
    return "both" if worst > 1 else "one" if worst else "none"
