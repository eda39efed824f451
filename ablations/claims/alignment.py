"""Is a difference in held-out loss one of speed, or of quality? The same contrast at equal tokens, FLOPs and crossings.

Runs are compared where all of them have read as many tokens, where they have cost as much, and *aligned*: each at the
same multiple of its own crossing (``measurements.curves``), the largest that all of them reach. Values of runs at an
amount are a sample like their values at the end: every contrast has the t interval of verdicts, with variances
moderated over cells. It holds the noise of the crossings, since each run is aligned by its own. (A bootstrap over four
runs a side is too narrow: ``benchmarks.simulation``.)

The aligned effect says of a difference at equal tokens that it is

* *quality* if its interval excludes 0 on the same side, and a sixth earlier does so too: speed alone does not explain
  the difference. In the last sixth of a training the falling rate flattens every curve, and the slower side alone is
  compared there;
* *speed* if its interval lies within the margin, or a quarter of the effect at equal tokens, and excludes what a
  constant offset would leave;
* *open: speed or quality* otherwise.

Sides that start from the weights of others, or with a run that never passes the bigram baseline or passed it before
its first measurement, are *not aligned*.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from ablations.claims.contrasts import Sides, collect
from ablations.claims.margins import PUBLISHED, RULES_OF_THUMB, margin, source
from ablations.claims.relations import RELATIONS
from ablations.core.crossing import EARLIER, is_quality, is_speed, left_by_offset, nearest
from ablations.core.estimates import Estimate
from ablations.core.formatting import cell_text, value_text
from ablations.core.statistics import LEVEL, Interval
from ablations.measurements.curves import amounts, crossing, curve, final_slope, geometric_mean, value_at
from ablations.measurements.measurements import Measurements
from ablations.schema.cell import Cell
from ablations.schema.claim import Claim
from ablations.schema.metrics import HELDOUT
from ablations.schema.record import Record

_LINEAR = (">", "~", "ordering", "trend", "interaction")  # relations whose estimates are sums of means of cells
NO_CROSSING = "runs that start from the weights of others have no crossing"
_SAME = 1e-9  # relative difference of two amounts that are equal up to rounding


class Kind(StrEnum):
    """What an aligned effect says of the difference at equal tokens."""

    QUALITY = "quality"
    SPEED = "speed"
    OPEN = "open: speed or quality"
    NONE = "not aligned"


@dataclass(frozen=True)
class Contrast:
    """A contrast of cells in three alignments; positive as claimed, in nats, with 95 % intervals over runs.

    Attributes:
        name: The sides for people; of a pair the better one at equal tokens first.
        cells: Their labels.
        is_pair: Whether it is the difference of two cells.
        tokens: The effect at equal tokens: that of the verdict where all runs end there.
        flops: At equal FLOPs, the most that all runs have used; None where records lack them.
        multiples: The aligned effect; None where there is none.
        multiple: Of the crossing, where the runs are aligned.
        earlier: The aligned effect at `EARLIER` of that multiple; None where it lies before the crossing.
        left: What a constant offset of the size of the effect would leave there; None where it is not known.
        slopes: The mean final slope of each side, nats.
        crossings: The mean crossing of each side, tokens; empty where the runs are not aligned.
        why: Why the runs are not aligned.
    """

    name: str
    cells: tuple[str, ...]
    is_pair: bool
    tokens: Interval
    flops: Interval | None
    slopes: tuple[float | None, ...]
    crossings: tuple[float | None, ...] = ()
    multiples: Interval | None = None
    multiple: float | None = None
    earlier: Interval | None = None
    left: float | None = None
    kind: Kind = Kind.NONE
    why: str = ""

    def facing(self, interval: Interval | None) -> Interval | None:
        """One of its intervals as the name has the sides: positive where the first of a pair is better."""
        if interval is None or not self.is_turned:
            return interval
        mean, low, high = (None if x is None else -x for x in (interval.mean, interval.high, interval.low))
        return Interval(mean, low, high, interval.n, interval.level)

    @property
    def is_turned(self) -> bool:
        """Whether the name has the sides of a pair in the other order than the claim."""
        return self.is_pair and (self.tokens.mean or 0.0) < 0


@dataclass(frozen=True)
class Aligned:
    """A claim at equal multiples of the crossing.

    Attributes:
        contrasts: Those that its relation tests.
        interval: The relation's own number with its 95 % interval over runs; None where a contrast is not aligned.
        kind: That of all contrasts, if they have one in common.
        why: Why it is not aligned.
        estimates: Those of the interval.
    """

    contrasts: tuple[Contrast, ...]
    interval: Interval | None
    kind: Kind
    why: str = ""
    estimates: tuple[Estimate, ...] = ()


def aligned(claim: Claim, sides: Sides, measured: Measurements) -> Aligned | None:
    """A claim in three alignments, from the runs of its verdict.

    Args:
        sides: Its sides, as `collect` gives them.
        measured: The measurements at the look of its verdict.

    Returns:
        None for a claim that compares no losses with curves, and without two finished runs a side.
    """
    if claim.metric not in HELDOUT or claim.against or claim.relation not in _LINEAR:
        return None
    if sides.n < 2 or sides.apart or sides.missing or sides.unended:
        return None
    relation = RELATIONS[claim.relation]
    found = [_compared(claim, sides, weights, measured) for weights in relation.tested(relation.weights(claim))]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    contrasts, estimates = tuple(contrast for contrast, _ in known), [estimate for _, estimate in known if estimate]
    kinds = {contrast.kind for contrast in contrasts}
    why = next((contrast.why for contrast in contrasts if contrast.why), "")
    if Kind.NONE in kinds:
        return Aligned(contrasts, None, Kind.NONE, why)
    kind = kinds.pop() if len(kinds) == 1 else Kind.OPEN
    return Aligned(contrasts, relation.interval(estimates, LEVEL), kind, estimates=tuple(estimates))


def _compared(
    claim: Claim, sides: Sides, weights: Sequence[float], measured: Measurements
) -> tuple[Contrast, Estimate | None] | None:
    """One contrast and its aligned estimate; None if a run has no curve."""
    metric, places = claim.metric, [place for place, weight in enumerate(weights) if weight]
    cells, used = [sides.cells[place] for place in places], [weights[place] for place in places]
    runs = [[run for id in sides.runs[place] if (run := measured.get(id)) is not None] for place in places]
    every = [run for side in runs for run in side]
    if any(curve(run, metric) is None for run in every):
        return None

    def estimate(unit: str, amount: Callable[[Record], float | None]) -> Estimate | None:
        found = collect(measured.with_values(metric, _values(measured, metric, unit, amount)), claim)
        fewest = min(len(found.sample.values[place]) for place in places)  # other sides may have none
        return found.sample.linear(weights) if fewest > 1 else None

    is_pair, why = len(cells) == 2 and claim.relation != "trend", _why(cells, runs, metric)
    tokens, flops = ([last for run in every if (last := _last(run, unit))] for unit in ("tokens", "flops"))
    end_alike = max(tokens) - min(tokens) <= _SAME * max(tokens)
    at_tokens = sides.sample.linear(weights) if end_alike else estimate("tokens", lambda run: min(tokens))
    at_flops = estimate("flops", lambda run: min(flops)) if len(flops) == len(every) else None
    if at_tokens is None:
        return None
    contrast = Contrast(
        name=_name(cells, at_tokens.value) if is_pair else _name_of_several(claim, sides.names),
        cells=tuple(cell.label for cell in cells),
        is_pair=is_pair,
        tokens=at_tokens.interval(),
        flops=at_flops.interval() if at_flops else None,
        slopes=tuple(_mean([final_slope(run, metric) for run in side]) for side in runs),
        crossings=tuple(geometric_mean([_crossing(run, metric) for run in side]) for side in runs) if not why else (),
        why=why,
    )
    if why:
        return contrast, None
    multiple = min(_last(run, "tokens") / (_crossing(run, metric) or 1.0) for run in every)

    def align(part: float) -> Estimate | None:
        return estimate("tokens", lambda run: (at := _crossing(run, metric)) and part * multiple * at)

    at_multiple, before = align(1.0), align(EARLIER) if EARLIER * multiple > 1 else None
    if at_multiple is None:
        return None
    contrast = replace(
        contrast,
        multiples=at_multiple.interval(),
        multiple=multiple,
        earlier=before.interval() if before else None,
        left=_left(runs, used, metric, min(tokens), at_tokens.value),
    )
    return replace(contrast, kind=_kind(claim, contrast)), at_multiple


def _values(
    measured: Measurements, metric: str, unit: str, amount: Callable[[Record], float | None]
) -> dict[str, float]:
    """The losses of all runs at an amount of their own: run id -> value, of those that reached it."""
    runs = [run for cell in measured.cells for run in measured.finished(cell).values()]
    asked = [(run, at) for run in runs if (at := amount(run)) is not None]
    return {run.id: found[0] for run, at in asked if (found := value_at(run, unit, at, metric))}


def _last(run: Record, unit: str) -> float:
    """The amount that a run has used at the end of its curve; 0 if it is not known."""
    return max(amounts(run, unit), default=0.0)


def _crossing(run: Record, metric: str) -> float | None:
    found = curve(run, metric)
    return crossing(found).at if found else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _why(cells: Sequence[Cell], runs: Sequence[Sequence[Record]], metric: str) -> str:
    """Why runs are not aligned, as a phrase; empty if they are."""
    if any(cell.system.parents() for cell in cells):
        return NO_CROSSING
    for cell, side in zip(cells, runs, strict=True):
        found = [crossing(of) for run in side if (of := curve(run, metric))]
        never, before = sum(one.high is None for one in found), sum(one.low is None for one in found)
        if never:
            return f"{never} of {len(side)} runs of {cell_text(cell.values)} never pass the bigram baseline"
        if before:
            return f"{before} of {len(side)} runs of {cell_text(cell.values)} passed it before their first measurement"
    return ""


def _left(
    runs: Sequence[Sequence[Record]], weights: Sequence[float], metric: str, tokens: float, effect: float
) -> float | None:
    """What a constant offset would leave of an effect: of the forms of all sides, the one that leaves least."""
    curves = [[of for run in side if (of := curve(run, metric))] for side in runs]
    levels = [_mean([found[0] for run in side if (found := value_at(run, "tokens", tokens, metric))]) for side in runs]
    if None in levels:
        return None
    level, lefts = np.array(levels, dtype=float), []
    for place, side in enumerate(curves):
        x = side[0].x
        if all(np.array_equal(of.x, x) for of in side):
            losses = np.stack([of.losses for of in side])
            lefts.append(left_by_offset(x, losses, level - level[place], np.array(weights), side[0].bar))
    found = float(nearest(np.array(lefts), effect)) if lefts else math.nan
    return found if math.isfinite(found) else None


def _kind(claim: Claim, contrast: Contrast) -> Kind:
    effect, found, before = contrast.tokens.mean, contrast.multiples, contrast.earlier
    if found is None or found.low is None or found.high is None or effect is None:
        return Kind.OPEN
    if is_quality(found.low, found.high, effect):
        is_early = before is not None and before.low is not None and is_quality(before.low, before.high, effect)
        return Kind.QUALITY if is_early else Kind.OPEN
    own = margin(claim) if source(claim) != PUBLISHED else None
    left = math.nan if contrast.left is None else contrast.left
    is_fast = is_speed(found.low, found.high, effect, left, own or RULES_OF_THUMB["nats"])
    return Kind.SPEED if is_fast else Kind.OPEN


def _name(cells: Sequence[Cell], effect: float) -> str:
    """``masking rate 40 % against 15 %``: the better one first, then what both have."""
    better, worse = (cell.values for cell in (cells if effect >= 0 else reversed(cells)))
    shared = {path: value for path, value in better.items() if path in worse and worse[path] == value}
    first, second = ({path: v for path, v in one.items() if path not in shared} for one in (better, worse))
    is_one_axis = first.keys() == second.keys() and len(first) == 1
    short = value_text(*next(iter(second.items()))) if is_one_axis else cell_text(second)
    return f"{cell_text(first)} against {short}" + (f" ({cell_text(shared)})" if shared else "")


def _name_of_several(claim: Claim, names: Sequence[str]) -> str:
    """``a over b, less c over d``, or the step of a trend."""
    if claim.relation == "trend":
        return f"a step of {', '.join(names)}"
    a, b, c, d = names
    return f"{a} over {b}, less {c} over {d}"
